"""Groups in time: the floor of hops, what links add, what a loss costs with a dummy, without one, and at the top."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.simulation import simulate
from crowdml.simulation.slices.sliced import first_parameters
from crowdml.simulation.slices.sliced_course import GroupCourse, Traffic, traffic
from crowdml.slicing.training import Turn
from crowdml.studies.study import TASKS
from crowdml.task import load, parse
from crowdml.task.live_task import sliced_net_of
from tests.simulation.test_sliced import SOURCE, task


def planned(*changes: str) -> Traffic:
    given = load(TASKS / "slicenet-mlp.toml", ["algorithm.pieces=5", "algorithm.balance=1.05", *changes])
    net = sliced_net_of(given)
    found = traffic(given, net, first_parameters(net.model, 0, 0))
    assert found is not None
    return found


def test_hops_are_the_floor_and_slow_links_want_micro_batches() -> None:
    """Seen between processes with legs of 25 ms: 3.03 batches/s, 1.24 at 1 MB/s, 1.69 in four micro-batches."""
    swift = planned()
    assert swift.batch_seconds == swift.floor_seconds == pytest.approx(0.3) and swift.cut_every == 33
    slow = planned("crowd.relay.bandwidth=1e6", "algorithm.batch=50")
    pipelined = ("algorithm.micro-batches=4", "algorithm.normalisation=pipelined")
    quicker = planned("crowd.relay.bandwidth=1e6", "algorithm.batch=50", *pipelined)
    assert 1 / slow.batch_seconds == pytest.approx(1.24, rel=0.15)
    assert 1 / quicker.batch_seconds == pytest.approx(1.69, rel=0.15)
    assert planned(*pipelined).batch_seconds == swift.batch_seconds


@pytest.mark.parametrize(("numbers", "kib"), [("float32", 9.45), ("bfloat16", 4.73), ("int8", 2.36)])
def test_bytes_of_a_row_by_format(numbers: str, kib: float) -> None:
    found = planned(f"algorithm.numbers={numbers}")
    scales = 72 if numbers == "int8" else 0
    assert (found.row_bytes - scales) / 1024 == pytest.approx(kib, abs=0.005)


SIMPLE = Traffic(
    batch_seconds=1.0,
    floor_seconds=1.0,
    cut_every=5,
    row_bytes=100,
    batch_bytes=10,
    pieces=(40, 20, 20),
    moved=3,
    hand_over_seconds=0.5,
)


def course(losses: dict[int, float], away: float = 60.0, noticed: float = 0.25) -> GroupCourse:
    """A group of four, batches of ten rows, whose devices are lost at given times, once each."""
    relay = (f"crowd.relay.away={away}", f"crowd.relay.noticed={noticed}")
    made = GroupCourse(SIMPLE, task(*relay), np.arange(4), np.random.default_rng(0))
    made.next_loss |= losses
    return made


TURN = Turn(dominator=0, followers=(1, 2), dummies=(3,))


def test_a_turn_without_losses() -> None:
    found = course({})
    assert found.turn(TURN, 118) == 12 and found.clock == 12.5
    assert found.counts["batches"] == 12 and found.bytes()["deposits"] == 3 * 80
    assert found.bytes()["sums"] == 118 * 100 and found.bytes()["hand_overs"] == 80


def test_a_dummy_takes_the_piece_of_a_lost_follower_and_batches_are_replayed_from_the_cut() -> None:
    """Seven batches are done at 7.5 s, five of them cut: two are replayed. The eighth was under way until 8.2 s."""
    found = course({2: 8.2})
    assert found.turn(TURN, 100) == 10
    assert found.clock == pytest.approx(8.2 + 0.25 + 0.5 + 5)
    assert (found.counts["losses"], found.counts["replayed"], found.counts["batches"]) == (1, 2, 10)
    assert found.bytes()["sums"] == 120 * 100 and found.waited == 0


def test_without_a_dummy_the_group_waits_at_the_cut() -> None:
    found = course({2: 8.2, 3: 1.0}, away=20.0)
    assert found.turn(TURN, 100) == 10
    # The dummy was lost first, so it is back first, at 21.
    assert found.waited == pytest.approx(21 - 8.45) and found.clock == pytest.approx(21.0 + 0.5 + 5)


def test_a_group_that_waits_too_long_gives_the_turn_up() -> None:
    found = course({2: 8.2, 3: 1.0}, away=5000.0)
    assert found.turn(TURN, 100) == 5 and found.counts["batches_lost"] == 5 and found.waited == 3600


def test_a_lost_dominator_takes_the_rest_of_its_turn_with_it() -> None:
    found = course({0: 8.2})
    assert found.turn(TURN, 100) == 5
    assert (found.counts["batches"], found.counts["batches_lost"], found.counts["replayed"]) == (5, 5, 0)
    assert found.turn(TURN, 100) == 0 and found.counts["turns_lost"] == 1
    assert math.isclose(found.clock, 8.45)


def test_without_losses_the_crowd_learns_the_same_and_with_them_dominators_batches_are_missing() -> None:
    changes = ("crowd.passes=2", "algorithm.dummies=1", "crowd.devices=10")
    plain = simulate(task(*changes), trials=1)
    slower: Any = simulate(task(*changes, "crowd.relay.leg=0.1"), trials=1)
    assert np.array_equal(plain.parameters[0]["w"], slower.parameters[0]["w"])
    assert plain.times is not None and slower.times == pytest.approx(4 * plain.times)
    assert plain.relay["losses"] == 0 and plain.relay["batches"] == plain.updates
    lossy = simulate(task(*changes, "crowd.relay.loss-every=60", "algorithm.cut-every=4"), trials=1)
    relay = lossy.relay
    assert relay["losses"] > 0 and relay["replayed"] > 0 and relay["batches_lost"] > 0
    assert relay["batches"] == lossy.updates < plain.updates
    assert relay["batches_per_second"] < plain.relay["batches_per_second"] <= plain.relay["floor_batches_per_second"]
    assert any("replayed" in note for note in lossy.notes) and lossy.to_json()["relay"] == relay


@pytest.mark.parametrize(("cut_every", "share"), [(10, 0.95), (0, 0.89)])
def test_one_loss_a_minute_costs_little_with_frequent_cuts(cut_every: int, share: float) -> None:
    """Five followers, each lost every five minutes on average; enough dummies; legs of 25 ms."""
    changes = ["algorithm.pieces=5", "crowd.relay.loss-every=300", f"algorithm.cut-every={cut_every}"]
    given = load(TASKS / "slicenet-mlp.toml", changes)
    net = sliced_net_of(given)
    found = traffic(given, net, first_parameters(net.model, 0, 0))
    assert found is not None
    one = GroupCourse(found, given, np.arange(14), np.random.default_rng(1))
    one.next_loss[0] = math.inf
    turn = Turn(dominator=0, followers=(1, 2, 3, 4, 5), dummies=tuple(range(6, 14)))
    batches = 20000
    assert one.turn(turn, one.batch_rows * batches) == batches
    assert 0.9 < 60 * one.counts["losses"] / one.clock < 1.2
    assert batches * found.batch_seconds / one.clock > share


def test_devices_that_are_alone_have_no_course_and_others_no_relay() -> None:
    assert simulate(task("algorithm.pieces=0", "crowd.passes=1")).relay == {}
    with pytest.raises(BadInput, match="send nothing to each other"):
        parse(SOURCE, changes=["algorithm={ kind = 'crowd-sgd' }", "crowd.relay.leg=0.1"])
