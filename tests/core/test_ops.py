"""Ops: both namespaces mean the same by the same name."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.core import NUMPY, Ops
from crowdml.core.ops import Tree
from crowdml.simulation.engine.jax_ops import JAX

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)


@BOTH
def test_dot_t_and_t_dot(ops: Ops) -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    b = np.arange(12, dtype=np.float32).reshape(4, 3)
    c = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(ops.dot_t(a, b), [[5, 14, 23, 32], [14, 50, 86, 122]])
    np.testing.assert_array_equal(ops.dot(a, b.T), [[5, 14, 23, 32], [14, 50, 86, 122]])
    np.testing.assert_array_equal(ops.t_dot(a, c), [[12, 15, 18, 21], [16, 21, 26, 31], [20, 27, 34, 41]])


@BOTH
def test_sum_of_squares_is_over_all_axes(ops: Ops) -> None:
    found = ops.sum_of_squares(ops.xp.asarray([[1.0, -2.0], [3.0, 0.5]], dtype="float32"))
    assert float(found) == 14.25 and found.shape == () and found.dtype == np.float32


@BOTH
def test_bits_reads_the_same_bits_as_another_type(ops: Ops) -> None:
    words = ops.bits(ops.xp.asarray([1.0, -0.0, -2.0], dtype="float32"), ops.xp.uint32)
    np.testing.assert_array_equal(words, np.array([0x3F800000, 0x80000000, 0xC0000000], np.uint32))
    np.testing.assert_array_equal(ops.bits(words, ops.xp.float32), [1.0, -0.0, -2.0])


@BOTH
def test_fold_goes_through_the_first_axis_in_order(ops: Ops) -> None:
    xs = {"times": ops.xp.asarray([2.0, 3.0, 5.0]), "plus": (ops.xp.asarray([1.0, 0.0, 7.0]),)}

    def step(carry: Tree, x: Tree) -> Tree:
        return {"value": carry["value"] * x["times"] + x["plus"][0]}

    assert float(ops.fold(step, {"value": ops.xp.asarray(1.0)}, xs)["value"]) == ((1 * 2 + 1) * 3 + 0) * 5 + 7


@BOTH
def test_fold_over_nothing_returns_the_carry(ops: Ops) -> None:
    assert float(ops.fold(lambda carry, x: carry + x, ops.xp.asarray(4.0), ops.xp.zeros((0,)))) == 4.0


@BOTH
def test_a_product_of_what_is_not_finite_is_not_a_number_and_raises_no_alarm(ops: Ops) -> None:
    endless = ops.xp.asarray([[np.inf]], np.float32)
    assert np.isnan(ops.dot(endless, ops.xp.zeros((1, 1), np.float32))).all()
