"""Losses by hand, at huge outputs, and what they predict."""

from __future__ import annotations

import math

import numpy as np
import pytest

from crowdml.core import NUMPY, BadInput, Ops
from crowdml.models.losses import LOSSES, TWO_CLASS_LOSSES, one_hot
from crowdml.simulation.jax_ops import JAX

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)


def outputs(*rows: tuple[float, ...]) -> np.ndarray:
    """Written one example to a row; the model has examples as columns."""
    return np.array(rows, np.float32).T


def labels(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


@BOTH
def test_one_hot(ops: Ops) -> None:
    found = one_hot(labels(2, 0), 3, ops)
    np.testing.assert_array_equal(found.T, [[0, 0, 1], [1, 0, 0]])
    assert found.dtype == np.float32


@BOTH
def test_softmax_by_hand(ops: Ops) -> None:
    loss = LOSSES["softmax"](2, ops)
    z = outputs((0.0, math.log(3.0)))
    np.testing.assert_allclose(loss.values(z, labels(0)), [math.log(4.0)], rtol=1e-6)
    np.testing.assert_allclose(loss.slope(z, labels(0)).T, [[-0.75, 0.75]], rtol=1e-6)
    np.testing.assert_allclose(loss.slope(z, labels(1)).T, [[0.25, -0.25]], rtol=1e-6)


@BOTH
def test_logistic_by_hand(ops: Ops) -> None:
    loss = LOSSES["logistic"](2, ops)
    z = outputs((math.log(3.0),), (math.log(3.0),))
    np.testing.assert_allclose(loss.values(z, labels(1, 0)), [math.log(4 / 3), math.log(4)], rtol=1e-6)
    np.testing.assert_allclose(loss.slope(z, labels(1, 0)).T, [[-0.25], [0.75]], rtol=1e-6)


@BOTH
def test_hinge_by_hand_and_at_its_corner(ops: Ops) -> None:
    loss = LOSSES["hinge"](2, ops)
    z = outputs((0.25,), (0.25,), (1.0,), (-1.0,))
    np.testing.assert_array_equal(loss.values(z, labels(1, 0, 1, 0)), [0.75, 1.25, 0.0, 0.0])
    np.testing.assert_array_equal(loss.slope(z, labels(1, 0, 1, 0)).T, [[-1.0], [1.0], [0.0], [0.0]])


@BOTH
def test_squared_by_hand(ops: Ops) -> None:
    loss = LOSSES["squared"](2, ops)
    np.testing.assert_array_equal(loss.values(outputs((3.0, -1.0)), labels(0)), [2.5])
    np.testing.assert_array_equal(loss.slope(outputs((3.0, -1.0)), labels(0)).T, [[2.0, -1.0]])


@BOTH
@pytest.mark.parametrize("size", [1e4, 1e30])
def test_huge_outputs_give_exact_answers_without_warnings(ops: Ops, size: float) -> None:
    wide = outputs((size, -size), (size, -size), (size, size))
    found = LOSSES["softmax"](2, ops)
    np.testing.assert_allclose(found.values(wide, labels(0, 1, 1)), [0.0, 2 * size, math.log(2)], rtol=1e-6)
    np.testing.assert_allclose(found.slope(wide, labels(0, 1, 1)).T, [[0.0, 0.0], [1.0, -1.0], [0.5, -0.5]], atol=1e-7)
    narrow = outputs((size,), (size,), (-size,))
    found = LOSSES["logistic"](2, ops)
    np.testing.assert_allclose(found.values(narrow, labels(1, 0, 1)), [0.0, size, size], rtol=1e-6)
    np.testing.assert_allclose(found.slope(narrow, labels(1, 0, 1)).T, [[0], [1], [-1]], atol=1e-7)
    found = LOSSES["hinge"](2, ops)
    np.testing.assert_allclose(found.values(narrow, labels(1, 0, 1)), [0.0, size + 1, size + 1], rtol=1e-6)
    np.testing.assert_allclose(found.slope(narrow, labels(1, 0, 1)).T, [[0], [1], [-1]], atol=1e-7)


@BOTH
def test_predictions(ops: Ops) -> None:
    for name in ("softmax", "squared"):
        found = LOSSES[name](3, ops).predict(outputs((0.0, 2.0, 1.0), (5.0, -1.0, 4.0)))
        np.testing.assert_array_equal(found, [1, 0])
    for name in ("logistic", "hinge"):
        np.testing.assert_array_equal(LOSSES[name](2, ops).predict(outputs((0.1,), (-0.1,), (0.0,))), [1, 0, 0])


@pytest.mark.parametrize("name", list(LOSSES))
@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_class_numbers_may_be_any_whole_numbers(name: str, dtype: type[np.generic]) -> None:
    loss = LOSSES[name](2, NUMPY)
    z = outputs((0.3, -0.2)[: loss.width], (0.3, -0.2)[: loss.width])
    np.testing.assert_array_equal(
        loss.slope(z, np.array([0, 1], dtype)), loss.slope(z, labels(0, 1)), err_msg=f"{name} of {dtype.__name__}"
    )


def test_the_two_class_losses_have_one_output() -> None:
    assert TWO_CLASS_LOSSES == {name for name in LOSSES if LOSSES[name](2, NUMPY).width == 1}


def test_an_unknown_loss() -> None:
    with pytest.raises(BadInput, match='did you mean "hinge"'):
        LOSSES["hing"]
