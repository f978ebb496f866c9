"""Local steps as a mode takes them: rows in order; rows by chance with noise in every step; or steps with a proof.

- `InOrder`: a step on each part of the batch, over the rows that are there.
- `ByChance` (DP-SGD): every step takes some rows at random, by its coins; shortens each row's gradient; sums; adds
  Gaussian noise; divides by the number of rows that a step takes on average. What the steps have changed is sent as it
  is: all of it has its noise. Rows go through in small groups, so that memory does not grow with the rows of a step.
- `Stable`: steps for which `algorithms.stability` has a proof. What it assumes of rows, targets and arithmetic is done
  here. The walk keeps the difference u from the broadcast w₀, which begins at zero, and sends it. Numbers near zero are
  finer than numbers near w₀, so a small step of one sample is not rounded to a large one; and a device that is far away
  from zero is no worse off than one that begins there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from crowdml.core import Array, BadInput, Batch, Coins, GridCoins, record, trees
from crowdml.core.ops import Tree, onto_ball
from crowdml.privacy.calibration.private_steps import PrivateSteps
from crowdml.privacy.noise.grid import Stability
from crowdml.privacy.noise.laws import MECHANISMS, add_noise, clip_weights
from crowdml.privacy.sanitisers.base import Use
from crowdml.privacy.sanitisers.local_work import ExampleGradients, LocalWork, mean_weights, plus

LONGEST = 1e6
"""The broadcast is brought into a ball of this radius before stable steps: it is the server's and may be anything."""

MARGIN = 1 - 1e-9
"""Rows and rates are brought so much below what the proof allows: more than the rounding of their own lengths."""


def cut_batch(batch: Batch, size: int) -> Batch:
    """Cut a batch into parts of so many rows."""
    parts: Batch = trees.map(lambda leaf: leaf.reshape(-1, size, *leaf.shape[1:]), batch)
    return parts


@record
class InOrder:
    """Steps over the rows as they come, so many at a time; the mean is over the rows that are there."""

    work: LocalWork
    use: Use

    def take(
        self, parameters: Tree, memory: Tree, begin: Array, batch: Batch, coins: Coins
    ) -> tuple[Tree, Tree, Array]:
        """Take one step on each part of the batch."""
        work, ops, xp = self.work, self.use.ops, self.use.ops.xp
        one = xp.int32(1)
        counts_up = one if work.counts_up else xp.int32(0)

        def step(carry: Tree, part: Batch) -> Tree:
            here, memory, taken = carry
            gradient = work.objective.gradients(here, part).total(mean_weights(part.mask, ops))
            if work.has_slope:
                gradient = plus(gradient, work.slope(here, parameters))
            change, after = work.rate.step(memory, gradient, begin + counts_up * taken)
            if not work.padded:
                return trees.map(lambda old, new: old - new, here, change), after, taken + one
            real = xp.sum(part.mask) > 0
            moved = trees.map(lambda old, new: old - new * real.astype(xp.float32), here, change)
            after = trees.map(lambda old, new: xp.where(real, new, old), memory, after)
            return moved, after, taken + real.astype(xp.int32)

        begun = (parameters, memory, xp.int32(0))
        moved, memory, taken = ops.fold(step, begun, cut_batch(batch, work.size))
        return trees.map(lambda new, old: new - old, moved, parameters), memory, taken


@record
class ByChance:
    """Steps that take rows at random, with noise in each.

    Attributes:
        work: What the steps are.
        steps: Bound, noise and sampling of a step.
        use: How the sanitiser is used; its scale is the noise on each number of a step's sum.
    """

    work: LocalWork
    steps: PrivateSteps
    use: Use

    def take(
        self, parameters: Tree, memory: Tree, begin: Array, batch: Batch, coins: Coins
    ) -> tuple[Tree, Tree, Array]:
        """Take all steps."""
        ops, xp = self.use.ops, self.use.ops.xp

        def step(carry: Tree, number: Array) -> Tree:
            here, memory = carry
            gradient = self.noisy_gradient(here, parameters, batch, cast(GridCoins, coins).retry(number + 1))
            count = begin + number if self.work.counts_up else begin
            change, memory = self.work.rate.step(memory, gradient, count)
            return trees.map(lambda old, new: old - new, here, change), memory

        numbers = xp.arange(self.steps.steps, dtype=xp.int32)
        moved, memory = ops.fold(step, (parameters, memory), numbers)
        change = trees.map(lambda new, old: new - old, moved, parameters)
        return change, memory, xp.int32(self.steps.steps)

    def noisy_gradient(self, parameters: Tree, checked_out: Tree, batch: Batch, coins: Coins) -> Tree:
        """Return one step's gradient: clipped, summed, with noise, over the expected number of rows."""
        total = self.clipped_sum(parameters, batch, *self.choose(batch, coins))
        noisy = add_noise(MECHANISMS["gaussian"], total, self.use.scales["noise"], coins, "step")
        share = self.use.ops.xp.float32(1 / self.steps.each.batch)
        # What else there is depends on parameters that every step's noise protects already.
        return trees.map(lambda leaf, common: leaf * share + common, noisy, self.work.slope(parameters, checked_out))

    def choose(self, batch: Batch, coins: Coins) -> tuple[Array, Array]:
        """Choose the rows of a step: all rows in an order that begins with those chosen, and how many they are."""
        xp, width = self.use.ops.xp, len(batch.mask)
        drawn = xp.where(batch.mask > 0, coins.uniform("rows", (width,)), xp.float32(2))
        if self.steps.each.sampling == "poisson":
            count = xp.sum(drawn < xp.float32(self.steps.each.share), dtype=xp.int32)
        else:
            count = xp.minimum(xp.int32(self.steps.each.batch), xp.sum(batch.mask).astype(xp.int32))
        return xp.argsort(drawn), count

    def clipped_sum(self, parameters: Tree, batch: Batch, order: Array, count: Array) -> Tree:
        """Sum the bounded gradients of the first `count` rows of the order, a group at a time."""
        ops, xp, group = self.use.ops, self.use.ops.xp, min(self.work.group, len(batch.mask))
        places = xp.arange(group, dtype=xp.int32)

        def more(carry: Tree) -> Tree:
            first, total = carry
            at = first + places
            rows = order[xp.minimum(at, xp.int32(len(batch.mask) - 1))]
            real = (at < count).astype(xp.float32)
            some = Batch(rows=batch.rows[rows], targets=batch.targets[rows], mask=real)
            found = self.bounded_total(self.work.objective.gradients(parameters, some), real)
            return first + xp.int32(group), plus(total, found)

        begun = (xp.int32(0), trees.map(xp.zeros_like, parameters))
        total: Tree = ops.repeat(lambda carry: carry[0] < count, more, begun)[1]
        return total

    def bounded_total(self, gradients: ExampleGradients, real: Array) -> Tree:
        """Sum gradients, none longer than the radius: as a whole, or each layer by its share of it."""
        ops, radius = self.use.ops, self.steps.radius
        if not self.steps.by_layer:
            return gradients.total(real * clip_weights(gradients.norms(2, ops), radius, ops))
        norms = gradients.layer_norms(ops)
        share = radius / sum(norm is not None for norm in norms) ** 0.5
        return gradients.total_by_layer(
            [None if norm is None else real * clip_weights(norm, share, ops) for norm in norms]
        )


@record
class Stable:
    """Steps whose stability is proven: wide numbers, bounded rows, means over a fixed size.

    Attributes:
        work: What the steps are.
        stable: What was proven, and of which rows and steps.
        use: How the sanitiser is used.
    """

    work: LocalWork
    stable: Stability
    use: Use

    def take(
        self, parameters: Tree, memory: Tree, begin: Array, batch: Batch, coins: Coins
    ) -> tuple[Tree, Tree, Array]:
        """Take one step on each part of the batch; rates with a proof remember nothing."""
        ops = self.use.ops
        origin, parts = self.near(parameters), cut_batch(self.bounded(batch), self.work.size)
        self._require_proven(len(parts.mask))
        counts_up = ops.xp.int32(1 if self.work.counts_up else 0)

        def step(carry: Tree, part: Batch) -> Tree:
            walked, taken = carry
            eta = self.eta(begin + counts_up * taken)
            real = ops.xp.any(part.mask > 0) if self.work.padded else ops.xp.asarray(True)
            eta = eta * real.astype(ops.wide)
            gradient = self.gradient(origin, walked, part)
            moved = trees.map(lambda old, slope: old - slope * eta, walked, gradient)
            return moved, taken + real.astype(ops.xp.int32)

        begins = trees.map(ops.xp.zeros_like, origin)
        walked, taken = ops.fold(step, (begins, ops.xp.int32(0)), parts)
        return walked, memory, taken

    def gradient(self, origin: Tree, walked: Tree, part: Batch) -> Tree:
        """Return the mean gradient at origin + walked, over as many rows as a step should have, and the regulariser."""
        objective = self.work.objective
        total = objective.gradients_near(origin, walked, part).total(part.mask / self.stable.part)
        return plus(total, objective.regulariser(plus(origin, walked)))

    def eta(self, count: Array) -> Array:
        """Return the rate at a count, which begins with 1: never more than its constant, nor than what is stable."""
        xp, wide, work = self.use.ops.xp, self.use.ops.wide, self.work
        assert work.wide_factor is not None  # noqa: S101  nothing is proven of rates that look at updates
        largest, curved = wide(work.largest_rate), wide(work.objective.steepness(self.stable.row))
        rate = wide(work.wide_factor(xp.maximum(count, xp.int32(1))))
        return xp.minimum(xp.minimum(rate, largest), wide(2 * MARGIN) / curved)

    def near(self, parameters: Tree) -> Tree:
        """Return the broadcast as numbers, not too far away, whatever the server has sent."""
        xp, wide = self.use.ops.xp, self.use.ops.wide
        numbers = trees.map(lambda leaf: xp.where(xp.isfinite(leaf), leaf, xp.float32(0)).astype(wide), parameters)
        return onto_ball(numbers, LONGEST, self.use.ops)

    def bounded(self, batch: Batch) -> Batch:
        """Return rows of numbers, none longer than the proof says, and targets that exist."""
        xp, wide = self.use.ops.xp, self.use.ops.wide
        rows = xp.where(xp.isfinite(batch.rows), batch.rows, xp.float32(0)).astype(wide)
        norms = xp.sqrt(xp.sum(rows * rows, axis=1, keepdims=True))
        longest = self.stable.row * MARGIN
        rows = rows * (longest / xp.maximum(norms, longest))
        return replace(batch, rows=rows, targets=self.work.objective.clean(batch.targets), mask=batch.mask.astype(wide))

    def _require_proven(self, steps: int) -> None:
        if steps > self.stable.steps:
            raise BadInput(
                f"{steps} steps in one release are more than the {self.stable.steps} of which stability is proven",
                where="algorithm.local-batch",
                hint=f"at least {-(-steps * self.work.size // self.stable.steps)} rows per step, fewer epochs, or "
                "fewer rows on a device",
            )
