"""Rounds and barriers: who is invited or works over and over, with which rows, and what the server waits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.simulation import simulate
from crowdml.simulation.engine.chunks import fixed_count
from crowdml.simulation.timeline import Contacts, Timeline
from crowdml.simulation.timeline.rounds import _enough
from crowdml.task import Task, parse
from crowdml.task.task_checks import check
from tests.support.simulated import course

Make = Callable[..., Task]
UNEVEN = "crowd.speeds={ sigma = 1.0 }"


def fedavg(digits: Make, settings: str = "", *changes: str) -> Task:
    return digits(f"algorithm={{ kind = 'fedavg', per-round = 4, local-batch = 10 {settings} }}", *changes)


def test_a_round_invites_different_devices_and_ends_with_the_last(digits: Make) -> None:
    found = course(fedavg(digits))
    assert len(found) == 2 * 20  # two passes of twenty devices, four at a time
    rounds = found.device.reshape(-1, 4)
    assert all(len(set(line)) == 4 for line in rounds.tolist())
    assert len({tuple(sorted(line)) for line in rounds.tolist()}) > 1
    assert fixed_count(found) == 4 and not found.staleness.any()


def test_a_device_goes_through_all_its_rows_once_per_epoch(digits: Make) -> None:
    found = course(fedavg(digits, ", epochs = 2", "crowd.partition={ kind = 'unbalanced', sigma = 0.7 }"))
    assert found.rows.shape[1] % 10 == 0 and len(set(found.counts.tolist())) > 1
    shards: dict[int, Any] = {}
    for device, line, count in zip(found.device.tolist(), found.rows, found.counts.tolist(), strict=True):
        first, second = line[: count // 2], line[count // 2 : count]
        assert len(set(first.tolist())) == count // 2
        assert set(first.tolist()) == set(second.tolist()) and first.tolist() != second.tolist()
        assert shards.setdefault(device, set(first.tolist())) == set(first.tolist())
    owners = [row for rows in shards.values() for row in rows]
    assert len(owners) == len(set(owners))


def test_an_invited_device_uses_all_its_rows_in_every_release(digits: Make) -> None:
    """So a sample is in as many releases as its device makes, which may be more than the passes on average."""
    paper = ("privacy.mode=paper", "privacy.epsilon=3.0")
    task = digits("algorithm={ kind = 'fedsgd', per-round = 4 }", *paper)
    most = course(task).releases
    assert most > task.passes
    assert simulate(task).privacy["sample"]["epsilon"] == pytest.approx(3.0 * most)


def test_a_round_takes_no_more_rows_of_a_device_than_the_task_says(digits: Make) -> None:
    task = digits("algorithm={ kind = 'fedsgd', per-round = 4, max-rows = 6 }", "privacy={ mode = 'none' }")
    found = course(task)
    assert found.rows.shape[1] == 6 and set(found.counts.tolist()) == {6}
    assert all(len(set(line)) == 6 for line in found.rows.tolist())
    of_one = {
        row for device, line in zip(found.device, found.rows.tolist(), strict=True) if device == 0 for row in line
    }
    assert len(of_one) > 6


def test_lost_check_ins_make_a_round_smaller(digits: Make) -> None:
    found = course(fedavg(digits, "", "crowd.drop-out=0.4"))
    assert len(found) < 40 and fixed_count(found) == 0 and found.commits[-1]


def test_limits_on_versions_and_releases(digits: Make) -> None:
    assert course(fedavg(digits, "", "stop.max-versions=3")).commits.sum() == 3
    found = course(fedavg(digits, "", "stop.max-releases=1"))
    assert np.bincount(found.device).max() == 1 and found.commits.sum() == 5


def test_more_devices_than_there_are_cannot_be_invited(digits: Make) -> None:
    with pytest.raises(BadInput, match="4 devices cannot be invited: 3 hold rows"):
        course(fedavg(digits, "", "crowd.devices=3"))


@pytest.mark.parametrize("change", ["crowd.delays={ request = 1.0 }", "crowd.joining=0.5", "crowd.leaving=0.5"])
def test_what_changes_nothing_is_refused(digits: Make, change: str) -> None:
    with pytest.raises(BadInput, match="invites devices to rounds"):
        fedavg(digits, "", change)


def test_rounds_that_lost_too_many_are_given_up() -> None:
    """Three rounds with 3, 2 and 4 survivors, where a masked sum needs 3."""
    read = np.repeat([0.0, 1.0, 2.0], [3, 2, 4])
    whole = np.arange(len(read))
    contacts = Contacts(device=whole, rows=whole[:, None], counts=whole, read=read, arrival=read + 0.5)
    assert _enough(contacts, 3).device.tolist() == [0, 1, 2, 5, 6, 7, 8]


def test_the_task_file_says_how_many_a_round_needs() -> None:
    task = parse(
        """
        crowdml = 1
        name = "t"
        data = { features = 2, labels = ["a", "b"] }
        model = { kind = "logistic" }
        algorithm = { kind = "fedavg", per-round = 10 }
        privacy = { mode = "none" }
        secure-aggregation = { enabled = true, drop-out = 0.25 }
        """
    )
    masking = task.masking()
    assert masking is not None
    assert masking.least == 8


def admm(digits: Make, settings: str = "", *changes: str) -> Task:
    return digits(f"algorithm={{ kind = 'admm' {settings} }}", *changes)


def windows(found: Timeline) -> list[list[int]]:
    ends = np.flatnonzero(found.commits) + 1
    return [part.tolist() for part in np.split(found.device, ends)[:-1]]


def test_without_a_barrier_every_version_is_made_of_all_devices(digits: Make) -> None:
    found = course(admm(digits, "", UNEVEN, "crowd.passes=3"))
    assert [sorted(part) for part in windows(found)] == [list(range(20))] * 3
    assert not found.staleness.any() and found.releases == 3


def test_a_synchronous_server_waits_for_the_slowest_and_alike_devices_take_one_unit(digits: Make) -> None:
    even, uneven = course(admm(digits)), course(admm(digits, "", UNEVEN))
    np.testing.assert_allclose(even.times[even.commits], [1.0, 2.0])
    lasting = np.diff(uneven.times[uneven.commits], prepend=0.0)
    assert lasting[0] > 2.0 and lasting[0] == pytest.approx(lasting[1])  # each keeps its own speed


def test_a_barrier_waits_for_enough_and_for_those_who_were_silent_for_long(digits: Make) -> None:
    found = course(admm(digits, ", barrier = 5, max-delay = 4", UNEVEN, "crowd.passes=10"))
    heard = windows(found)
    assert all(len(part) >= 5 and len(set(part)) == len(part) for part in heard)
    assert any(len(part) > 5 for part in heard)
    last = dict.fromkeys(range(20), -1)
    for version, part in enumerate(heard):
        last |= dict.fromkeys(part, version)
        assert min(last.values()) > version - 4
    assert 0 < found.staleness.max() < 4


def test_staleness_counts_the_versions_since_the_device_was_heard(digits: Make) -> None:
    found = course(admm(digits, ", barrier = 5, max-delay = 50", UNEVEN, "crowd.passes=4"))
    began = dict.fromkeys(range(20), 0)
    version = 0
    waiting: list[int] = []
    for device, stale, ends in zip(
        found.device.tolist(), found.staleness.tolist(), found.commits.tolist(), strict=True
    ):
        assert stale == version - began[device]
        waiting.append(device)
        if ends:
            version += 1
            began |= dict.fromkeys(waiting, version)
            waiting = []


def test_a_device_that_may_not_check_in_any_more_is_not_waited_for(digits: Make) -> None:
    found = course(admm(digits, ", barrier = 5, max-delay = 3", UNEVEN, "stop.max-releases=3", "crowd.passes=10"))
    assert found.releases == 3
    assert np.bincount(found.device).min() >= 1


def test_rounds_last_as_long_as_their_slowest_device(digits: Make) -> None:
    found = course(digits("algorithm={ kind = 'fedsgd', per-round = 20 }", UNEVEN))
    lasting = np.diff(found.times[found.commits], prepend=0.0)
    assert lasting[0] > 2.0 and lasting[0] == pytest.approx(lasting[1])


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        (["crowd.drop-out=0.1"], "crowd.drop-out"),
        (["crowd.delays={ request = 3.0 }"], "crowd.delays"),
        (["algorithm.barrier=21"], "algorithm.barrier"),
        (["model={ kind = 'mlp' }"], "model.kind"),
    ],
)
def test_what_would_change_nothing_or_never_end_is_refused(digits: Make, changes: list[str], where: str) -> None:
    with pytest.raises(BadInput) as caught:
        check(admm(digits, "", *changes))
    assert str(caught.value.where).endswith(where)


def test_speeds_are_refused_where_rows_set_the_pace(digits: Make) -> None:
    with pytest.raises(BadInput, match="speeds change nothing"):
        check(digits(UNEVEN))


def test_rounds_can_be_counted_instead_of_passes(digits: Make) -> None:
    found = course(fedavg(digits, "", "crowd.rounds=7"))
    assert found.commits.sum() == 7 and len(found) == 28
    assert fedavg(digits, "", "crowd.rounds=7").passes == 2  # 28 of 20 devices, rounded up
    twice = course(fedavg(digits, ", epochs = 3", "crowd.rounds=2"))
    assert twice.commits.sum() == 2
    # As many rounds as the passes come to are the same run, bit for bit.
    passes, rounds = course(fedavg(digits)), course(fedavg(digits, "", "crowd.rounds=10"))
    assert np.array_equal(passes.rows, rounds.rows) and np.array_equal(passes.device, rounds.device)
    assert course(fedavg(digits, "", "crowd.rounds=7", "stop.max-versions=3")).commits.sum() == 3


def test_rounds_are_refused_where_there_are_none_or_too_many(digits: Make) -> None:
    for kind in ("crowd-sgd", "local-sgd", "admm", "central-batch", "slicenet"):
        model = ("model={ kind = 'mlp', layers = [8] }",) if kind == "slicenet" else ()
        with pytest.raises(BadInput, match=f"{kind} has no rounds"):
            digits(f"algorithm={{ kind = '{kind}' }}", "crowd.rounds=5", *model)
    with pytest.raises(BadInput, match="give one of them"):
        digits("algorithm={ kind = 'fedavg' }", "crowd={ rounds = 5, passes = 2 }")
    sound = "privacy={ mode = 'sound', mechanism = 'gaussian', clip = 1.0, epsilon = 8.0, delta = 1e-5, max-uses = 3 }"
    assert course(fedavg(digits, "", sound, "crowd.rounds=15")).releases <= 3
    with pytest.raises(BadInput) as caught:
        fedavg(digits, "", sound, "crowd.rounds=16")
    assert "--set crowd.rounds: pass 4 of 4 is not covered" in str(caught.value) and "rounds = 15" in str(caught.value)
