"""Losses at the top of a model: logistic, softmax, hinge, Huber's and sum of squares.

Each knows its value, its slope with respect to the model's outputs, how outputs become a label, and a bound on the
slope's norm where one exists: that bound is where sensitivity comes from when nothing is clipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from crowdml.core import Array, Ops, Registry, record


@record
class Loss:
    """A loss over `outputs` of shape (width, size) and class numbers of shape (size,).

    Attributes:
        width: Number of outputs the model needs.
        values: `values(outputs, labels)`, shape (size,).
        slope: `slope(outputs, labels)`, shape (width, size).
        predict: `predict(outputs)`, class numbers of shape (size,).
        by_sign: Whether `predict` asks for the sign of the one output, instead of the largest of several.
        slope_bound: Largest L1 and L2 norm of one example's slope, None where there is none.
        curvature: Largest eigenvalue of the Hessian over the outputs, where the loss is convex; None where it has none.
        bend: `bend(outputs, labels)`, shape (size,): for each example a number b such that b times the identity is the
            Hessian over the outputs, or bounds it from above everywhere; None where there is no such number.
    """

    width: int
    values: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array], Array]
    predict: Callable[[Array], Array]
    slope_bound: dict[int, float] | None
    by_sign: bool = False
    curvature: float | None = None
    bend: Callable[[Array, Array], Array] | None = None


def one_hot(labels: Array, classes: int, ops: Ops) -> Array:
    """Class numbers as columns with a single one, by comparison (a gather is slower in compiled code)."""
    return (ops.xp.arange(classes)[:, None] == labels).astype(ops.xp.float32)


def softmax(classes: int, ops: Ops) -> Loss:
    """Cross-entropy of the softmax (multi-class logistic regression, Crowd-ML 2015, Table I).

    The slope p - e_y has L1 norm 2 (1 - p_y) and L2 norm at most √2. The Hessian diag(p) - pp' is the covariance of a
    one-hot vector: in a direction u its value is a variance of the numbers u_k, at most (max u - min u)²/4 ≤ ½‖u‖².
    """
    xp = ops.xp

    def shifted(outputs: Array) -> Array:
        return outputs - xp.max(outputs, axis=0)

    def values(outputs: Array, labels: Array) -> Array:
        z = shifted(outputs)
        return xp.log(xp.sum(xp.exp(z), axis=0)) - xp.sum(z * one_hot(labels, classes, ops), axis=0)

    def slope(outputs: Array, labels: Array) -> Array:
        grown = xp.exp(shifted(outputs))
        return grown / xp.sum(grown, axis=0) - one_hot(labels, classes, ops)

    return Loss(
        width=classes,
        values=values,
        slope=slope,
        predict=lambda outputs: xp.argmax(outputs, axis=0),
        slope_bound={1: 2.0, 2: math.sqrt(2.0)},
        curvature=0.5,
        bend=lambda outputs, labels: xp.full(outputs.shape[1:], 0.5, dtype=xp.float32),
    )


def _signs(labels: Array, ops: Ops) -> Array:
    # First to float: unsigned class numbers would wrap around.
    return (2 * labels.astype(ops.xp.float32) - 1)[None]


def logistic(classes: int, ops: Ops) -> Loss:
    """log(1 + exp(-y z)) for two classes, y = ±1."""
    xp = ops.xp

    def slope(outputs: Array, labels: Array) -> Array:
        y = _signs(labels, ops)
        return -y * 0.5 * (1 - xp.tanh(0.5 * y * outputs))

    return Loss(
        width=1,
        values=lambda outputs, labels: xp.logaddexp(xp.float32(0), -_signs(labels, ops) * outputs)[0],
        slope=slope,
        predict=lambda outputs: (outputs[0] > 0).astype(xp.int32),
        slope_bound={1: 1.0, 2: 1.0},
        by_sign=True,
        curvature=0.25,
        bend=lambda outputs, labels: 0.25 * (1 - xp.tanh(0.5 * outputs[0]) ** 2),
    )


def hinge(classes: int, ops: Ops) -> Loss:
    """max(0, 1 - y z) for two classes: the soft-margin support vector machine; the slope at the corner is 0."""
    xp = ops.xp

    def slope(outputs: Array, labels: Array) -> Array:
        y = _signs(labels, ops)
        return xp.where(y * outputs < 1, -y, xp.zeros_like(y))

    return Loss(
        width=1,
        values=lambda outputs, labels: xp.maximum(0, 1 - _signs(labels, ops) * outputs)[0],
        slope=slope,
        predict=lambda outputs: (outputs[0] > 0).astype(xp.int32),
        slope_bound={1: 1.0, 2: 1.0},
        by_sign=True,
    )


def huber(classes: int, ops: Ops) -> Loss:
    """½ r² for |r| ≤ 1 and |r| - ½ beyond, where r = z - y, y = ±1: least squares with a bounded slope (Huber 1964)."""
    xp = ops.xp

    def values(outputs: Array, labels: Array) -> Array:
        residual = xp.abs(outputs - _signs(labels, ops))[0]
        return xp.where(residual <= 1, 0.5 * residual * residual, residual - xp.float32(0.5))

    return Loss(
        width=1,
        values=values,
        slope=lambda outputs, labels: xp.clip(outputs - _signs(labels, ops), -1.0, 1.0),
        predict=lambda outputs: (outputs[0] > 0).astype(xp.int32),
        slope_bound={1: 1.0, 2: 1.0},
        by_sign=True,
        curvature=1.0,
        # The bound 1 instead of the second derivative, which is 0 or 1: steps then never overshoot.
        bend=lambda outputs, labels: xp.ones(outputs.shape[1:], dtype=xp.float32),
    )


def squared(classes: int, ops: Ops) -> Loss:
    """½ Σ (z - e_y)²: sum-squared error against the one-hot label; its slope has no bound."""
    xp = ops.xp

    def values(outputs: Array, labels: Array) -> Array:
        residual = outputs - one_hot(labels, classes, ops)
        return 0.5 * xp.sum(residual * residual, axis=0)

    return Loss(
        width=classes,
        values=values,
        slope=lambda outputs, labels: outputs - one_hot(labels, classes, ops),
        predict=lambda outputs: xp.argmax(outputs, axis=0),
        slope_bound=None,
    )


LOSSES: Registry[Callable[[int, Ops], Loss]] = Registry(
    "loss",
    {"softmax": softmax, "logistic": logistic, "hinge": hinge, "huber": huber, "squared": squared},
)
TWO_CLASS_LOSSES = frozenset({"logistic", "hinge", "huber"})
