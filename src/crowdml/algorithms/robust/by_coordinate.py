"""Rules that look at each number of an update by itself: median and trimmed mean (Yin et al., 2018)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from crowdml.algorithms.robust.contract import Rule, RuleSettings, in_order, median
from crowdml.core import Array, Ops


class Median(RuleSettings):
    """The middle value of every number."""

    kind: Literal["median"] = "median"
    classical: ClassVar[bool] = True

    def build(self, ops: Ops) -> Rule:
        """Make the rule."""
        return lambda updates, weights, root: median(updates, weights > 0, ops)


class TrimmedMean(RuleSettings):
    """The mean of every number without the largest and the smallest values."""

    kind: Literal["trimmed-mean"] = "trimmed-mean"
    classical: ClassVar[bool] = True
    share: float = Field(0.2, gt=0, lt=0.5, description="part of the check-ins that is left out at either end")

    def build(self, ops: Ops) -> Rule:
        """Make the rule."""
        xp = ops.xp

        def rule(updates: Array, weights: Array, root: Array) -> Array:
            ordered, count = in_order(updates, weights > 0, ops)
            cut = xp.floor(xp.float32(self.share) * count + xp.float32(1e-3)).astype(xp.int32)
            place = xp.arange(len(updates))[:, None]
            kept = (place >= cut) & (place < count - cut)
            return xp.sum(xp.where(kept, ordered, xp.float32(0)), axis=0) / xp.maximum(count - 2 * cut, 1)

        return rule
