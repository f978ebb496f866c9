"""Local steps for which `stability` has a proof: what it assumes of rows, labels and arithmetic is done here.

The walk keeps the difference u from the broadcast w₀, which begins at zero, and sends it. Numbers near zero are finer
than numbers near w₀, so a small step of one sample is not rounded to a large one; and a device that is far away from
zero is no worse off than one that begins there.
"""

from __future__ import annotations

from dataclasses import replace

from crowdml.algorithms import projection
from crowdml.algorithms.contract import Parts
from crowdml.algorithms.rates import RateSettings
from crowdml.algorithms.stability import LONGEST
from crowdml.core import Array, BadInput, Batch, record, trees
from crowdml.core.ops import Tree
from crowdml.privacy.sound import Stability

MARGIN = 1 - 1e-9
"""Rows and rates are brought so much below what the proof allows: more than the rounding of their own lengths."""


@record
class StableWalk:
    """Steps of one release.

    Attributes:
        parts: What the algorithm is assembled from.
        rate: The device's rate, one that depends on its counter alone.
        stable: What was proven, and of which rows and steps.
        local_batch: Rows per step.
        padded: Whether some parts may be empty; these are no steps.
    """

    parts: Parts
    rate: RateSettings
    stable: Stability
    local_batch: int
    padded: bool

    def take(self, parameters: Tree, begin: Array, batch: Batch) -> tuple[Tree, Array]:
        """Take one step on each part of the batch; return what they have changed, and steps taken."""
        ops = self.parts.ops
        origin, bounded = self.near(parameters), self.bounded(batch)
        cut = trees.map(lambda leaf: leaf.reshape(-1, self.local_batch, *leaf.shape[1:]), bounded)
        self._require_proven(len(cut.mask))
        counts_up = ops.xp.int32(1 if self.rate.counter == "local-steps" else 0)

        def step(carry: Tree, part: Batch) -> Tree:
            walked, taken = carry
            eta = self.eta(begin + counts_up * taken)
            real = ops.xp.any(part.mask > 0) if self.padded else ops.xp.asarray(True)
            eta = eta * real.astype(ops.wide)
            gradient = self.gradient(origin, walked, part)
            moved = trees.map(lambda old, slope: old - slope * eta, walked, gradient)
            return moved, taken + real.astype(ops.xp.int32)

        begins = trees.map(ops.xp.zeros_like, origin)
        walked, taken = ops.fold(step, (begins, ops.xp.int32(0)), cut)
        return walked, taken

    def gradient(self, origin: Tree, walked: Tree, part: Batch) -> Tree:
        """Return the mean gradient at origin + walked, over as many rows as a step should have, and the regulariser.

        Outputs are the sum of two products. The first is fixed by the row and the broadcast, so only the second, of
        small numbers, and their sum have a rounding error that could tell two devices apart.
        """
        model = self.parts.model
        (layer,) = model.layers
        fixed, _ = layer.forward(origin[0], part.rows.T)
        moving, memory = layer.forward(walked[0], part.rows.T)
        slope = model.loss.slope(fixed + moving, part.labels)
        total = (layer.factors(walked[0], memory, slope).total(part.mask / self.stable.part),)
        at = trees.map(lambda far, near: far + near, origin, walked)
        regulariser = model.regulariser(at, self.parts.hyper["regularisation"])
        return trees.map(lambda mean, common: mean + common, total, regulariser)

    def eta(self, count: Array) -> Array:
        """Return the rate at a count, which begins with 1: never more than its constant, nor than what is stable."""
        xp, wide, hyper = self.parts.ops.xp, self.parts.ops.wide, self.parts.hyper
        largest = wide(hyper["rate"])
        factor = self.rate.build(largest, self.parts.ops).factor
        assert factor is not None  # noqa: S101  nothing is proven of rates that look at updates
        curved = wide(self.parts.model.smoothness(self.stable.row) + hyper["regularisation"])
        return xp.minimum(xp.minimum(wide(factor(xp.maximum(count, xp.int32(1)))), largest), wide(2 * MARGIN) / curved)

    def near(self, parameters: Tree) -> Tree:
        """Return the broadcast as numbers, not too far away, whatever the server has sent."""
        xp, wide = self.parts.ops.xp, self.parts.ops.wide
        numbers = trees.map(lambda leaf: xp.where(xp.isfinite(leaf), leaf, xp.float32(0)).astype(wide), parameters)
        return projection.onto_ball(numbers, LONGEST, self.parts.ops)

    def bounded(self, batch: Batch) -> Batch:
        """Return rows of numbers, none longer than the proof says, and labels that exist."""
        xp, wide = self.parts.ops.xp, self.parts.ops.wide
        rows = xp.where(xp.isfinite(batch.rows), batch.rows, xp.float32(0)).astype(wide)
        norms = xp.sqrt(xp.sum(rows * rows, axis=1, keepdims=True))
        longest = self.stable.row * MARGIN
        rows = rows * (longest / xp.maximum(norms, longest))
        labels = xp.clip(batch.labels, 0, self.parts.classes - 1)
        return replace(batch, rows=rows, labels=labels, mask=batch.mask.astype(wide))

    def _require_proven(self, steps: int) -> None:
        if steps > self.stable.steps:
            raise BadInput(
                f"{steps} steps in one release are more than the {self.stable.steps} of which stability is proven",
                where="algorithm.local-batch",
                hint=f"at least {-(-steps * self.local_batch // self.stable.steps)} rows per step, fewer epochs, or "
                "fewer rows on a device",
            )
