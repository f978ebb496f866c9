"""The mean of a window by hand: weights normalise, staleness damps, and alone nothing is carried."""

from typing import Any

import numpy as np
import pytest

from crowdml.algorithms.aggregation.mean import MeanWindow, staleness_factor
from crowdml.core import NUMPY, Ops
from crowdml.simulation.engine.jax_ops import JAX

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)


def tree(ops: Ops, *values: float) -> Any:
    return {"w": ops.xp.asarray(values, dtype="float32")}


@BOTH
def test_the_mean_is_over_weights(ops: Ops) -> None:
    mean_window = MeanWindow(stale="accept", alone=False, ops=ops)
    window = mean_window.empty(tree(ops, 0.0, 0.0))
    for update, weight in (((1.0, 4.0), 1), ((3.0, -8.0), 3)):
        weighted = tree(ops, *(weight * number for number in update))
        window = mean_window.add(window, weighted, ops.xp.int32(weight), ops.xp.int32(7))
    np.testing.assert_allclose(mean_window.mean(window, ())[0]["w"], [(1 + 9) / 4, (4 - 24) / 4])


@BOTH
def test_an_old_update_is_damped_and_not_made_up_for(ops: Ops) -> None:
    mean_window = MeanWindow(stale="weight", alone=False, ops=ops)
    window = mean_window.empty(tree(ops, 0.0))
    window = mean_window.add(window, tree(ops, 2.0), ops.xp.int32(1), ops.xp.int32(0))
    window = mean_window.add(window, tree(ops, 8.0), ops.xp.int32(1), ops.xp.int32(3))
    np.testing.assert_allclose(mean_window.mean(window, ())[0]["w"], [(2 + 8 / 2) / 2])


@BOTH
def test_alone_equals_a_window_of_one_and_carries_nothing(ops: Ops) -> None:
    alone, window = (MeanWindow(stale="weight", alone=alone, ops=ops) for alone in (True, False))
    assert alone.empty(tree(ops, 0.0)) == ()
    one, age = ops.xp.int32(1), ops.xp.int32(8)
    found = alone.mean(alone.add((), tree(ops, 3.0), one, age), ())[0]
    other = window.mean(window.add(window.empty(tree(ops, 0.0)), tree(ops, 3.0), one, age), ())[0]
    np.testing.assert_allclose(found["w"], other["w"])
    np.testing.assert_allclose(found["w"], [1.0])


def test_the_sum_of_two_check_ins_is_absorbed_like_both() -> None:
    mean_window = MeanWindow(stale="accept", alone=False, ops=NUMPY)
    empty, age = mean_window.empty(tree(NUMPY, 0.0)), np.int32(0)
    apart = mean_window.add(mean_window.add(empty, tree(NUMPY, 2.0), 2, age), tree(NUMPY, 12.0), 3, age)
    summed = mean_window.add(empty, tree(NUMPY, 14.0), 5, age)
    assert mean_window.mean(apart, ())[0]["w"] == mean_window.mean(summed, ())[0]["w"] == pytest.approx(2.8)


def test_nothing_absorbed_is_no_update() -> None:
    mean_window = MeanWindow(stale="accept", alone=False, ops=NUMPY)
    assert mean_window.mean(mean_window.empty(tree(NUMPY, 5.0)), ())[0]["w"] == 0.0


@BOTH
@pytest.mark.parametrize("staleness", [0, 1, 3, 99])
def test_old_check_ins_are_damped_by_the_root_of_their_age(staleness: int, ops: Ops) -> None:
    for given in (staleness, ops.xp.int32(staleness)):
        found = staleness_factor("weight", given, ops)
        assert float(found) == pytest.approx((1 + staleness) ** -0.5, rel=1e-6)
        assert found.dtype == np.float32
        assert float(staleness_factor("accept", given, ops)) == float(staleness_factor("drop", given, ops)) == 1.0
