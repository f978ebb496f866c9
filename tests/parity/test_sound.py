"""Sound mode stage by stage: NumPy and compiled code make the same integers from the same floats.

End to end the two drift apart, because one rounding that falls the other way changes everything after it; so stages
are compared, and the ends only roughly.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from crowdml.algorithms.device_parts.local_steps import LocalSteps
from crowdml.core import NUMPY, Batch, Broadcast, CheckIn, Ops, Release, trees
from crowdml.device import DeviceCoins
from crowdml.privacy.noise.grid import make_grid, round_checked
from crowdml.privacy.sanitisers.grid import OnGrid
from crowdml.privacy.sanitisers.walks import Stable
from crowdml.simulation import simulate
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.engine.jax_ops import JAX
from crowdml.simulation.stepwise import simulate_stepwise
from crowdml.task import Task, parse
from crowdml.wire import layouts, message
from tests.support.phases import stepped

TASK = """
crowdml = 1
name = "sound"
[data]
dataset = "digits"
features = 64
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{ kind = "scale", by = 0.0625 }, { kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "softmax"
regularisation = 0.001
[algorithm]
kind = "crowd-sgd"
batch = 70
rate = { kind = "inverse-sqrt", c = 10.0 }
[privacy]
mechanism = "gaussian"
clip = 1.0
epsilon = 30.0
delta = 1e-5
max-uses = 10
statistics-epsilon = 1.0
[crowd]
devices = 20
passes = 10
"""
SEED = trial_seed(3, 0)


def task(*changes: str) -> Task:
    return parse(TASK, changes=changes)


@pytest.mark.parametrize("order", [1, 2])
def test_rounding_gives_the_same_integers(order: int) -> None:
    """Also where vectors are too long at first, or stay so."""
    grid = make_grid(order, 60, 1.0, "example")
    rng = np.random.default_rng(1)
    x = rng.standard_normal((50, 60)).astype(np.float32)
    x *= grid.levels / np.linalg.norm(x, order, axis=1, keepdims=True)
    x[10:20] *= np.float32(1.02 if order == 2 else 1.01)  # these need several tries, or are cut
    x[20:22] *= 3  # these become zero
    plain = round_checked(grid, x, HashCoins(SEED, 5, NUMPY), "grid", NUMPY)
    compiled = jax.jit(lambda levels: round_checked(grid, levels, HashCoins(SEED, 5, JAX), "grid", JAX))(x)
    np.testing.assert_array_equal(plain, compiled)
    assert (plain[20:22] == 0).all() and (plain[:20] != 0).any(axis=1).all()


def on_grid(of: Task, ops: Ops) -> OnGrid:
    """Return the sanitiser of a task, bound to its use."""
    found = of.build(ops).last.sanitiser
    assert isinstance(found, OnGrid)
    return found


def released(of: Task, ops: Ops, w: Any, batch: Batch, address: int) -> Release:
    """Return what a device makes of its batch, bounded and without noise."""
    return stepped(of.build(ops).last, Broadcast(parameters=w), batch, HashCoins(SEED, address, ops))[0]


@pytest.mark.parametrize("unit", ["sample", "device"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_a_device_makes_nearly_the_same_integers_in_both(unit: str, mechanism: str) -> None:
    """Gradients agree to 1e-6, so at most a few roundings of thousands fall the other way, by one level."""
    of = task(f"privacy.unit={unit}", f"privacy.mechanism={mechanism}", "stop.max-releases=10")
    rng = np.random.default_rng(2)
    rows = rng.random((12, 64)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    batch = Batch(rows=rows, targets=rng.integers(0, 10, 12).astype(np.int32), mask=np.ones(12, np.float32))
    w = ({"w": rng.standard_normal((10, 64)).astype(np.float32)},)

    plain = released(of, NUMPY, w, batch, 7).update[0]["w"]
    compiled = np.asarray(jax.jit(lambda: released(of, JAX, w, batch, 7).update[0]["w"])())
    assert plain.dtype == compiled.dtype == np.int32
    assert np.abs(plain - compiled).max() <= 1 and (plain != compiled).mean() < 0.01
    assert np.abs(plain).max() > 3


def test_the_server_gets_back_the_mean_gradient() -> None:
    """Integers times the step are the clipped mean and the regulariser, up to rounding of one level per example."""
    of = task("privacy.clip=100.0", "privacy.epsilon=1000.0")
    sanitiser, model = on_grid(of, NUMPY), of.model_for(NUMPY)
    rng = np.random.default_rng(3)
    rows = rng.random((50, 64)).astype(np.float32) / 8
    batch = Batch(rows=rows, targets=rng.integers(0, 10, 50).astype(np.int32), mask=np.ones(50, np.float32))
    w = ({"w": rng.standard_normal((10, 64)).astype(np.float32)},)
    check_in = CheckIn(update=released(of, NUMPY, w, batch, 7).update, weight=np.int32(50))
    exact = model.gradients(w, batch).total(np.full(50, 1 / 50, np.float32))[0]["w"] + 0.001 * w[0]["w"]
    step = sanitiser.mechanism.grid.step
    read, _ = sanitiser.read(check_in, lambda: model.regulariser(w, 0.001))
    assert np.abs(read[0]["w"] - exact).max() < 5 * step / 2 / np.sqrt(50)
    assert np.abs(read[0]["w"] - exact).max() > step / 500  # so it is on the grid


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_what_leaves_a_device_is_integers(mechanism: str) -> None:
    """With the coins of a real device, through the real bytes: no leaf is a floating-point number."""
    phase = task(f"privacy.mechanism={mechanism}").build(NUMPY).last
    begun = phase.server.check_out(phase.server.init(DeviceCoins()))
    batch = Batch(rows=np.full((70, 64), 0.1, np.float32), targets=np.zeros(70, np.int32), mask=np.ones(70, np.float32))
    release, device = stepped(phase, begun, batch, DeviceCoins())
    check_in, _ = phase.finish(begun, release, device, DeviceCoins())
    assert {str(np.asarray(leaf).dtype) for leaf in trees.leaves(check_in)} == {"int32"}
    wire = layouts(begun, check_in)
    body = wire.check_in.encode(message(0, check_in))
    assert b"F32" not in body[:600] and b"I32" in body[:600]
    decoded = wire.check_in.decode(body)["content"]
    np.testing.assert_array_equal(decoded.update[0]["w"], check_in.update[0]["w"])
    # And the noise is there: no two releases of the same batch are alike.
    again, _ = phase.finish(begun, release, device, DeviceCoins())
    assert (again.update[0]["w"] != check_in.update[0]["w"]).mean() > 0.9


def test_padding_never_reaches_the_sum() -> None:
    rng = np.random.default_rng(4)
    rows = rng.random((6, 64)).astype(np.float32) / 8
    labels, w = np.arange(6, dtype=np.int32), ({"w": np.zeros((10, 64), np.float32)},)
    mask = np.array([1, 1, 1, 0, 0, 0], np.float32)
    here = released(task(), NUMPY, w, Batch(rows=rows, targets=labels, mask=mask), 1)
    rows[3:] = np.nan
    there = released(task(), NUMPY, w, Batch(rows=rows, targets=labels, mask=mask), 1)
    np.testing.assert_array_equal(here.update[0]["w"], there.update[0]["w"])
    noisy, _ = on_grid(task(), NUMPY).noise(here, (), HashCoins(SEED, 1, NUMPY))
    assert noisy.update[0]["w"].dtype == np.int32


def test_both_drivers_learn_alike() -> None:
    """Test errors of compiled and stepwise runs over 3 trials: their means differ by chance only (s.d. near 0.01)."""
    compiled, stepwise = simulate(task(), trials=3), simulate_stepwise(task(), trials=3)
    assert compiled.test_error < 0.2 and abs(compiled.test_error - stepwise.test_error) < 0.06
    assert compiled.privacy["sample"] == stepwise.privacy["sample"]
    assert 29.0 < compiled.privacy["sample"]["epsilon"] <= 30.0
    assert compiled.privacy["mode"] == "sound" and compiled.privacy["unit"] == "sample"


def test_a_device_task_learns_too() -> None:
    of = task("privacy.unit=device", "privacy.epsilon=1000.0", "privacy.statistics-epsilon=0.0", "stop.max-releases=10")
    found = simulate(of, trials=2)
    assert found.test_error < 0.5
    assert 900 < found.privacy["device"]["epsilon"] <= 1000.0
    assert found.privacy["sample"]["epsilon"] <= found.privacy["device"]["epsilon"]


LOCAL = (
    "algorithm={ kind = 'local-sgd', local-steps = 3, local-batch = 2, rate = { kind = 'inverse', c = 2.0 } }",
    "privacy.statistics-epsilon=0.0",
    "stop.max-releases=10",
)


def test_stable_steps_are_the_same_walk_in_a_simulation_and_its_epsilon_is_a_devices() -> None:
    """In single precision there, so nothing is proven of its arithmetic: what it states is the plan of the device."""
    of, walked = task(*LOCAL), []
    rng = np.random.default_rng(0)
    batch = Batch(
        rows=rng.standard_normal((6, 64)).astype(np.float32),
        targets=np.arange(6, dtype=np.int32),
        mask=np.ones(6, np.float32),
    )
    for ops in (NUMPY, JAX):
        device = of.build(ops).last.device
        assert isinstance(device, LocalSteps) and isinstance(device.walk, Stable)
        start, coins = trees.map(lambda leaf: leaf + 0.5, of.model_for(ops).zeros()), HashCoins(SEED, 1, ops)
        walked.append(np.asarray(device.walk.take(start, (), ops.xp.int32(1), batch, coins)[0][0]["w"]))
    assert walked[0].dtype == np.float64 and np.abs(walked[0]).max() > 0.01
    np.testing.assert_allclose(walked[0], walked[1], rtol=1e-5, atol=1e-7)
