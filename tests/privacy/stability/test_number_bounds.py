"""What a promise about a number rests on: one row's share in counts, gradients and steps, whatever the rows say."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdml.algorithms.device_parts.gradient import Counting
from crowdml.core import NUMPY, Batch, Labels, Number, ZeroCoins, trees
from crowdml.privacy.noise.grid import sample_sensitivity
from crowdml.task import Task, parse
from tests.support.phases import stepped
from tests.support.plans import update_of
from tests.support.stable import Given, integers, started

HEAT = Number(low=10.0, high=30.0, bins=4)
WILD = st.one_of(st.floats(width=32), st.sampled_from([-1.0, 1.0, 0.0, math.nan, math.inf, -math.inf]))
SOURCE = """
crowdml = 1
name = "number"
[data]
features = 3
target = { name = "heat", low = 10.0, high = 30.0 }
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "linear"
loss = "huber"
[algorithm]
kind = "crowd-sgd"
batch = 4
[privacy]
mechanism = "gaussian"
epsilon = 4.0
delta = 1e-5
clip = 1.0
max-uses = 1
statistics-epsilon = 1.0
"""


class Fixed(ZeroCoins):
    """The same draws on both sides: a coin belongs to a place in the batch, not to what stands there."""

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Any:
        return np.random.default_rng([7, *stage.encode()]).random(shape).astype(np.float32)


def counts(targets: list[float], predicted: list[float]) -> Any:
    mask = np.ones(len(targets), np.float32)
    clean = HEAT.clean(np.array(targets, np.float32), NUMPY)
    batch = Batch(rows=np.zeros((len(targets), 1), np.float32), targets=clean, mask=mask)
    return Counting(target=HEAT, ops=NUMPY).count(batch, np.array(predicted, np.float32), mask, Fixed())


@given(st.lists(st.tuples(WILD, WILD), min_size=1, max_size=6), st.tuples(WILD, WILD))
def test_one_row_changes_the_errors_by_one_and_the_spread_by_two(
    rows: list[tuple[float, float]], other: tuple[float, float]
) -> None:
    """Whatever stands in the row, and whatever the model says of it."""
    one = counts(*map(list, zip(*rows, strict=True)))
    two = counts(*map(list, zip(*[*rows[:-1], other], strict=True)))
    assert one.rows == two.rows and one.counted == two.counted
    assert abs(int(one.errors) - int(two.errors)) <= 1
    assert np.abs(one.spread - two.spread).sum() <= 2 and one.spread.sum() == len(rows)


def test_the_worst_neighbours_reach_both_bounds() -> None:
    one, two = counts([0.0, -1.0], [0.0, -1.0]), counts([0.0, 1.0], [0.0, -1.0])
    assert int(two.errors) - int(one.errors) == 1 and np.abs(one.spread - two.spread).sum() == 2


def test_counts_of_a_number_cost_what_counts_of_labels_cost() -> None:
    number = parse(SOURCE).calibrated
    labels = parse(
        SOURCE.replace('target = { name = "heat", low = 10.0, high = 30.0 }', 'labels = ["a", "b"]').replace(
            'kind = "linear"\nloss = "huber"', 'kind = "huber"\nbias = true'
        )
    ).calibrated
    assert number.last.counts == labels.last.counts and number.last.counts is not None
    assert isinstance(HEAT, Number) and Labels(names=("a", "b")).outside([1]) == 0


@pytest.mark.parametrize(("loss", "delta"), [("huber", 0.25), ("huber", 2.0), ("squared", 1.0)])
def test_no_row_moves_a_message_beyond_the_clip(loss: str, delta: float) -> None:
    """Parameters that have run away, targets that are none: on the grid every row stays within its bound."""
    task = parse(SOURCE, changes=[f"model.loss={loss}", f"model.delta={delta}", "algorithm.batch=1"])
    algorithm, update = task.build(NUMPY), update_of(task.calibrated)
    longest = 0.0
    for weight, target, row in itertools.product(
        (0.0, 3.0, -1e6, 1e30), (-1.0, 1.0, 5.0, math.nan, -math.inf), ([1.0, 0, 0], [0.5, 0.5, 0.5], [0, 0, 0])
    ):
        at = ({"b": np.array([weight], np.float32), "w": np.full((1, 3), weight, np.float32)},)
        batch = Batch(
            rows=np.array([row], np.float32), targets=np.array([target], np.float32), mask=np.ones(1, np.float32)
        )
        with np.errstate(all="ignore"):
            release, _ = stepped(algorithm.last, started(algorithm, at), batch, Given(3, fine=False))
        levels = np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in trees.leaves(release.update)])
        longest = max(longest, float(np.linalg.norm(levels)))
    assert 0 < longest**2 <= update.grid.limit


@pytest.mark.parametrize("delta", [0.1, 1.0, 2.0])
def test_hubers_gradient_has_a_bound_of_its_own(delta: float) -> None:
    model = parse(SOURCE, changes=[f"model.delta={delta}"]).model_for(NUMPY)
    assert model.loss.slope_bound == pytest.approx({1: delta, 2: delta})
    outputs = np.array([[-1e30, -3.0, 0.0, 3.0, 1e30]], np.float32)
    for target in (-1.0, 0.3, 1.0):
        slopes = model.loss.slope(outputs, np.full(5, target, np.float32))
        assert np.abs(slopes).max() <= np.float32(delta)
    assert parse(SOURCE, changes=["model.loss=squared"]).model_for(NUMPY).loss.slope_bound is None


def steps(*changes: str) -> Task:
    rate = "rate = { kind = 'constant', c = 0.5 }"
    local = f"algorithm={{ kind = 'local-sgd', local-steps = 2, local-batch = 2, {rate} }}"
    return parse(SOURCE.replace("statistics-epsilon = 1.0\n", ""), changes=[local, "privacy.clip=10.0", *changes])


def test_steps_with_hubers_loss_are_stable_and_with_squares_are_not() -> None:
    stable = update_of(steps().calibrated).stable
    assert stable is not None
    # Two neighbours, a slope of at most 1, a row with its constant of √(1 + 1), rate over rows of a step 0.5/2.
    assert stable.bound == pytest.approx(2 * math.sqrt(2) * 0.5 / 2, rel=0.02)
    assert update_of(steps("model.loss=squared").calibrated).stable is None


def test_the_worst_neighbours_of_a_number_stay_within_the_proof() -> None:
    task = steps()
    algorithm, update, worst = task.build(NUMPY), update_of(task.calibrated), 0.0
    assert update.stable is not None
    generator = np.random.default_rng(1)
    for _ in range(200):
        long = 10.0 ** generator.uniform(-2, 2)
        at = (
            {
                "b": np.float32(long) * generator.standard_normal(1).astype(np.float32),
                "w": np.float32(long) * generator.standard_normal((1, 3)).astype(np.float32),
            },
        )
        rows = generator.standard_normal((4, 3))
        rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        targets = generator.choice([-1.0, 1.0, 0.0], 4).astype(np.float32)
        other_rows, other_targets = rows.copy(), targets.copy()
        changed = generator.integers(4)
        other_rows[changed], other_targets[changed] = -rows[changed], generator.choice([-9.0, 9.0])
        sent = []
        for given_rows, given_targets in ((rows, targets), (other_rows, other_targets)):
            batch = Batch(rows=given_rows, targets=given_targets, mask=np.ones(4, np.float32))
            sent.append(integers(algorithm, started(algorithm, at), batch, Given(2, fine=False)))
        worst = max(worst, float(np.linalg.norm(sent[0] - sent[1])))
    assert 0 < worst <= sample_sensitivity(update.grid, update.stable)
