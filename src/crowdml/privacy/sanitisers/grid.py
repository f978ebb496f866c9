"""Sound mode: integers on a grid, checked, with integer noise. Nothing in floating point leaves the device.

A vector is clipped, rounded and checked; integers are summed; integer noise is added; the server scales. The vector is
each example's gradient (unit sample), the mean gradient of the batch (unit device), what local steps have changed, or a
statistic that makes checked integers of itself.

A message that is a sum of bounded examples carries their number and counts for as much. A message that is bounded as a
whole counts as one: then the noise of a mean is least, and nothing has to be said about the number of rows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from crowdml.core import Array, CheckIn, Coins, GridCoins, Release, record, trees
from crowdml.core.ops import Tree
from crowdml.privacy.accounting import Terms
from crowdml.privacy.calibration.least_noise import Wanted, calibrate
from crowdml.privacy.cost import Cost
from crowdml.privacy.limits import GridLimits, grid_limits
from crowdml.privacy.noise.counts import laplace_variance
from crowdml.privacy.noise.grid import GridMechanism, round_checked, to_levels
from crowdml.privacy.noise.shares import Shared
from crowdml.privacy.sanitisers.base import Public, Sanitiser
from crowdml.privacy.sanitisers.local_work import (
    ExampleGradients,
    LocalWork,
    Statistic,
    Walk,
    mean_weights,
    plus,
    require_rows_in_turn,
)
from crowdml.privacy.sanitisers.walks import InOrder, Stable


@record
class OnGrid(Sanitiser):
    """Bound and noise of one kind of release of a sound task; ε is a *total* over all releases, counts included.

    Attributes:
        mechanism: Bound and noise of the update.
        first: Whether another kind of release follows: this one's noise then has a name of its own.
        one_epsilon: Whether there is one ε for all: everybody's noise protects everybody, or squares of rows are sent.
    """

    mechanism: GridMechanism
    first: bool = False
    one_epsilon: bool = False

    @property
    def weighs_rows(self) -> bool:
        """A sum of examples does; a message that is bounded as a whole counts as one."""
        return self.mechanism.grid.per == "example"

    @property
    def in_order(self) -> bool:
        """Rows are looked at before the steps where a proof asks for it."""
        return self.mechanism.stable is None

    def deviation_of(self, batch: int) -> float | None:
        """Follow from levels, where a device adds all its noise by itself."""
        if self.mechanism.shared:
            return None
        scale, grid = self.mechanism.scale, self.mechanism.grid
        levels = math.sqrt(laplace_variance(scale)) if grid.order == 1 else scale
        return levels * grid.step / (batch if self.weighs_rows else 1)

    @property
    def scales(self) -> dict[str, float]:
        """In levels."""
        return {self._scale_name: self.mechanism.scale} | (self.counts.scales if self.counts else {})

    @property
    def _scale_name(self) -> str:
        return "first_noise" if self.first else "noise"

    def structure(self) -> str:
        """Grid and law are fixed in compiled code; so are Skellam's scales, since its draws come from a table."""
        law = self.mechanism.law
        tables = f"{self.mechanism.scale} {self.counts}" if law.static_scale else ""
        return f"{self.mechanism.grid}, {self.mechanism.stable is not None}, {law.name} {tables}"

    def bound_examples(self, found: ExampleGradients, training: Array, public: Public, coins: Coins) -> Tree:
        """Sum checked integers over examples, or make integers of the mean. The server adds what is public."""
        if self.weighs_rows:
            return trees.cut(self._on_grid(found.rows(), training, coins), self.use.like())
        return self.bound_message(found.total(mean_weights(training, self.use.ops)), coins)

    def bound_message(self, vector: Tree, coins: Coins) -> Tree:
        """Make checked integers of a message."""
        xp = self.use.ops.xp
        one = trees.map(lambda leaf: leaf[None], vector)
        return trees.cut(self._on_grid(one, xp.ones((1,), dtype=xp.float32), coins), vector)

    def bound_statistic(self, statistic: Statistic, rows: Array) -> Array:
        """Let it make checked integers of itself."""
        return self._as_sent(statistic.on_grid(self.mechanism.grid))

    def walk(self, work: LocalWork) -> Walk:
        """Take rows as they come; where there is a proof, as it assumes."""
        require_rows_in_turn(work)
        stable = self.mechanism.stable
        if stable and work.proximal is not None:
            raise ValueError("nothing is proven of steps that are pulled back: leave proximal out")
        if stable and work.wide_factor is None:
            raise ValueError("steps with a proof need their rate in wide numbers: give LocalWork a wide_factor")
        return Stable(work=work, stable=stable, use=self.use) if stable else InOrder(work=work, use=self.use)

    def noise(self, release: Release, memory: Tree, coins: Coins) -> tuple[CheckIn, Tree]:
        """Add noise of whole numbers to every integer."""
        law = self.mechanism.law
        # A Skellam table is made before anything is compiled, so its scale is never traced.
        scale = self.mechanism.scale if law.static_scale else self.use.scales[self._scale_name]
        drawn = law.draw(coins, self.use.stage, scale, (trees.size(release.update),))
        noisy = plus(release.update, trees.cut(drawn, release.update))
        update = trees.map(lambda leaf: leaf.astype(self.use.ops.xp.int32), noisy) if self.shared else noisy
        weight = release.rows if self.weighs_rows else self.use.ops.xp.int32(1)
        counts = self.counts.add(release.counts, self.use.scales, coins) if self.counts and release.counts else ()
        return CheckIn(update=update, weight=weight, counts=counts), memory

    def read(self, check_in: CheckIn, public: Public) -> tuple[Tree, Array]:
        """Scale, and add what is public. Many check-ins may stand below each other, weights as a column."""
        xp, weight, alone = self.use.ops.xp, check_in.weight, self.use.alone
        step = xp.float32(self.mechanism.grid.step)
        factor = step / xp.maximum(weight.astype(xp.float32), xp.float32(1)) if alone else step
        update = trees.map(lambda leaf: leaf.astype(xp.float32) * factor, check_in.update)
        more = public()
        if more is None:
            return update, weight
        share = xp.float32(1) if alone else weight.astype(xp.float32)
        return trees.map(lambda leaf, add: leaf + add * share, update, more), weight

    def describe(self) -> dict[str, str]:
        """Say grid and noise."""
        mechanism, grid = self.mechanism, self.mechanism.grid
        shared = mechanism.shared is not None
        said = (
            f"each {grid.per} clipped to {grid.radius:.3g} in L{grid.order}, rounded to {grid.levels} levels, checked; "
            f"{'a share of ' if shared else ''}{mechanism.law.name.replace('-', ' ')} noise of scale "
            f"{mechanism.scale:g} levels{'; then masked' if shared else ''}"
        )
        return {"update": said} | (self.counts.describe() if self.counts else {})

    def plainly(self) -> dict[str, str]:
        """Say to owners what is limited, and who adds the noise."""
        limited = "what one row can add is limited" if self.bounds_rows else "how much it can say is limited"
        added = "random noise is added on your device"
        if self.shared:
            added = "your device adds a share of random noise and hides it by a mask, so only a sum of many can be read"
        return dict.fromkeys(self.describe(), added) | {"update": f"{limited}, then {added}"}

    def integers(self, rows: int) -> tuple[int, float]:
        """Return the largest integer of a release over so many rows, and the largest deviation of the noise on one."""
        most = self.mechanism.grid.levels * (rows if self.weighs_rows else 1)
        return most, max(self.mechanism.scale, self.counts.errors if self.counts else 0.0)

    # What is proven.

    bounds_rows = weighs_rows
    # A sum of examples is bounded in each of them.

    @property
    def on_grid(self) -> GridMechanism | None:
        """Integers are what leaves a device."""
        return self.mechanism

    @property
    def shared(self) -> Shared | None:
        """In secure aggregation the shares of all survivors protect each."""
        return self.mechanism.shared

    def without_others(self) -> Sanitiser:
        """Keep nothing but this device's share."""
        if self.shared is None:
            return super().without_others()
        lone = replace(self.shared, survivors=1)
        counts = replace(self.counts, shared=lone) if self.counts else None
        return replace(self, mechanism=replace(self.mechanism, shared=lone), counts=counts)

    @property
    def moved_by_sample(self) -> float | None:
        """Where steps are proven to be stable."""
        return self.mechanism.stable.bound if self.mechanism.stable else None

    def cost(self, uses: int, rows: int | None = None) -> Cost:
        """Add up update and counts.

        A release that is bounded as a whole changes no more for all rows than for one; a sum of bounded examples
        changes in all of them.
        """
        whole = rows is not None and not self.bounds_rows
        each = Cost.of_event(self.mechanism.event if whole else self.mechanism.event_of_sample)
        if self.counts:
            each = each.plus(Cost.of_event(self.counts.event((rows or 1) if whole else 1)))
        return each.times(uses).grouped(1 if whole else rows or 1)

    def for_owner(self, terms: Terms, epsilon: float) -> tuple[OnGrid, Terms]:
        """Only the noise is another: nobody else's device and no server has to know. Counts keep their share of ε."""
        if self.one_epsilon:
            return self, terms
        wanted = Wanted(
            epsilon=epsilon,
            delta=terms.limit.delta,
            uses=terms.uses,
            unit=terms.unit,
            rows=terms.changing or 1,
            statistics=terms.share * epsilon if self.counts else 0.0,
            label_share=terms.label_share,
        )
        noise = self.mechanism
        mechanism, counts, limit = calibrate(noise.law, noise.grid, noise.stable, wanted)
        return replace(self, mechanism=mechanism, counts=counts), replace(terms, filter=limit)

    @functools.cached_property
    def limits(self) -> GridLimits:
        """What integers and norms of an honest check-in stay below: worked out once."""
        return grid_limits(self.mechanism, self.counts)

    def problem(self, check_in: CheckIn, most_rows: int | None) -> str | None:
        """Look at integers, norms, and what travels in clear."""
        return self.limits.problem(check_in, most_rows)

    def problems(self, check_ins: Sequence[CheckIn], most_rows: int | None) -> list[str | None]:
        """Look at several together."""
        return self.limits.problems(check_ins, most_rows)

    def summary(self, releases: int, batch: int) -> dict[str, Any]:
        """Say law, scale and bound."""
        mechanism, grid, moved = self.mechanism, self.mechanism.grid, self.moved_by_sample
        stable = f"; one sample moves it by at most {moved:.3g}, as its steps are stable" if moved is not None else ""
        survivors = mechanism.shared.survivors if mechanism.shared else 0
        shares = f"; in every secure sum at least {survivors} honest devices add their shares" if survivors else ""
        return {
            "noise": f"{mechanism.law.name} of scale {mechanism.scale:g} levels on each integer; one {grid.per} is at "
            f"most {grid.radius:.3g} in L{grid.order}, by clipping, on {grid.levels} levels{stable}{shares}",
            "guarantee": "replace-one; simulated noise, so nothing is promised to anyone",
        }

    def _on_grid(self, vectors: Tree, marks: Array, coins: Coins) -> Array:
        """Clip, round and check each of several vectors, and sum those that are marked."""
        xp, grid = self.use.ops.xp, self.mechanism.grid
        flat = xp.concatenate([leaf.reshape(len(marks), -1) for leaf in trees.leaves(vectors)], axis=1)
        levels = to_levels(grid, flat, self.use.ops)
        # Padding is zeroed before it is rounded: a row of zeros is never too long.
        levels = xp.where(marks[:, None] > 0, levels, xp.float32(0))
        k = round_checked(grid, levels, cast(GridCoins, coins), "grid", self.use.ops)
        return self._as_sent(xp.sum(k, axis=0, dtype=self.use.ops.long))

    def _as_sent(self, total: Array) -> Array:
        """Bring a sum into 32 bits where it is sent by itself: all that is proven of it holds modulo 2³².

        Under masks numbers may have more bits, and there a sum that had wrapped around would be another one: a row
        could move it by 2³², where noise hides its bound. So it stays as long as it is (`task.masking` adds the noise).
        """
        return total if self.shared else total.astype(self.use.ops.xp.int32)
