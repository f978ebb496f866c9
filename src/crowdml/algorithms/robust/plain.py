"""The plain mean behind a norm bound: all that can be done where only sums are seen."""

from __future__ import annotations

from typing import Literal

from crowdml.algorithms.robust.contract import Rule, RuleSettings, weighted_mean
from crowdml.core import Ops


class Nothing(RuleSettings):
    """No rule: the averaging of the algorithm, with nothing before it."""

    kind: Literal["none"] = "none"

    def build(self, ops: Ops) -> Rule:
        """Take the mean."""
        return lambda updates, weights, root: weighted_mean(updates, weights, ops)


class Mean(RuleSettings):
    """The mean of shortened check-ins."""

    kind: Literal["mean"] = "mean"

    def build(self, ops: Ops) -> Rule:
        """Make the rule."""
        return lambda updates, weights, root: weighted_mean(updates, weights, ops)
