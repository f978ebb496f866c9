"""Losses at the top of a model, for labels and for numbers.

Each knows its value, its slope with respect to the model's outputs, how outputs become a prediction, and a bound on the
slope's norm where one exists: that bound is where sensitivity comes from when nothing is clipped.

| loss | for | slope over the outputs | largest L1, L2 norm | curvature |
|---|---|---|---|---|
| `softmax` | labels | p - e_y | 2, √2 | ½ |
| `logistic` | two labels, y = ±1 | -y (1 - tanh(yz/2))/2 | 1, 1 | ¼ |
| `hinge` | two labels, y = ±1 | -y where yz < 1 | 1, 1 | none: it has a corner |
| `huber` | two labels as ±1, or a number | z - y, no longer than δ | δ, δ | 1 |
| `squared` | labels as e_y, or a number | z - y | none | 1 for a number |

A number is encoded between -1 and 1 (`crowdml.core.targets`), and so is what is predicted: outputs beyond count as the
bound. The slope is that of the output as it is, so a model that has run away comes back. Therefore squares have no
bound on the slope, and a task that promises privacy must clip gradients (`privacy.clip`). Huber's loss needs no clip
where rows are bounded: with δ = 2 it is the square for every output between -1 and 1, with the slope bound 2. Its
curvature, like that of the square, is at most 1, which is what proofs of stable local steps ask for.

A new loss is a function of the target and the ops, and a line in `LOSSES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from crowdml.core import Array, BadInput, Float, Labels, Num, Number, Ops, Registry, Target, record
from crowdml.core.targets import one_hot as one_hot


@record
class Loss:
    """A loss over `outputs` of shape (width, size) and encoded targets of shape (size,).

    Attributes:
        target: What is predicted: says how targets are encoded, and how predictions are decoded.
        width: Number of outputs the model needs.
        values: `values(outputs, targets)`, shape (size,).
        slope: `slope(outputs, targets)`, shape (width, size).
        predict: `predict(outputs)`, shape (size,): class numbers, or encoded numbers from -1 to 1.
        by_sign: Whether `predict` asks for the sign of the one output, instead of the largest of several.
        slope_bound: Largest L1 and L2 norm of one example's slope, None where there is none.
        curvature: Largest eigenvalue of the Hessian over the outputs, where the loss is convex; None where it has none.
        bend: `bend(outputs, targets)`, shape (size,): for each example a number b such that b times the identity is the
            Hessian over the outputs, or bounds it from above everywhere; None where there is no such number.
    """

    target: Target
    width: int
    values: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array], Array]
    predict: Callable[[Array], Array]
    slope_bound: dict[int, float] | None
    by_sign: bool = False
    curvature: float | None = None
    bend: Callable[[Array, Array], Array] | None = None


def _classes(target: Target) -> int:
    """Return the number of labels, or refuse a number."""
    if isinstance(target, Number):
        raise BadInput(
            "this loss tells labels apart, and the target of the task is a number",
            where="model.kind",
            hint='use kind = "linear", or kind = "mlp" with top = "squared"',
        )
    return target.bins


def _require_two_labels(target: Target) -> None:
    classes = _classes(target)
    if classes != 2:
        raise BadInput(
            f"this model separates two labels, the task has {classes}", where="model.kind", hint='use kind = "softmax"'
        )


def _signs(labels: Array, ops: Ops) -> Array:
    # First to float: unsigned class numbers would wrap around.
    return (2 * labels.astype(ops.xp.float32) - 1)[None]


def softmax(target: Target, ops: Ops) -> Loss:
    """Cross-entropy of the softmax (multi-class logistic regression, Crowd-ML 2015, Table I).

    The slope p - e_y has L1 norm 2 (1 - p_y) and L2 norm at most √2. The Hessian diag(p) - pp' is the covariance of a
    one-hot vector: in a direction u its value is a variance of the numbers u_k, at most (max u - min u)²/4 ≤ ½‖u‖².
    """
    xp, classes = ops.xp, _classes(target)

    def shifted(outputs: Array) -> Array:
        return outputs - xp.max(outputs, axis=0)

    def values(outputs: Float[Array, "width size"], labels: Num[Array, " size"]) -> Float[Array, " size"]:
        z = shifted(outputs)
        return xp.log(xp.sum(xp.exp(z), axis=0)) - xp.sum(z * one_hot(labels, classes, ops), axis=0)

    def slope(outputs: Float[Array, "width size"], labels: Num[Array, " size"]) -> Float[Array, "width size"]:
        grown = xp.exp(shifted(outputs))
        return grown / xp.sum(grown, axis=0) - one_hot(labels, classes, ops)

    return Loss(
        target=target,
        width=classes,
        values=values,
        slope=slope,
        predict=lambda outputs: xp.argmax(outputs, axis=0),
        slope_bound={1: 2.0, 2: math.sqrt(2.0)},
        curvature=0.5,
        bend=lambda outputs, labels: xp.full(outputs.shape[1:], 0.5, dtype=xp.float32),
    )


def logistic(target: Target, ops: Ops) -> Loss:
    """log(1 + exp(-y z)) for two labels, y = ±1."""
    _require_two_labels(target)
    xp = ops.xp

    def slope(outputs: Float[Array, "width size"], labels: Num[Array, " size"]) -> Float[Array, "width size"]:
        y = _signs(labels, ops)
        return -y * 0.5 * (1 - xp.tanh(0.5 * y * outputs))

    return Loss(
        target=target,
        width=1,
        values=lambda outputs, labels: xp.logaddexp(xp.float32(0), -_signs(labels, ops) * outputs)[0],
        slope=slope,
        predict=lambda outputs: (outputs[0] > 0).astype(xp.int32),
        slope_bound={1: 1.0, 2: 1.0},
        by_sign=True,
        curvature=0.25,
        bend=lambda outputs, labels: 0.25 * (1 - xp.tanh(0.5 * outputs[0]) ** 2),
    )


def hinge(target: Target, ops: Ops) -> Loss:
    """max(0, 1 - y z) for two labels: the soft-margin support vector machine; the slope at the corner is 0."""
    _require_two_labels(target)
    xp = ops.xp

    def slope(outputs: Float[Array, "width size"], labels: Num[Array, " size"]) -> Float[Array, "width size"]:
        y = _signs(labels, ops)
        return xp.where(y * outputs < 1, -y, xp.zeros_like(y))

    return Loss(
        target=target,
        width=1,
        values=lambda outputs, labels: xp.maximum(0, 1 - _signs(labels, ops) * outputs)[0],
        slope=slope,
        predict=lambda outputs: (outputs[0] > 0).astype(xp.int32),
        slope_bound={1: 1.0, 2: 1.0},
        by_sign=True,
    )


def huber(target: Target, ops: Ops, delta: float = 1.0) -> Loss:
    """½ r² for |r| ≤ δ and δ (|r| - δ/2) beyond, where r = z - y: least squares with a bounded slope (Huber 1964).

    Args:
        target: A number, y from -1 to 1; or two labels, y = ±1.
        ops: Array operations.
        delta: δ, from which on residuals count linearly: the bound on the slope.
    """
    xp = ops.xp
    wanted, predict = _on_a_line(target, ops)
    # The nearest float32 may be the larger one.
    steepest = max(delta, float(np.float32(delta)))

    def values(outputs: Float[Array, "width size"], targets: Num[Array, " size"]) -> Float[Array, " size"]:
        residual = xp.abs(outputs - wanted(targets))[0]
        return xp.where(residual <= delta, 0.5 * residual * residual, delta * (residual - xp.float32(delta / 2)))

    return Loss(
        target=target,
        width=1,
        values=values,
        slope=lambda outputs, targets: xp.clip(outputs - wanted(targets), -delta, delta),
        predict=predict,
        slope_bound={1: steepest, 2: steepest},
        by_sign=isinstance(target, Labels),
        curvature=1.0,
        # The bound 1 instead of the second derivative, which is 0 or 1: steps then never overshoot.
        bend=_bends_by_one(ops),
    )


def squared(target: Target, ops: Ops) -> Loss:
    """½ Σ (z - y)², where y is the encoded number, or the one-hot label; its slope has no bound."""
    xp, is_number = ops.xp, isinstance(target, Number)
    wanted, predict = (_on_a_line if is_number else _by_one_hot)(target, ops)

    def values(outputs: Float[Array, "width size"], targets: Num[Array, " size"]) -> Float[Array, " size"]:
        residual = outputs - wanted(targets)
        return 0.5 * xp.sum(residual * residual, axis=0)

    return Loss(
        target=target,
        width=1 if is_number else target.bins,
        values=values,
        slope=lambda outputs, targets: outputs - wanted(targets),
        predict=predict,
        slope_bound=None,
        curvature=1.0 if is_number else None,
        bend=_bends_by_one(ops) if is_number else None,
    )


def _bends_by_one(ops: Ops) -> Callable[[Array, Array], Array]:
    return lambda outputs, targets: ops.xp.ones(outputs.shape[1:], dtype=ops.xp.float32)


def _by_one_hot(target: Target, ops: Ops) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """Return what the outputs should be for class numbers, and which is predicted from them."""
    return (lambda targets: one_hot(targets, target.bins, ops)), (lambda outputs: ops.xp.argmax(outputs, axis=0))


def _on_a_line(target: Target, ops: Ops) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """Return what the single output should be for encoded targets, and what is predicted from it."""
    xp = ops.xp
    if isinstance(target, Number):
        return (lambda targets: targets[None]), (lambda outputs: xp.clip(outputs[0], -1, 1))
    _require_two_labels(target)
    return (lambda targets: _signs(targets, ops)), (lambda outputs: (outputs[0] > 0).astype(xp.int32))


LOSSES: Registry[Callable[[Target, Ops], Loss]] = Registry(
    "loss",
    {"softmax": softmax, "logistic": logistic, "hinge": hinge, "huber": huber, "squared": squared},
)
