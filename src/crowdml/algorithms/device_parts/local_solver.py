"""Local solves: what a device of consensus ADMM computes from all its rows, in a fixed number of steps.

For rows x_j with labels y_j, a centre V and a start, all of them matrices of one row per output:

    prox(V) = argmin_W  Σ_j loss(W x_j, y_j)  +  ½ m λ ‖W‖²  +  ½ ρ ‖W - V‖²        (m rows; biases have no λ)

Losses that bend (logistic, softmax, Huber's) take Newton steps: the second derivative, or for softmax and Huber's loss
a bound of it, is inverted over features or over rows, whichever are fewer. Where the objective would rise again before
the end of a step, the step ends near its lowest point on the way, which a few chords find.
The hinge has corners and is solved in its dual, a quadratic in a box, by accelerated projected gradients.

The number of steps never depends on rows: what a device does takes the same time whatever they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from crowdml.core import Array, Batch, Ops, Tree, record
from crowdml.models import Model
from crowdml.models.losses import Loss

CHORDS = 4
"""Chords that find where a step ends. Along a step outputs change linearly, so each of them costs next to nothing."""

BOX_STEPS = 25
"""Steps in the dual of the hinge for each Newton step that another loss would take."""


@record
class Pull:
    """What besides the rows decides a local solve.

    Attributes:
        rho: ρ.
        decay: λ.
        steps: Newton steps.
    """

    rho: Array
    decay: Array
    steps: int


def solvable(model: Model) -> bool:
    """Tell whether there is a local solver: for one dense layer with a loss that bends, or with the hinge."""
    return model.linear and (model.loss.bend is not None or _is_hinge(model.loss))


def local_solver(model: Model, ops: Ops) -> Callable[[Tree, Tree, Batch, Pull], Tree]:
    """Return `solve(centre, start, batch, pull)` over parameters of the model."""
    solve = _in_box if _is_hinge(model.loss) else _newton

    def run(centre: Tree, start: Tree, batch: Batch, pull: Pull) -> Tree:
        rows = with_constant(batch.rows, "b" in centre[0], ops)
        found = solve(
            model.loss, rows, batch, as_matrix(centre, ops), as_matrix(start, ops), pull, _decays(centre, ops), ops
        )
        return as_parameters(found, centre)

    return run


def with_constant(rows: Array, biased: bool, ops: Ops) -> Array:
    """Append a column of ones where the model has a bias."""
    return ops.xp.concatenate([rows, ops.xp.ones_like(rows[:, :1])], axis=1) if biased else rows


def as_matrix(parameters: Tree, ops: Ops) -> Array:
    """Put weights and bias of one dense layer side by side, shape (outputs, features)."""
    layer = parameters[0]
    return ops.xp.concatenate([layer["w"], layer["b"][:, None]], axis=1) if "b" in layer else layer["w"]


def as_parameters(matrix: Array, like: Tree) -> Tree:
    """Take them apart again."""
    return ({"w": matrix[:, :-1], "b": matrix[:, -1]},) if "b" in like[0] else ({"w": matrix},)


def _decays(parameters: Tree, ops: Ops) -> Array:
    """Return 1 for every column that the regulariser acts on, otherwise 0."""
    ones = ops.xp.ones(parameters[0]["w"].shape[1], dtype=ops.xp.float32)
    return ops.xp.concatenate([ones, ops.xp.zeros(1, dtype=ops.xp.float32)]) if "b" in parameters[0] else ones


def _newton(
    loss: Loss, rows: Array, batch: Batch, centre: Array, start: Array, pull: Pull, decays: Array, ops: Ops
) -> Array:
    """Take a fixed number of Newton steps from the start."""
    xp, mask, labels = ops.xp, batch.mask, batch.targets
    assert loss.bend is not None  # noqa: S101  `solvable` has seen to it
    bend = loss.bend
    decay = pull.decay * xp.sum(mask) * decays
    ridge = decay + pull.rho

    def slopes(outputs: Array) -> Array:
        return loss.slope(outputs, labels) * mask

    def step(carry: tuple[Array, Array], _: Array) -> tuple[Array, Array]:
        w, outputs = carry
        slope = slopes(outputs)
        gradient = ops.dot(slope, rows) + decay * w + pull.rho * (w - centre)
        way = -_divided(gradient, rows, bend(outputs, labels) * mask, ridge, ops)
        moved = ops.dot_t(way, rows)
        down, square = xp.sum(gradient * way), xp.sum(ridge * way * way)

        def rise(share: Array) -> Array:
            """Return the slope of the objective along the way."""
            return down + xp.sum((slopes(outputs + share * moved) - slope) * moved) + share * square

        share = _lowest(rise, down, xp)
        return w + share * way, outputs + share * moved

    begun = (start, ops.dot_t(start, rows))
    return ops.fold(step, begun, xp.arange(pull.steps))[0]


def _lowest(rise: Callable[[Array], Array], down: Array, xp: Array) -> Array:
    """Return where between 0 and 1 a function that grows from `down` < 0 crosses zero; 1 where it does not.

    Chords, with the value at an end halved that stays where it is (the Illinois rule).
    """
    low, high = xp.float32(0), xp.float32(1)
    at_low, at_high = down, xp.maximum(rise(high), 0)
    for _ in range(CHORDS):
        share = low + (high - low) * at_low / xp.minimum(at_low - at_high, xp.float32(-1e-30))
        found = rise(share)
        below = found < 0
        low, high = xp.where(below, share, low), xp.where(below, high, share)
        at_low, at_high = xp.where(below, found, 0.5 * at_low), xp.where(below, 0.5 * at_high, found)
    return xp.clip(low + (high - low) * at_low / xp.minimum(at_low - at_high, xp.float32(-1e-30)), 0, 1)


def _divided(gradient: Array, rows: Array, bends: Array, ridge: Array, ops: Ops) -> Array:
    """Return gradient · (Xᵀ diag(bends) X + diag(ridge))⁻¹, over features or over rows, whichever are fewer."""
    xp = ops.xp
    half = rows * xp.sqrt(bends)[:, None]
    if rows.shape[0] >= rows.shape[1]:
        return _solved(ops.t_dot(half, half) + xp.diag(ridge), gradient.T, ops).T
    eased = half / ridge
    inner = ops.dot_t(eased, half) + xp.eye(len(rows), dtype=rows.dtype)
    first = gradient / ridge
    return first - ops.t_dot(_solved(inner, ops.dot_t(half, first), ops), eased)


def _solved(a: Array, b: Array, ops: Ops) -> Array:
    """Solve; not a number where nothing can be solved, as in compiled code.

    Rows of very long numbers leave nothing of ρ in single precision. A device that stopped there would tell of its
    rows by its silence; bounded, what is not a number is zero.
    """
    try:
        return ops.solve(a, b)
    except np.linalg.LinAlgError:
        return ops.xp.full_like(b, math.nan)


def _in_box(
    loss: Loss, rows: Array, batch: Batch, centre: Array, start: Array, pull: Pull, decays: Array, ops: Ops
) -> Array:
    """Solve the dual of the hinge: max_a Σ a_j - ½ ‖Σ a_j y_j x_j + ρV‖² / ridge, with 0 ≤ a_j ≤ 1.

    W = (ρV + Σ a_j y_j x_j) / ridge then. There is nothing to start from but the middle of the box: dual variables
    belong to rows, and a device may bring other rows.
    """
    xp, mask = ops.xp, batch.mask
    ridge = pull.decay * xp.sum(mask) * decays + pull.rho
    signed = rows * ((2 * batch.targets.astype(xp.float32) - 1) * mask)[:, None]
    base = (pull.rho * centre[0]) / ridge
    inner = ops.dot_t(signed / ridge, signed)
    pace = 1 / xp.maximum(xp.max(xp.sum(xp.abs(inner), axis=1)), xp.float32(1e-30))
    margin = mask - ops.dot_t(signed, base[None])[:, 0]

    def step(carry: tuple[Array, Array], number: Array) -> tuple[Array, Array]:
        a, ahead = carry
        slope = margin - ops.dot(inner, ahead[:, None])[:, 0]
        new = xp.clip(ahead + pace * slope, 0, mask)
        push = number.astype(xp.float32) / (number.astype(xp.float32) + 3)
        return new, new + push * (new - a)

    middle = 0.5 * mask
    found = ops.fold(step, (middle, middle), xp.arange(pull.steps * BOX_STEPS))[0]
    return (base + ops.t_dot(signed / ridge, found[:, None])[:, 0])[None]


def _is_hinge(loss: Loss) -> bool:
    return loss.by_sign and loss.bend is None and loss.slope_bound is not None
