"""Local steps with noise in each of them (DP-SGD): what a device does between check-out and check-in.

Every step takes some of the device's rows at random, by its coins; shortens each row's gradient; sums; adds Gaussian
noise; divides by the number of rows that a step takes on average. Rows go through in small groups, so that memory does
not grow with the number that a step takes. What the steps have changed is sent as it is: all of it has its noise.
"""

from __future__ import annotations

from typing import Any, cast

from crowdml.algorithms.contract import Parts
from crowdml.core import Array, Batch, Coins, GridCoins, record, trees
from crowdml.core.ops import Tree
from crowdml.models.model import Gradients
from crowdml.privacy import MECHANISMS, add_noise, clip_weights
from crowdml.privacy.private_steps import PrivateSteps


@record
class PrivateWalk:
    """Steps of one release.

    Attributes:
        parts: What the algorithm is assembled from.
        steps: Bound, noise and sampling of a step.
        rate: The device's rate, built.
        counts_up: Whether the rate counts local steps.
        group: Rows that go through together.
    """

    parts: Parts
    steps: PrivateSteps
    rate: Any
    counts_up: bool
    group: int

    def take(self, parameters: Tree, memory: Tree, begin: Array, batch: Batch, coins: Coins) -> tuple[Tree, Tree]:
        """Take all steps; return parameters and what the rate remembers."""
        xp = self.parts.ops.xp

        def step(carry: Tree, number: Array) -> Tree:
            own, memory = carry
            gradient = self.noisy_gradient(own, batch, cast(GridCoins, coins).retry(number + 1))
            count = begin + number if self.counts_up else begin
            change, memory = self.rate.step(memory, gradient, count)
            return trees.map(lambda old, new: old - new, own, change), memory

        numbers = xp.arange(self.steps.steps, dtype=xp.int32)
        moved, memory = self.parts.ops.fold(step, (parameters, memory), numbers)
        return moved, memory

    def noisy_gradient(self, parameters: Tree, batch: Batch, coins: Coins) -> Tree:
        """Return one step's gradient: clipped, summed, with noise, over the expected number of rows."""
        xp, parts = self.parts.ops.xp, self.parts
        total = self.clipped_sum(parameters, batch, *self.choose(batch, coins))
        noisy = add_noise(MECHANISMS["gaussian"], total, parts.hyper["noise"], coins, "step")
        # The regulariser depends on parameters that every step's noise protects already.
        regulariser = parts.model.regulariser(parameters, parts.hyper["regularisation"])
        share = xp.float32(1 / self.steps.batch)
        return trees.map(lambda own, common: own * share + common, noisy, regulariser)

    def choose(self, batch: Batch, coins: Coins) -> tuple[Array, Array]:
        """Choose the rows of a step: all rows in an order that begins with those chosen, and how many they are."""
        xp, width = self.parts.ops.xp, len(batch.mask)
        drawn = xp.where(batch.mask > 0, coins.uniform("rows", (width,)), xp.float32(2))
        if self.steps.sampling == "poisson":
            count = xp.sum(drawn < xp.float32(self.steps.share), dtype=xp.int32)
        else:
            count = xp.minimum(xp.int32(self.steps.batch), xp.sum(batch.mask).astype(xp.int32))
        return xp.argsort(drawn), count

    def clipped_sum(self, parameters: Tree, batch: Batch, order: Array, count: Array) -> Tree:
        """Sum the bounded gradients of the first `count` rows of the order, a group at a time."""
        ops, xp, group = self.parts.ops, self.parts.ops.xp, min(self.group, len(batch.mask))
        places = xp.arange(group, dtype=xp.int32)

        def unfinished(carry: Tree) -> Array:
            return carry[0] < count

        def more(carry: Tree) -> Tree:
            first, total = carry
            at = first + places
            own = order[xp.minimum(at, xp.int32(len(batch.mask) - 1))]
            real = (at < count).astype(xp.float32)
            some = Batch(rows=batch.rows[own], labels=batch.labels[own], mask=real)
            found = self.bounded_total(self.parts.model.gradients(parameters, some), real)
            return first + xp.int32(group), trees.map(lambda old, new: old + new, total, found)

        zeros = trees.map(xp.zeros_like, parameters)
        total: Tree = ops.repeat(unfinished, more, (xp.int32(0), zeros))[1]
        return total

    def bounded_total(self, gradients: Gradients, real: Array) -> Tree:
        """Sum gradients, none longer than the radius: as a whole, or each layer by its share of it."""
        ops, radius = self.parts.ops, self.steps.radius
        if not self.steps.by_layer:
            return gradients.total(real * clip_weights(gradients.norms(2, ops), radius, ops))
        norms = gradients.layer_norms(ops)
        own = radius / sum(norm is not None for norm in norms) ** 0.5
        return gradients.total_by_layer(
            [None if norm is None else real * clip_weights(norm, own, ops) for norm in norms]
        )
