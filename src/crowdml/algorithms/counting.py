"""Counting: how many rows a device saw, how many it got wrong, and how the labels are spread.

The counts of a release are integers; noise on them is discrete. The same record is what travels, what the server
sums up for the whole crowd, and what it keeps for each device (Crowd-ML 2015, algorithm 2 and equation 14).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from crowdml.algorithms.contract import Parts
from crowdml.core import Array, Batch, Coins, Ops, record, trees
from crowdml.core.ops import Tree
from crowdml.models.losses import one_hot
from crowdml.privacy.mechanisms import DISCRETE_LAPLACE, SKELLAM, NoiseLaw
from crowdml.privacy.plan import Statistics


@record
class Counting:
    """Counts errors and labels, and sanitises them.

    Attributes:
        classes: Number of labels.
        noise: Scales of the noise; zero where none is added.
        ops: Array operations.
        scales: Scales that take their place, as `errors_noise` and `labels_noise`: those may be traced.
        law: The noise law; in masked sums each device adds a share.
    """

    classes: int
    noise: Statistics
    ops: Ops
    scales: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    law: NoiseLaw = DISCRETE_LAPLACE

    @staticmethod
    def of(parts: Parts) -> Counting | None:
        """Count as the plan says; None where counts are not sent."""
        noise, sound = parts.plan.statistics, parts.plan.sound
        if noise is None:
            return None
        law = sound.update.law if sound and sound.update.shared else DISCRETE_LAPLACE
        # A Skellam table is made before anything is compiled, so its scale is never traced.
        scales = {} if law is SKELLAM else parts.hyper
        return Counting(classes=parts.classes, noise=noise, ops=parts.ops, scales=scales, law=law)

    def empty(self) -> Tree:
        """Begin at zero. `rows` and `counted` travel in clear, `errors` and `labels` with noise."""
        xp = self.ops.xp
        zero = xp.int32(0)
        return {"rows": zero, "counted": zero, "errors": zero, "labels": xp.zeros((self.classes,), dtype=xp.int32)}

    def count(self, batch: Batch, wrong: Array, counted: Array) -> Tree:
        """Count one batch: errors over the rows marked in `counted`, labels over all rows."""
        xp = self.ops.xp
        spread = one_hot(batch.labels, self.classes, self.ops) * batch.mask
        return {
            "rows": _whole(batch.mask, xp),
            "counted": _whole(counted, xp),
            "errors": _whole(counted * wrong, xp),
            "labels": xp.sum(spread, axis=1).astype(xp.int32),
        }

    def sanitise(self, counts: Tree, coins: Coins) -> Tree:
        """Add discrete noise to errors and labels."""
        made = dict(counts)
        for name, scale in (("errors", self.noise.error_scale), ("labels", self.noise.label_scale)):
            if scale:
                own = self.scales.get(f"{name}_noise", scale)
                made[name] = counts[name] + self.law.draw(coins, f"counts/{name}", own, counts[name].shape)
        return made

    def add(self, totals: Tree, counts: Tree) -> Tree:
        """Sum up."""
        return trees.map(lambda total, own: total + own, totals, counts)

    def error(self, totals: Tree) -> Array:
        """Estimate the error rate."""
        return estimated_error(totals, self.ops)


def estimated_error(totals: Tree, ops: Ops) -> Array:
    """Estimate the error rate from counts, equation (14); 1 before anything was counted."""
    xp = ops.xp
    errors, counted = xp.asarray(totals["errors"]), xp.asarray(totals["counted"])
    rate = errors.astype(ops.wide) / xp.maximum(counted, 1).astype(ops.wide)
    return xp.where(counted > 0, rate, ops.wide(1))


def is_low(totals: Tree, error_below: float, error_rows: int) -> Array:
    """Tell whether counts meet `error-below`: enough rows, and few enough errors among them."""
    return (totals["counted"] >= error_rows) & (totals["errors"] <= error_below * totals["counted"])


def _whole(mask: Array, xp: Any) -> Array:
    return xp.sum(mask).astype(xp.int32)
