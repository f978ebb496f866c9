"""Nets for pictures: compiled = step by step over NumPy, with and without noise in the steps; and on a live device."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.core import Batch, trees
from crowdml.device.entropy_coins import DeviceCoins
from crowdml.simulation import simulate
from crowdml.simulation.stepwise import simulate_stepwise
from crowdml.task import parse
from crowdml.task.live_task import assemble
from crowdml.wire import message
from tests.support.pictures import PICTURES
from tests.support.plans import problem_with

TASK = f"""{PICTURES}
rate = {{ kind = "constant", c = 0.5 }}
[privacy]
mode = "none"
[stop]
max-releases = 2
[crowd]
devices = 3
passes = 1
curve = 1
"""
STEPS = [
    "algorithm.local-steps=3",
    "privacy={ mode = 'paper', adjacency = 'add-remove', mechanism = 'gaussian', noise-at = 'steps', "
    "sampling-rate = 0.1, clip = 0.5, epsilon = 8.0, delta = 1e-5 }",
]
LAYERS = "privacy.clipping=per-layer"


@pytest.mark.parametrize("changes", [[], [*STEPS, LAYERS]], ids=["plain", "noise in steps"])
def test_compiled_and_step_by_step_agree(changes: list[str]) -> None:
    task = parse(TASK, changes=changes)
    compiled, stepwise = simulate(task, seed=4), simulate_stepwise(task, seed=4)
    for one, other in zip(trees.leaves(compiled.parameters), trees.leaves(stepwise.parameters), strict=True):
        scale = np.abs(np.asarray(other)).max()
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-4, atol=2e-5 * scale)


@pytest.mark.parametrize(
    ("kind", "unit"), [("fedsgd", "sample"), ("fedavg", "device")], ids=["every row clipped", "the change clipped"]
)
def test_a_device_clips_a_convolution_on_the_grid(kind: str, unit: str) -> None:
    privacy = f"mode = 'sound', mechanism = 'gaussian', clip = 0.5, epsilon = 8.0, delta = 1e-5, unit = '{unit}'"
    uses = ", max-uses = 2" if unit == "sample" else ""
    task = parse(TASK, changes=[f"algorithm={{ kind = '{kind}' }}", f"privacy={{ {privacy}{uses} }}"])
    live = assemble(task, [transform.restore({}) for transform in task.data.transform])
    phase, coins = live.algorithm.last, DeviceCoins()
    server = phase.server.init(coins)
    rng = np.random.default_rng(0)
    rows = live.transform(rng.integers(0, 17, (20, 64)).astype(np.float32))
    batch = Batch(rows=rows, targets=rng.integers(0, 10, 20).astype(np.int32), mask=np.ones(20, np.float32))
    sent, _ = phase.contribute(phase.server.check_out(server), phase.begin(), batch, coins)
    # The bytes have the one legal layout, and the server finds nothing that an honest device could not have sent.
    read = live.messages.check_in.decode(live.messages.check_in.encode(message(0, sent)))["content"]
    assert all(leaf.dtype == np.int32 for leaf in trees.leaves(read))
    assert problem_with(read, live.algorithm, live.plan) is None
    after, _ = phase.server.commit(phase.server.absorb(server, (), read, np.int32(0))[0])
    assert any(
        (np.asarray(old) != np.asarray(new)).any()
        for old, new in zip(trees.leaves(server.parameters), trees.leaves(after.parameters), strict=True)
    )
