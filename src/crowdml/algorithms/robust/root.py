"""Root set: check-ins count by how well they agree with what a few public rows say.

The weight of a check-in is the cosine between it and the step that the public rows ask for, and none where they point
apart (Cao et al., 2021, "FLTrust"). FLTrust also stretches every check-in to one length; here the hard norm bound of
the section comes first instead: gross noise is cut down, and honest steps keep their size.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from crowdml.algorithms.robust.contract import Rule, RuleSettings, lengths, weighted_mean
from crowdml.core import Array, Ops


class RootCosine(RuleSettings):
    """A mean weighted by agreement with public rows."""

    kind: Literal["root-cosine"] = "root-cosine"
    needs_root: ClassVar[bool] = True

    def build(self, ops: Ops) -> Rule:
        """Make the rule."""
        xp = ops.xp

        def rule(updates: Array, weights: Array, root: Array) -> Array:
            scale = lengths(updates, ops) * xp.sqrt(ops.sum_of_squares(root))
            cosine = ops.dot(updates, root[:, None])[:, 0] / xp.maximum(scale, xp.float32(1e-18))
            return weighted_mean(updates, weights * xp.maximum(cosine, xp.float32(0)), ops)

        return rule
