"""Rules that ask how far check-ins are from each other: multi-Krum, geometric median, centred clipping.

Blanchard et al. (2017); Chen, Su and Xu (2017), by smoothed Weiszfeld steps as in Pillutla et al. (2022); Karimireddy,
He and Jaggi (2021), here from zero in every version, so that nothing has to be remembered.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from crowdml.algorithms.robust.contract import Rule, RuleSettings, lengths, median, weighted_mean
from crowdml.core import Array, Ops


class MultiKrum(RuleSettings):
    """The mean of those check-ins that have the nearest neighbours."""

    kind: Literal["multi-krum"] = "multi-krum"
    classical: ClassVar[bool] = True
    share: float = Field(0.2, gt=0, lt=0.5, description="part of the check-ins that may lie, and is left out")

    def build(self, ops: Ops) -> Rule:
        """Make the rule."""
        xp = ops.xp

        def rule(updates: Array, weights: Array, root: Array) -> Array:
            present = weights > 0
            count = xp.sum(present)
            lying = xp.floor(xp.float32(self.share) * count + xp.float32(1e-3)).astype(xp.int32)
            scores = _distance_to_nearest(updates, present, xp.maximum(count - lying - 2, 1), ops)
            rank = xp.argsort(xp.argsort(xp.where(present, scores, xp.float32(xp.inf))))
            return weighted_mean(updates, weights * (rank < count - lying), ops)

        return rule


def _distance_to_nearest(updates: Array, present: Array, neighbours: Array, ops: Ops) -> Array:
    """Return the sum of squared distances of each line to its nearest neighbours."""
    xp = ops.xp
    squares = xp.sum(updates * updates, axis=1)
    apart = squares[:, None] + squares[None] - 2 * ops.dot_t(updates, updates)
    other = present[None] & ~xp.eye(len(updates), dtype=bool)
    ordered = xp.sort(xp.where(other, xp.maximum(apart, 0), xp.float32(xp.inf)), axis=1)
    near = (xp.arange(len(updates))[None] < neighbours) & xp.isfinite(ordered)
    return xp.sum(xp.where(near, ordered, xp.float32(0)), axis=1)


class GeometricMedian(RuleSettings):
    """The point whose distances to all check-ins have the least sum."""

    kind: Literal["geometric-median"] = "geometric-median"
    classical: ClassVar[bool] = True
    steps: int = Field(30, gt=0, description="Weiszfeld steps, from the mean")

    def build(self, ops: Ops) -> Rule:
        """Make the rule."""
        xp = ops.xp

        def rule(updates: Array, weights: Array, root: Array) -> Array:
            # Far below any distance that matters, and large enough not to divide by zero at a check-in itself.
            floor = xp.maximum(median(lengths(updates, ops), weights > 0, ops) * xp.float32(1e-4), xp.float32(1e-12))

            def step(point: Array, _: Array) -> Array:
                apart = xp.maximum(lengths(updates - point, ops), floor)
                return weighted_mean(updates, weights / apart, ops)

            return ops.fold(step, weighted_mean(updates, weights, ops), xp.arange(self.steps))

        return rule


class CentredClipping(RuleSettings):
    """A mean of deviations from a centre, each cut to a radius; the centre follows the mean for some steps."""

    kind: Literal["centred-clipping"] = "centred-clipping"
    classical: ClassVar[bool] = True
    radius: float | None = Field(
        None, gt=0, description="longest deviation; not given: the median deviation, anew at every step"
    )
    steps: int = Field(10, gt=0, description="steps of the centre, from zero")

    def build(self, ops: Ops) -> Rule:
        """Make the rule."""
        xp = ops.xp

        def rule(updates: Array, weights: Array, root: Array) -> Array:
            def step(centre: Array, _: Array) -> Array:
                apart = updates - centre
                far = xp.maximum(lengths(apart, ops), xp.float32(1e-18))
                radius = median(far, weights > 0, ops) if self.radius is None else xp.float32(self.radius)
                cut = apart * xp.minimum(xp.float32(1), radius / far)[:, None]
                return centre + weighted_mean(cut, weights, ops)

            return ops.fold(step, xp.zeros_like(updates[0]), xp.arange(self.steps))

        return rule
