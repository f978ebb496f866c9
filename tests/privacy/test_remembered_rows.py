"""Rows that a device remembers are behind its later messages, too: what then may be promised to samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml import simulate
from crowdml.algorithms import Algorithm
from crowdml.core import BadInput, Batch, trees
from crowdml.core.ops import ZeroCoins
from crowdml.task import Task, parse
from tests.support.phases import stepped
from tests.support.plans import update_of

TASK = """
crowdml = 1
name = "remembered"
[data]
features = 2
labels = ["a", "b"]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
[privacy]
unit = "sample"
mechanism = "gaussian"
epsilon = 3.0
delta = 1e-5
clip = 1.0
max-uses = 2
[crowd]
devices = 4
"""
MOMENTUM = "rate = { kind = 'momentum', c = 1.0 }"
REMEMBER = {
    "control variates": "kind = 'scaffold', devices = 4",
    "momentum": f"kind = 'fedavg', {MOMENTUM}",
    "momentum of what is sent, beside a model of one's own": f"kind = 'ditto', {MOMENTUM}",
    "squares": "kind = 'local-sgd', local-steps = 2, rate = { kind = 'adagrad', c = 1.0 }",
    "means": "kind = 'fedbuff', rate-memory = 'keep', rate = { kind = 'adam', c = 1.0 }",
    "duals": "kind = 'admm-sums', devices = 4",
}
FORGET = {
    "nothing": "kind = 'fedavg'",
    "a pull": "kind = 'fedprox'",
    "momentum that begins anew": f"kind = 'fedavg', rate-memory = 'reset', {MOMENTUM}",
    "counters": "kind = 'fedavg', rate = { kind = 'inverse', c = 1.0, counter = 'local-steps' }",
    "a model of one's own": "kind = 'ditto'",
    "a server with a memory": "kind = 'fedadam'",
    "a clip that is broadcast": "kind = 'dp-fedavg'",
}


ONE, OTHER = (5.0, 0.1), (0.1, 5.0)


def task(form: str, *changes: str) -> Task:
    text = TASK.replace("clip = 1.0\n", "") if "dp-fedavg" in form else TASK
    return parse(text, changes=[f"algorithm={{ {form} }}", *changes])


def later_integers(algorithm: Algorithm, first: tuple[float, float]) -> Any:
    """Return what a second message is before its noise, over rows that have nothing in common with the first's."""
    phase = algorithm.last
    broadcast = phase.server.check_out(phase.server.init(ZeroCoins()))
    size, device = algorithm.schedule.batch * 10, None
    for row in (first, (0.5, 0.5)):
        rows = np.tile(np.array(row, np.float32), (size, 1))
        batch = Batch(rows=rows, targets=np.zeros(size, np.int32), mask=np.ones(size, np.float32))
        release, device = stepped(phase, broadcast, batch, ZeroCoins(), device)
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in trees.leaves(release.update)]).astype(np.int64)


@pytest.mark.parametrize("form", [REMEMBER[name] for name in REMEMBER if name != "duals"])
def test_a_row_of_an_earlier_release_moves_a_later_one_and_more_releases_than_uses_are_refused(form: str) -> None:
    allowed = task(form, "stop={ max-releases = 2 }")
    moved = later_integers(allowed.built, ONE) - later_integers(allowed.built, OTHER)
    grid = update_of(allowed.calibrated).grid
    assert moved @ moved > (grid.levels // 4) ** 2, "it is behind a release that it is not in"
    assert moved @ moved <= grid.sensitivity_power, "which costs no more than one that it is in"
    for stop in ([], ["stop={ max-releases = 3 }"]):
        with pytest.raises(BadInput, match=r"a sample is behind all later ones.*in 2 at most") as caught:
            task(form, *stop)
        assert caught.value.where.endswith("stop.max-releases") and "max-releases = 2" in caught.value.hint


@pytest.mark.parametrize("form", FORGET.values(), ids=FORGET)
def test_what_says_nothing_of_earlier_rows_may_be_remembered(form: str) -> None:
    allowed = task(form)
    assert not allowed.built.remembers_rows
    if "dp-fedavg" not in form:
        one, other = (later_integers(allowed.built, first) for first in (ONE, OTHER))
        assert np.array_equal(one, other)


@pytest.mark.parametrize("form", REMEMBER.values(), ids=REMEMBER)
def test_a_device_pays_for_every_release_anyway(form: str) -> None:
    whole = ["privacy={ unit = 'device', mechanism = 'gaussian', epsilon = 3.0, delta = 1e-5, clip = 1.0 }"]
    assert task(form, *whole, "stop={ max-releases = 9 }").built.remembers_rows


def test_a_simulation_says_what_remembered_samples_cost() -> None:
    """In one pass a sample is in one release; with momentum it is behind all that follow."""
    changes = [
        "data.dataset=digits",
        "data.features=64",
        "data.labels=['0', '1', '2', '3', '4', '5', '6', '7', '8', '9']",
        "privacy={ unit = 'device', mechanism = 'gaussian', epsilon = 8.0, delta = 1e-5, clip = 1.0 }",
        "stop={ max-releases = 6 }",
        "crowd.passes=1",
        "crowd.curve=4",
    ]
    sgd = "kind = 'local-sgd', local-steps = 2, local-batch = 10"
    found = {
        name: simulate(task(f"{sgd}, rate = {rate}", *changes), engine="numpy")
        for name, rate in {"plain": "{ kind = 'constant', c = 9.0 }", "kept": "{ kind = 'momentum', c = 9.0 }"}.items()
    }
    kept, plain = found["kept"].privacy, found["plain"].privacy
    assert kept["sample"]["epsilon"] == kept["device"]["epsilon"] == pytest.approx(8.0, rel=1e-3)
    assert plain["sample"]["epsilon"] < 0.6 * plain["device"]["epsilon"]
