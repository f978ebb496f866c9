"""Several check-ins in one go make the same bits as one after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.algorithms.server_parts import step
from crowdml.core import NUMPY, Batch, CheckIn, trees
from crowdml.core.ops import ZeroCoins, onto_ball, shrinker
from crowdml.device import DeviceCoins
from crowdml.task import parse
from crowdml.task.live_task import LiveTask, assemble, first_broadcast
from crowdml.wire import message

TASK = """
crowdml = 1
name = "walk"
[data]
features = 7
labels = ["a", "b", "c"]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
batch = 4
[privacy]
mode = "none"
"""
SOUND = [
    "privacy={ mode = 'sound', epsilon = 100.0, max-uses = 3, clip = 1.0 }",
    "stop.max-releases=50",
    "crowd.passes=3",
]
DECAY = ["model.regularisation=0.01"]
RATE = "algorithm={{ kind = 'crowd-sgd', batch = 4, rate = {{ kind = '{}', c = 0.7 }} }}"
LOCAL = "algorithm={{ kind = 'local-sgd', local-steps = {}, local-batch = 4, server-batch = 1, stale = 'accept' }}"
QUICK: dict[str, list[str]] = {
    "crowd-sgd": DECAY,
    "sound": SOUND,
    "sound, with a regulariser": SOUND + DECAY,
    "sound, old ones damped": [*SOUND, *DECAY, "algorithm={ kind = 'crowd-sgd', batch = 4, stale = 'weight' }"],
    "a small ball": ["algorithm={ kind = 'crowd-sgd', batch = 4, radius = 0.3 }"],
    "old ones damped": ["algorithm={ kind = 'crowd-sgd', batch = 4, stale = 'weight' }"],
    "a constant rate": [RATE.format("constant")],
    "an inverse rate": [RATE.format("inverse")],
    "gradients": [LOCAL.format(0), "algorithm.rate={ kind = 'inverse', c = 1.0, counter = 'check-ins' }"],
    "changes": [LOCAL.format(2)],
}
SLOW: dict[str, list[str]] = {
    "a rate that remembers": [RATE.format("adagrad")],
    "a window": ["algorithm={ kind = 'local-sgd', local-steps = 1, local-batch = 4, server-batch = 3 }"],
    "rounds": ["algorithm={ kind = 'fedsgd', per-round = 2 }"],
}


def task(changes: list[str]) -> LiveTask:
    return assemble(parse(TASK, changes=changes), [])


def contents(live: LiveTask, count: int) -> list[CheckIn]:
    """Make check-ins of random rows, as the server reads them."""
    phase, size, draws, found = live.algorithm.last, live.algorithm.schedule.batch, np.random.default_rng(5), []
    broadcast = first_broadcast(live.algorithm)
    for _ in range(count):
        rows = draws.standard_normal((size, 7)).astype(np.float32)
        labels = draws.integers(0, 3, size).astype(np.int32)
        mask = (draws.random(size) < 0.8).astype(np.float32)
        batch = Batch(rows=rows, targets=labels, mask=mask)
        check_in, _ = phase.contribute(broadcast, phase.begin(), batch, DeviceCoins())
        body = live.messages.check_in.encode(message(0, check_in))
        found.append(live.server_messages.check_in.decode(body)["content"])
    return found


@pytest.mark.parametrize("form", list(QUICK))
@pytest.mark.parametrize("at_once", [1, 5, 60, 1 << 16])
def test_the_bits_are_those_of_one_after_another(form: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "AT_ONCE", at_once)
    live = task(QUICK[form])
    part, made = live.server.last.server, contents(live, 23)
    quick_way = live.server.hints.apply_batch
    slots, ages = [number % 5 for number in range(23)], [number % 4 for number in range(23)]
    server, rows = part.init(ZeroCoins()), dict[int, Any]()
    for slot, content, age in zip(slots, made, ages, strict=True):
        row = rows.get(slot, part.row())
        server, rows[slot] = part.absorb(server, row, content, np.int32(age))
        server, _ = part.commit(server)
    begun, quick_rows = part.init(ZeroCoins()), dict[int, Any]()
    before = live.state.encode(begun)
    assert quick_way is not None
    quick = quick_way(begun, quick_rows, slots[:9], made[:9], ages[:9])
    quick = quick_way(quick, quick_rows, slots[9:], made[9:], ages[9:])
    assert live.state.encode(quick) == live.state.encode(server) != before
    assert live.state.encode(begun) == before
    if part.row():
        for slot in rows:
            pairs = zip(trees.leaves(quick_rows[slot]), trees.leaves(rows[slot]), strict=True)
            assert all(np.array_equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("form", list(SLOW))
def test_where_there_is_no_quick_way_none_is_offered(form: str) -> None:
    assert task(SLOW[form]).server.hints.apply_batch is None


@pytest.mark.parametrize("radius", [0.1, 1.0, 22.3, 1e6])
def test_shrinking_in_place_changes_the_same_bits(radius: float) -> None:
    draws, shrink, moved = np.random.default_rng(1), shrinker(radius), 0
    for scale in np.array([0.0, 1e-30, 0.01, 1.0, 1.0, 1.0, 30.0, 1e19, 1e25], np.float32):
        vector = draws.standard_normal(500).astype(np.float32) * scale
        with np.errstate(over="ignore"):
            expected = onto_ball(vector, radius, NUMPY)
            moved += not np.array_equal(expected, vector)
            shrink(vector)
        assert vector.tobytes() == expected.tobytes()
    assert moved
