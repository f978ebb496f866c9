"""Weights of an average: how much each check-in of a version counts, layer by layer.

Weights have the shape (layers, check-ins) and add up to 1 in every layer, except in the paper's unconstrained variant.
Where a check-in is missing its weight is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from crowdml.core import Array, Ops

By = Literal["equal", "size", "inverse-variance", "learned"]
"""How an average weighs: all alike, by rows, by how little a check-in scatters, or as public rows have taught."""

Weigh = Callable[[Array, Array, Array], tuple[Array, Array]]
"""`weigh(updates, prior, parameters)`: weights, and 1 where they were used, 0 where the prior was better."""


Average = Callable[[Array, Array, Array, Sequence[slice], Ops], Array]
"""`average(weights, updates, parameters, spans, ops)`: what is added to the parameters."""


def weighted(weights: Array, updates: Array, spans: Sequence[slice], ops: Ops) -> Array:
    """Return the average of changes: in each layer by its own weights."""
    parts = [ops.dot(own[None], updates[:, span])[0] for own, span in zip(weights, spans, strict=True)]
    return ops.xp.concatenate(parts)


def of_changes(weights: Array, updates: Array, parameters: Array, spans: Sequence[slice], ops: Ops) -> Array:
    """Return what an average of changes U adds to the parameters: Σ_c v_ic U_ic in layer i."""
    return weighted(weights, updates, spans, ops)


def of_models(weights: Array, updates: Array, parameters: Array, spans: Sequence[slice], ops: Ops) -> Array:
    """Return what an average of devices' models adds to the parameters w: Σ_c v_ic (w_i + U_ic) - w_i in layer i.

    Where the weights of a layer add up to 1 that is the average of changes.
    """
    excess = [(ops.xp.sum(own) - 1) * parameters[span] for own, span in zip(weights, spans, strict=True)]
    return weighted(weights, updates, spans, ops) + ops.xp.concatenate(excess)


def capped(weights: Array, prior: Array, cap: float, ops: Ops) -> Array:
    """Let no weight be more than `cap` times its prior; what is cut off goes to the others in proportion."""
    xp = ops.xp
    most = xp.float32(cap) * prior

    def step(own: Array, _: Array) -> Array:
        cut = xp.minimum(own, most)
        room = xp.where(cut < most, cut, xp.float32(0))
        missing = 1 - xp.sum(cut, axis=-1, keepdims=True)
        share = xp.sum(room, axis=-1, keepdims=True)
        return cut + room * xp.where(share > 0, missing / xp.where(share > 0, share, xp.float32(1)), xp.float32(0))

    return xp.minimum(ops.fold(step, weights, xp.arange(8)), most)
