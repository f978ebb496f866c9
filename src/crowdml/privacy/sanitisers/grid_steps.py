"""Sound noise in local steps: DP-SGD on integers, live.

A step takes the next rows of the release, so many at a time. Each row's gradient is clipped, rounded to the grid and
checked; the integers are summed; integer noise is added; and the sum, scaled, moves the parameters. What a device sends
is how far they have moved.

Guarantee, for neighbours that differ in one row (`replace`):

1. Where a row stands is decided without looking at it (`device.rows.batches`), and it stands in one step of a release.
   So the sums of all other steps are functions of the parameters at which they were made, and of rows that both worlds
   have in common.
2. In its one step the row changes a sum of checked integers by at most `grid.sensitivity`, whatever the parameters are
   and whatever floating point did before. Gaussian noise on that sum, rounded, has μ = sensitivity / scale (`gaussian`
   has the proof for rounded noise).
3. Parameters after a step are a function of the noisy sums so far and of what is public: the broadcast, regulariser,
   rate, and what the rate remembers. So are the change that is sent and all that is kept for the next release.

The noisy sums of a release are an adaptive sequence of which one depends on the row. The release costs a sample what
one Gaussian release of this μ costs, however many steps there are; steps compose in parallel and need no amplification
by sampling. A release whose rows are all replaced changes in every step, by as many rows as a step has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from crowdml.core import Array, BadInput, Batch, Coins, GridCoins, record, trees
from crowdml.core.ops import Tree
from crowdml.privacy.accounting import Terms
from crowdml.privacy.calibration.least_noise import Wanted, calibrate
from crowdml.privacy.cost import Cost
from crowdml.privacy.noise.grid import TRIES, GridMechanism, round_checked, to_levels
from crowdml.privacy.noise.laws import clip_weights
from crowdml.privacy.sanitisers.base import Use
from crowdml.privacy.sanitisers.floats import Floats
from crowdml.privacy.sanitisers.local_work import ExampleGradients, LocalWork, Walk, plus
from crowdml.privacy.sanitisers.walks import cut_batch


@record
class GridSteps(Floats):
    """Bound and noise of every step on the grid; what steps make of their noisy sums is sent as it is.

    Attributes:
        mechanism: Bound and noise of one step's sum.
        part: Rows of a step.
        by_layer: Whether each layer of a row's gradient is clipped to its share first.
    """

    mechanism: GridMechanism
    part: int
    by_layer: bool = False

    simulated = False
    bounds_rows = True
    noise_in_steps = True
    # As every bounded message, each counts alike.
    weighs_rows = False

    @property
    def scales(self) -> dict[str, float]:
        """Noise on each integer of a step's sum, in levels."""
        return {"noise": self.mechanism.scale}

    def structure(self) -> str:
        """Name the grid, which compiled code fixes."""
        return f"steps on {self.mechanism.grid}, {self.by_layer}"

    def walk(self, work: LocalWork) -> Walk:
        """Take rows in turn, each once."""
        if not work.through_rows:
            raise BadInput(
                "in sound mode a device goes through its rows, each in one step of a round",
                where="algorithm.local-steps",
                hint='leave it out: local-batch says how many steps there are; mode = "paper" simulates other steps',
            )
        return InTurn(work=work, mechanism=self.mechanism, by_layer=self.by_layer, use=self.use)

    def cost(self, uses: int, rows: int | None = None) -> Cost:
        """Add up releases: one step of each for a sample; for a device every step, with all rows that it takes."""
        each = Cost.of_event(self.mechanism.event)
        if rows is None:
            return each.times(uses)
        return each.grouped(min(self.part, rows)).times(-(-rows // self.part) * uses)

    def for_owner(self, terms: Terms, epsilon: float) -> tuple[GridSteps, Terms]:
        """Only the noise is another: nobody else's device and no server has to know."""
        wanted = Wanted(epsilon=epsilon, delta=terms.limit.delta, uses=terms.uses, unit="sample")
        mechanism, _, limit = calibrate(self.mechanism.law, self.mechanism.grid, None, wanted)
        return replace(self, mechanism=mechanism), replace(terms, filter=limit)

    def describe(self) -> dict[str, str]:
        """Say bound and noise of a step."""
        grid = self.mechanism.grid
        return {
            "update": f"in every step of {self.part} rows each row's gradient clipped to {grid.radius:.3g} in L2, "
            f"rounded to {grid.levels} levels, checked; {self.mechanism.law.name.replace('-', ' ')} noise of scale "
            f"{self.mechanism.scale:g} levels on their sum"
        }

    def plainly(self) -> dict[str, str]:
        """Say to owners what is limited, and when noise is added."""
        return {
            "update": "your device learns in small steps; in each, what one row can add is limited, and random noise "
            "is added on your device before the next"
        }

    def summary(self, releases: int, batch: int) -> dict[str, Any]:
        """Say law, scale and bound."""
        grid = self.mechanism.grid
        return {
            "noise": f"{self.mechanism.law.name} of scale {self.mechanism.scale:g} levels on each integer of a step's "
            f"sum over {self.part} rows; one gradient is at most {grid.radius:.3g} in L2, clipped "
            f"{'each layer by its share' if self.by_layer else 'as a whole'}, on {grid.levels} levels",
            "guarantee": "replace-one; simulated noise, so nothing is promised to anyone",
        }


@record
class InTurn:
    """Steps over the rows as they come, with integer noise in each.

    Attributes:
        work: What the steps are.
        mechanism: Bound and noise of a step's sum.
        by_layer: Whether each layer is clipped to its share first.
        use: How the sanitiser is used.
    """

    work: LocalWork
    mechanism: GridMechanism
    by_layer: bool
    use: Use

    def take(
        self, parameters: Tree, memory: Tree, begin: Array, batch: Batch, coins: Coins
    ) -> tuple[Tree, Tree, Array]:
        """Take one step on each part of the batch; a part without rows is none."""
        work, ops, xp = self.work, self.use.ops, self.use.ops.xp
        counts_up = xp.int32(1 if work.counts_up else 0)

        def step(carry: Tree, part: Batch) -> Tree:
            here, memory, taken = carry
            gradient = self.noisy_mean(here, part, cast(GridCoins, coins).retry(taken + xp.int32(TRIES)))
            if work.has_slope:
                gradient = plus(gradient, work.slope(here, parameters))
            change, after = work.rate.step(memory, gradient, begin + counts_up * taken)
            real = xp.sum(part.mask) > 0
            moved = trees.map(lambda old, new: xp.where(real, old - new, old), here, change)
            after = trees.map(lambda old, new: xp.where(real, new, old), memory, after)
            return moved, after, taken + real.astype(xp.int32)

        begun = (parameters, memory, xp.int32(0))
        moved, memory, taken = ops.fold(step, begun, cut_batch(batch, work.size))
        return trees.map(lambda new, old: new - old, moved, parameters), memory, taken

    def noisy_mean(self, parameters: Tree, part: Batch, coins: GridCoins) -> Tree:
        """Return one step's gradient: integers, summed, with noise, over as many rows as a step should have."""
        xp, grid = self.use.ops.xp, self.mechanism.grid
        found = self.work.objective.gradients(parameters, part)
        noisy = self.noised(self.checked_sum(found, part.mask, coins), coins)
        # A mean over a fixed number says nothing about how many rows there were, and noise is the same in every step.
        mean = noisy.astype(xp.float32) * xp.float32(grid.step / self.work.size)
        return trees.cut(mean, parameters)

    def noised(self, total: Array, coins: GridCoins) -> Array:
        """Add noise to every integer of a sum, or of several."""
        return total + self.mechanism.law.draw(coins, self.use.stage, self.use.scales["noise"], total.shape)

    def checked_sum(self, found: ExampleGradients, mask: Array, coins: GridCoins) -> Array:
        """Clip, round and check each row's gradient, and sum those that are there."""
        xp, ops, grid = self.use.ops.xp, self.use.ops, self.mechanism.grid
        rows = found.rows()
        if self.by_layer:
            rows = self._shortened(rows, found.layer_norms(ops))
        flat = xp.concatenate([leaf.reshape(len(mask), -1) for leaf in trees.leaves(rows)], axis=1)
        # Padding is zeroed before it is rounded: a row of zeros is never too long.
        levels = xp.where(mask[:, None] > 0, to_levels(grid, flat, ops), xp.float32(0))
        return xp.sum(round_checked(grid, levels, coins, "grid", ops), axis=0, dtype=xp.int32)

    def _shortened(self, rows: Tree, norms: list[Array | None]) -> Tree:
        """Shorten each layer to its share: L of them, each C/√L at most, are together at most C long."""
        share = self.mechanism.grid.radius / sum(norm is not None for norm in norms) ** 0.5
        weights = [None if norm is None else clip_weights(norm, share, self.use.ops) for norm in norms]

        def shorter(leaf: Array, weight: Array) -> Array:
            return leaf * weight.reshape(-1, *(1,) * (leaf.ndim - 1))

        return tuple(
            layer if weight is None else trees.map(lambda leaf, weight=weight: shorter(leaf, weight), layer)
            for layer, weight in zip(rows, weights, strict=True)
        )
