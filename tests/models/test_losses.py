"""Losses by hand, at huge outputs, and what they predict."""

from __future__ import annotations

import math

import numpy as np
import pytest

from crowdml.core import NUMPY, BadInput, Number, Ops
from crowdml.models.losses import LOSSES, huber, one_hot
from crowdml.simulation.engine.jax_ops import JAX
from tests.support.targets import some_labels

# isort: split
import jax

NUMBER = Number(low=0.0, high=10.0)
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
    loss = LOSSES["softmax"](some_labels(2), ops)
    z = outputs((0.0, math.log(3.0)))
    np.testing.assert_allclose(loss.values(z, labels(0)), [math.log(4.0)], rtol=1e-6)
    np.testing.assert_allclose(loss.slope(z, labels(0)).T, [[-0.75, 0.75]], rtol=1e-6)
    np.testing.assert_allclose(loss.slope(z, labels(1)).T, [[0.25, -0.25]], rtol=1e-6)


@BOTH
def test_logistic_by_hand(ops: Ops) -> None:
    loss = LOSSES["logistic"](some_labels(2), ops)
    z = outputs((math.log(3.0),), (math.log(3.0),))
    np.testing.assert_allclose(loss.values(z, labels(1, 0)), [math.log(4 / 3), math.log(4)], rtol=1e-6)
    np.testing.assert_allclose(loss.slope(z, labels(1, 0)).T, [[-0.25], [0.75]], rtol=1e-6)


@BOTH
def test_hinge_by_hand_and_at_its_corner(ops: Ops) -> None:
    loss = LOSSES["hinge"](some_labels(2), ops)
    z = outputs((0.25,), (0.25,), (1.0,), (-1.0,))
    np.testing.assert_array_equal(loss.values(z, labels(1, 0, 1, 0)), [0.75, 1.25, 0.0, 0.0])
    np.testing.assert_array_equal(loss.slope(z, labels(1, 0, 1, 0)).T, [[-1.0], [1.0], [0.0], [0.0]])


@BOTH
def test_squared_by_hand(ops: Ops) -> None:
    loss = LOSSES["squared"](some_labels(2), ops)
    np.testing.assert_array_equal(loss.values(outputs((3.0, -1.0)), labels(0)), [2.5])
    np.testing.assert_array_equal(loss.slope(outputs((3.0, -1.0)), labels(0)).T, [[2.0, -1.0]])


@BOTH
@pytest.mark.parametrize("size", [1e4, 1e30])
def test_huge_outputs_give_exact_answers_without_warnings(ops: Ops, size: float) -> None:
    wide = outputs((size, -size), (size, -size), (size, size))
    found = LOSSES["softmax"](some_labels(2), ops)
    np.testing.assert_allclose(found.values(wide, labels(0, 1, 1)), [0.0, 2 * size, math.log(2)], rtol=1e-6)
    np.testing.assert_allclose(found.slope(wide, labels(0, 1, 1)).T, [[0.0, 0.0], [1.0, -1.0], [0.5, -0.5]], atol=1e-7)
    narrow = outputs((size,), (size,), (-size,))
    found = LOSSES["logistic"](some_labels(2), ops)
    np.testing.assert_allclose(found.values(narrow, labels(1, 0, 1)), [0.0, size, size], rtol=1e-6)
    np.testing.assert_allclose(found.slope(narrow, labels(1, 0, 1)).T, [[0], [1], [-1]], atol=1e-7)
    found = LOSSES["hinge"](some_labels(2), ops)
    np.testing.assert_allclose(found.values(narrow, labels(1, 0, 1)), [0.0, size + 1, size + 1], rtol=1e-6)
    np.testing.assert_allclose(found.slope(narrow, labels(1, 0, 1)).T, [[0], [1], [-1]], atol=1e-7)


@BOTH
def test_predictions(ops: Ops) -> None:
    for name in ("softmax", "squared"):
        found = LOSSES[name](some_labels(3), ops).predict(outputs((0.0, 2.0, 1.0), (5.0, -1.0, 4.0)))
        np.testing.assert_array_equal(found, [1, 0])
    for name in ("logistic", "hinge"):
        np.testing.assert_array_equal(
            LOSSES[name](some_labels(2), ops).predict(outputs((0.1,), (-0.1,), (0.0,))), [1, 0, 0]
        )


@pytest.mark.parametrize("name", list(LOSSES))
@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_class_numbers_may_be_any_whole_numbers(name: str, dtype: type[np.generic]) -> None:
    loss = LOSSES[name](some_labels(2), NUMPY)
    z = outputs((0.3, -0.2)[: loss.width], (0.3, -0.2)[: loss.width])
    np.testing.assert_array_equal(
        loss.slope(z, np.array([0, 1], dtype)), loss.slope(z, labels(0, 1)), err_msg=f"{name} of {dtype.__name__}"
    )


def test_losses_of_two_labels_have_one_output_and_refuse_more_labels() -> None:
    assert {name for name in LOSSES if LOSSES[name](some_labels(2), NUMPY).width == 1} == {"logistic", "hinge", "huber"}
    for name in ("logistic", "hinge", "huber"):
        with pytest.raises(BadInput, match="separates two labels, the task has 3"):
            LOSSES[name](some_labels(3), NUMPY)


@pytest.mark.parametrize("name", ["softmax", "logistic", "hinge"])
def test_losses_of_labels_refuse_a_number(name: str) -> None:
    with pytest.raises(BadInput, match="the target of the task is a number") as caught:
        LOSSES[name](NUMBER, NUMPY)
    assert caught.value.where == "model.kind" and 'kind = "linear"' in caught.value.hint


@BOTH
def test_squares_of_a_number_by_hand(ops: Ops) -> None:
    loss = LOSSES["squared"](NUMBER, ops)
    z, y = outputs((0.5,), (-3.0,)), np.array([1.0, -1.0], np.float32)
    np.testing.assert_array_equal(loss.values(z, y), [0.125, 2.0])
    np.testing.assert_array_equal(loss.slope(z, y), [[-0.5, -2.0]])
    np.testing.assert_array_equal(loss.predict(z), [0.5, -1.0])
    assert loss.width == 1 and loss.slope_bound is None and loss.curvature == 1.0 and not loss.by_sign


@BOTH
@pytest.mark.parametrize("delta", [0.5, 1.0, 2.0])
def test_huber_of_a_number_by_hand(ops: Ops, delta: float) -> None:
    loss = huber(NUMBER, ops, delta)
    z, y = outputs((0.25,), (-3.0,)), np.array([0.5, 1.0], np.float32)
    np.testing.assert_allclose(loss.values(z, y), [0.25**2 / 2, delta * (4 - delta / 2)], rtol=1e-6)
    np.testing.assert_allclose(loss.slope(z, y), [[-0.25, -delta]], rtol=1e-6)
    np.testing.assert_array_equal(loss.predict(z), [0.25, -1.0])
    assert loss.slope_bound == {1: delta, 2: delta} and not loss.by_sign


def test_huber_with_two_is_the_square_for_every_output_in_range() -> None:
    z, y = np.random.default_rng(0).uniform(-1, 1, (2, 1000)).astype(np.float32)
    square, bounded = LOSSES["squared"](NUMBER, NUMPY), huber(NUMBER, NUMPY, 2.0)
    np.testing.assert_array_equal(square.values(z[None], y), bounded.values(z[None], y))
    np.testing.assert_array_equal(square.slope(z[None], y), bounded.slope(z[None], y))


@pytest.mark.parametrize("delta", [1e-3, 0.1, 0.3, 0.5, 1.0, 2.0])
def test_the_slope_of_huber_keeps_its_bound_and_reaches_it(delta: float) -> None:
    """Huge, infinite and subnormal outputs included; and no two slopes are farther apart than their outputs."""
    loss = huber(NUMBER, NUMPY, delta)
    z = np.concatenate([np.linspace(-5, 5, 1001), [3e38, -3e38, np.inf, -np.inf, 1e-45, 0.0]]).astype(np.float32)
    for y in (-1.0, 0.0, 0.3, 1.0):
        slopes = loss.slope(z[None], np.full(len(z), y, np.float32))[0]
        assert np.abs(slopes).max() == np.float32(delta)
        assert loss.slope_bound is not None and loss.slope_bound[2] >= max(float(np.abs(slopes).max()), delta)
        apart = np.abs(np.diff(slopes[:1001].astype(np.float64)))
        assert apart.max() <= np.diff(z[:1001].astype(np.float64)).max() * (1 + 1e-6)
        assert loss.bend is not None and (loss.bend(z[None], slopes) == 1).all()


@pytest.mark.parametrize("name", ["squared", "huber"])
def test_the_slopes_of_numbers_are_those_of_their_values(name: str) -> None:
    loss, random = LOSSES[name](NUMBER, JAX), np.random.default_rng(1)
    z, y = (3 * random.normal(size=(1, 64))).astype(np.float32), random.uniform(-1, 1, 64).astype(np.float32)
    oracle = jax.grad(lambda outputs: loss.values(outputs, y).sum())(z)
    np.testing.assert_allclose(loss.slope(z, y), oracle, rtol=1e-6, atol=1e-6)


def test_an_unknown_loss() -> None:
    with pytest.raises(BadInput, match='did you mean "hinge"'):
        LOSSES["hing"]
