"""Every recipe with a sound form, stage by stage: NumPy, compiled code and a real device make the same integers.

The stages are those of the contract. Floats agree to 1e-6 and so do not round alike in one of thousands of places, by
one level; from the same integers on everything agrees.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

from crowdml.algorithms import RECIPES, Phase
from crowdml.algorithms.device_parts.gradient import Gradient
from crowdml.core import NUMPY, Batch, Broadcast, CheckIn, DeviceState, Ops, Release, trees
from crowdml.device import DeviceCoins
from crowdml.simulation import simulate
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.engine.jax_ops import JAX
from crowdml.simulation.stepwise import simulate_stepwise
from crowdml.task import Task, parse
from crowdml.wire import layouts, message
from tests.support.phases import model_of, one_version, stepped

BASE = """
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
[privacy]
mechanism = "gaussian"
clip = 1.0
epsilon = 100.0
delta = 1e-5
max-uses = 10
[stop]
max-releases = 10
[crowd]
devices = 20
passes = 10
"""
FORMS = {
    "crowd-sgd": "kind = 'crowd-sgd', batch = 12",
    "local-sgd, no steps": "kind = 'local-sgd', local-steps = 0, local-batch = 12, "
    "rate = { kind = 'constant', c = 5.0 }",
    "local-sgd, no steps, averaged": "kind = 'local-sgd', local-steps = 0, local-batch = 12, server-batch = 3, "
    "rate = { kind = 'constant', c = 5.0 }",
    "local-sgd": "kind = 'local-sgd', local-steps = 3, local-batch = 4, rate = { kind = 'constant', c = 3.0 }",
    "local-sgd, averaged": "kind = 'local-sgd', local-steps = 3, local-batch = 4, server-batch = 3, "
    "rate = { kind = 'adagrad', c = 0.1, floor = 0.001, counter = 'local-steps' }",
    "fedavg": "kind = 'fedavg', per-round = 3, local-batch = 4, rate = { kind = 'constant', c = 3.0 }",
    "fedsgd": "kind = 'fedsgd', per-round = 3, rate = { kind = 'constant', c = 10.0 }",
    "admm-sums": "kind = 'admm-sums', barrier = 3, rho = 0.5, beta = 0.01",
    "fedsgd, alone": "kind = 'fedsgd', per-round = 1, rate = { kind = 'constant', c = 10.0 }",
}
SEED = trial_seed(3, 0)
EVERY = pytest.mark.parametrize("form", list(FORMS))
UNITS = pytest.mark.parametrize("unit", ["sample", "device"])


def task(form: str, *changes: str) -> Task:
    return parse(BASE, changes=[f"algorithm={{ {FORMS[form]} }}", *changes])


def batch(size: int = 12, real: int = 9) -> Batch:
    rng = np.random.default_rng(size)
    rows = rng.random((size, 64)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    mask = (np.arange(size) < real).astype(np.float32)
    return Batch(rows=rows, targets=rng.integers(0, 10, size).astype(np.int32), mask=mask)


def begun(phase: Phase, ops: Ops) -> Broadcast:
    """A broadcast in the middle of learning, the same in both namespaces."""
    broadcast = phase.server.check_out(phase.server.init(HashCoins(SEED, 0, ops)))
    w = ({"w": np.random.default_rng(5).standard_normal((10, 64)).astype(np.float32)},)
    return replace(broadcast, parameters=w)


def released(of: Task, ops: Ops) -> tuple[Release, DeviceState]:
    phase = of.build(ops).last
    return stepped(phase, begun(phase, ops), batch(), HashCoins(SEED, 7, ops))


def sent(of: Task, ops: Ops, made: tuple[Release, DeviceState], address: int = 7) -> CheckIn:
    phase = of.build(ops).last
    return phase.finish(begun(phase, ops), *made, HashCoins(SEED, address, ops))[0]


def test_every_sound_recipe_is_compared() -> None:
    # Squares of rows are sent to promise something to samples, with Gaussian noise only: test_moments.py.
    sound = {kind for kind, recipe in RECIPES.items() if recipe.releases(recipe.settings()).on_grid} - {
        "consensus-newton",
        "ridge",
    }
    # Devices send what those of fedavg or local-sgd do, and the server's optimiser sees floats.
    sound -= {"fedavgm", "fedadam", "fedyogi", "ditto", "fedbuff"}
    # Parts of their own: test_live.py has them sound, over HTTP against the simulation, integers included.
    sound -= {"fedprox", "scaffold", "dp-fedavg"}
    assert sound == {form.partition(",")[0] for form in FORMS}


@EVERY
@pytest.mark.parametrize(("unit", "mechanism"), [("sample", "gaussian"), ("device", "laplace")])
def test_a_step_makes_nearly_the_same_integers(form: str, unit: str, mechanism: str) -> None:
    of = task(form, f"privacy.unit={unit}", f"privacy.mechanism={mechanism}")
    plain, compiled = released(of, NUMPY)[0], jax.tree.map(np.asarray, jax.jit(lambda: released(of, JAX)[0])())
    one, other = plain.update[0]["w"], compiled.update[0]["w"]
    assert one.dtype == other.dtype == np.int32 and np.abs(one).max() > 3
    assert np.abs(one - other).max() <= 1 and (one != other).mean() < 0.02
    rest = [trees.leaves((made.rows, made.counts, made.count)) for made in (plain, compiled)]
    assert [np.asarray(leaf).tolist() for leaf in rest[0]] == [np.asarray(leaf).tolist() for leaf in rest[1]]


@EVERY
@UNITS
def test_the_sanitiser_adds_nearly_the_same_noise(form: str, unit: str) -> None:
    of = task(form, f"privacy.unit={unit}")
    made = released(of, NUMPY)
    plain, compiled = (sent(of, ops, made) for ops in (NUMPY, JAX))
    for (path, one), (_, other) in zip(trees.paths(plain), trees.paths(compiled), strict=True):
        assert np.abs(one - np.asarray(other)).max() <= 1 and np.mean(one != np.asarray(other)) < 0.02, path


@EVERY
@UNITS
def test_the_server_reads_the_same_from_the_same_integers(form: str, unit: str) -> None:
    of = task(form, f"privacy.unit={unit}")
    check_in = sent(of, NUMPY, released(of, NUMPY))
    ends = []
    for ops in (NUMPY, JAX):
        algorithm = of.build(ops)
        part = algorithm.last.server
        server = part.init(HashCoins(SEED, 0, ops))
        for stale in (0, 1):
            server, _ = part.absorb(server, part.row(), check_in, ops.xp.int32(stale))
        ends.append(np.asarray(model_of(algorithm, part.commit(server)[0])[0]["w"]))
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-5, atol=1e-6)
    assert np.abs(ends[0]).max() > 0.01


@pytest.mark.parametrize(
    "form", ["local-sgd, no steps, averaged", "local-sgd, averaged", "fedavg", "fedsgd", "admm-sums"]
)
@UNITS
def test_the_sum_of_two_check_ins_is_read_like_the_two(form: str, unit: str) -> None:
    """So only the sum has to be seen, and check-ins may be masked."""
    of = task(form, f"privacy.unit={unit}")
    algorithm, made = of.build(NUMPY), released(of, NUMPY)
    each = [sent(of, NUMPY, made, number) for number in (1, 2)]
    assert not algorithm.schedule.alone
    start = algorithm.last.server.init(HashCoins(SEED, 0, NUMPY))
    summed = trees.map(lambda a, b: a + b, *each)
    ends = [one_version(algorithm.last, start, check_ins, np.int32(0)) for check_ins in (each, [summed])]
    left, right = (model_of(algorithm, server)[0]["w"] for server in ends)
    np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-7)


@EVERY
@UNITS
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_what_leaves_a_real_device_is_named_integers(form: str, unit: str, mechanism: str) -> None:
    """Through the task's own layout, with coins from the operating system; and the layout needs no data."""
    of = task(form, f"privacy.unit={unit}", f"privacy.mechanism={mechanism}")
    algorithm = of.build(NUMPY)
    phase = algorithm.last
    server = phase.server.init(DeviceCoins())
    broadcast = phase.server.check_out(server)

    def check_in(of_rows: Batch) -> CheckIn:
        return phase.contribute(broadcast, phase.begin(), of_rows, DeviceCoins())[0]

    wire = layouts(broadcast, check_in(batch(4, real=0)))
    found = check_in(batch())
    body = wire.check_in.encode(message(0, found))
    assert b"F32" not in wire.check_in.header and b"I32" in wire.check_in.header
    read = wire.check_in.decode(body)["content"]
    assert {str(leaf.dtype) for leaf in trees.leaves(read)} == {"int32"}
    server = one_version(phase, server, [read], np.int32(0))
    assert np.isfinite(model_of(algorithm, server)[0]["w"]).all()
    again = check_in(batch())
    assert (again.update[0]["w"] != found.update[0]["w"]).mean() > 0.8  # the noise is there, and fresh


@EVERY
@UNITS
def test_the_number_of_rows_travels_only_where_a_message_is_a_sum_over_them(form: str, unit: str) -> None:
    of = task(form, f"privacy.unit={unit}")
    made = released(of, NUMPY)
    sums = unit == "sample" and isinstance(of.build(NUMPY).last.device, Gradient)
    assert int(made[0].rows) == 9
    assert int(sent(of, NUMPY, made).weight) == (9 if sums else 1)


@EVERY
def test_both_drivers_learn_alike(form: str) -> None:
    """Test errors over 2 trials: compiled and step by step their means differ by chance only (s.d. below 0.02)."""
    of = task(form, "privacy.epsilon=1000.0", "crowd.passes=5", "privacy.max-uses=10", "crowd.curve=2")
    compiled, stepwise = simulate(of, trials=2), simulate_stepwise(of, trials=2)
    assert compiled.test_error < 0.5 and abs(compiled.test_error - stepwise.test_error) < 0.1
    assert compiled.privacy == stepwise.privacy
    assert 0 < compiled.privacy["sample"]["epsilon"] <= compiled.privacy["device"]["epsilon"]
    assert compiled.privacy["sample"]["epsilon"] <= 1000.0
