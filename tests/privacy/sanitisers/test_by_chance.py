"""Private steps against steps written out by hand: rows chosen, gradients clipped, noise added."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.algorithms.device_parts.local_steps import LocalSteps
from crowdml.core import NUMPY, BadInput, Batch, Ops, trees
from crowdml.privacy.sanitisers.walks import ByChance
from crowdml.simulation import simulate
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.engine.jax_ops import JAX
from crowdml.task import Task, parse
from crowdml.task.live_task import require_live
from tests.support.pictures import PICTURES

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)
TASK = f"""{PICTURES}
local-steps = 3
rate = {{ kind = "constant", c = 1.0 }}
group = 16
[privacy]
mode = "paper"
adjacency = "add-remove"
mechanism = "gaussian"
noise-at = "steps"
sampling-rate = 0.05
clip = 0.5
epsilon = 8.0
delta = 1e-5
[stop]
max-releases = 3
[crowd]
devices = 2
passes = 3
curve = 3
"""
FIXED = ("privacy.sampling=fixed", "privacy.adjacency=replace", "privacy.sampling-rate=0.08")


def task(*changes: str) -> Task:
    return parse(TASK, changes=list(changes))


def walk_of(made: Task, ops: Ops) -> ByChance:
    device = made.build(ops).last.device
    assert isinstance(device, LocalSteps) and isinstance(device.walk, ByChance)
    return device.walk


def drawn(made: Task, rows: int = 150) -> tuple[Any, Batch]:
    rng = np.random.default_rng(1)
    zeros = made.model_for(NUMPY).zeros()
    parameters = trees.map(lambda leaf: rng.normal(0, 0.5, leaf.shape).astype(np.float32), zeros)
    mask = (np.arange(rows) < rows - 7).astype(np.float32)
    labels = rng.integers(0, 10, rows).astype(np.int32)
    return parameters, Batch(rows=rng.random((rows, 64), np.float32), targets=labels, mask=mask)


def on(ops: Ops, batch: Batch) -> Batch:
    moved: Batch = trees.map(ops.xp.asarray, batch)
    return moved


@pytest.mark.parametrize(("clipping", "ops"), [("flat", NUMPY), ("flat", JAX), ("per-layer", NUMPY)])
def test_the_sum_is_that_of_gradients_clipped_one_by_one(clipping: str, ops: Ops) -> None:
    made = task(f"privacy.clipping={clipping}")
    walk, (parameters, batch) = walk_of(made, ops), drawn(made)
    order, count = np.random.default_rng(2).permutation(150)[:150], 37  # two groups of 16 and a part of a third
    found = walk.clipped_sum(parameters, on(ops, batch), ops.xp.asarray(order), ops.xp.int32(count))
    chosen = Batch(rows=batch.rows[order[:37]], targets=batch.targets[order[:37]], mask=np.ones(37, np.float32))
    rows = made.model_for(NUMPY).gradients(parameters, chosen).rows()
    groups = [rows] if clipping == "flat" else [layer for layer in rows if layer]
    radius = 0.5 / np.sqrt(len(groups))
    for group in groups:
        flat = np.concatenate([leaf.reshape(37, -1) for leaf in trees.leaves(group)], axis=1)
        norms = np.linalg.norm(flat, axis=1)
        assert (norms > radius).any()
        for path, leaf in trees.paths(group):
            bounded = leaf * np.minimum(1, radius / norms).reshape(-1, *[1] * (leaf.ndim - 1))
            place = found if clipping == "flat" else found[[layer is group for layer in rows].index(True)]
            other = dict(trees.paths(place))[path]
            np.testing.assert_allclose(other, bounded.sum(axis=0), rtol=1e-4, atol=1e-5)


def test_no_row_moves_the_sum_by_more_than_the_radius() -> None:
    ops = NUMPY
    for clipping in ("flat", "per-layer"):
        made = task(f"privacy.clipping={clipping}")
        walk, (parameters, batch) = walk_of(made, ops), drawn(made)
        loud = on(ops, Batch(rows=batch.rows * 100, targets=batch.targets, mask=batch.mask))
        order = ops.xp.arange(150)
        sums = [walk.clipped_sum(parameters, loud, order, ops.xp.int32(count)) for count in (20, 21)]
        apart = [np.asarray(a) - np.asarray(b) for a, b in zip(*map(trees.leaves, sums), strict=True)]
        assert np.sqrt(sum(np.square(leaf).sum() for leaf in apart)) <= 0.5 * (1 + 1e-4)


@BOTH
def test_rows_are_taken_by_poisson_or_in_a_fixed_number_and_never_padding(ops: Ops) -> None:
    made = task()
    _, batch = drawn(made, 2000)
    walk = walk_of(made, ops)
    counts = []
    for number in range(40):
        order, count = walk.choose(batch, HashCoins(trial_seed(3, 0), number, ops))
        chosen = np.asarray(order)[: int(count)]
        assert len(set(chosen.tolist())) == int(count) and chosen.max() < 1993
        counts.append(int(count))
    # 40 sums of 1993 draws of 0.05: the mean is 99.65, its deviation 1.54; five deviations, one false alarm in 10⁶.
    assert abs(np.mean(counts) - 99.65) < 7.7
    assert 5 < np.std(counts) < 15  # √94.7 = 9.7
    fixed = walk_of(task(*FIXED), ops)
    order, count = fixed.choose(batch, HashCoins(trial_seed(3, 0), 1, ops))
    assert int(count) == 40 and np.asarray(order)[:40].max() < 1993


def test_noise_has_the_planned_size_in_every_step() -> None:
    ops = NUMPY
    made = task("model.regularisation=0.0")
    walk, (parameters, batch) = walk_of(made, ops), drawn(made)
    nobody = on(ops, Batch(rows=batch.rows, targets=batch.targets, mask=np.zeros(150, np.float32)))
    seeds = (HashCoins(trial_seed(5, 0), number, ops) for number in range(4))
    found = np.concatenate(
        [
            np.asarray(leaf).ravel()
            for coins in seeds
            for leaf in trees.leaves(walk.noisy_gradient(parameters, parameters, nobody, coins))
        ]
    )
    scale = walk.steps.noise / 40
    # About 2800 draws: the deviation is known to 1.4 %; five times that, one false alarm in 10⁶.
    assert np.std(found) == pytest.approx(scale, rel=0.07) and abs(found.mean()) < 5 * scale / np.sqrt(len(found))


def test_a_simulation_states_what_all_steps_cost() -> None:
    result = simulate(task())
    steps = result.privacy["steps"]
    assert (steps["count"], steps["sampling"], result.privacy["device"]) == (9, "poisson", None)
    assert result.privacy["paper_claim"] == {"epsilon": 8.0, "delta": 1e-5}
    assert 7.9 < result.privacy["sample"]["epsilon"] <= 8.0
    assert result.test_error < 0.9 and result.privacy["sample"]["by"] == "privacy loss distribution"


REFUSED = {
    "batch normalisation": (["model.norm=batch"], "mixes the rows"),
    "no steps": (["algorithm.local-steps=0"], "greater than 0"),
    "epochs": (["algorithm.epochs=2"], "counts steps"),
    "steps without noise": (["privacy={ mode = 'none' }"], "belong together"),
    "too few rows": ([*FIXED, "privacy.sampling-rate=0.01"], "rows"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_cannot_be_kept_is_refused(case: str) -> None:
    changes, words = REFUSED[case]
    with pytest.raises(BadInput, match=words):
        simulate(task(*changes))


def test_devices_refuse_noise_in_steps() -> None:
    with pytest.raises(BadInput, match="simulation only"):
        require_live(task())


def test_batch_normalisation_is_refused_for_gradients_of_rows_and_allowed_for_whole_changes() -> None:
    sound = ["privacy={ mode = 'sound', mechanism = 'gaussian', clip = 1.0, epsilon = 8.0, delta = 1e-5, %s }"]
    with pytest.raises(BadInput, match="mixes the rows"):
        task("model.norm=batch", "algorithm={ kind = 'fedsgd' }", sound[0] % "max-uses = 3")
    whole = task("model.norm=batch", "algorithm={ kind = 'fedavg' }", sound[0] % "unit = 'device'")
    assert whole.calibrated.terms.promised
