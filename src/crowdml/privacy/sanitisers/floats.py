"""Sanitisers over real numbers: what all of them share, `none`, and noise of a fixed size.

A device sends the mean of its rows' gradients (with the regulariser, which is public) or a whole message, and noise is
added once. They differ in three things only: whether examples are clipped, how large the noise is, what it costs. All
but `none` exist in simulation only.
"""

from __future__ import annotations

from typing import Any, Literal

from crowdml.core import Array, CheckIn, Coins, Release, record, tree_record, trees
from crowdml.core.ops import Tree
from crowdml.privacy.accounting import Terms
from crowdml.privacy.cost import Cost
from crowdml.privacy.limits import plain_problem
from crowdml.privacy.noise.laws import NoiseLaw, add_noise
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
from crowdml.privacy.sanitisers.walks import InOrder

SIMULATED = "simulated noise, so nothing is promised to anyone"


class Floats(Sanitiser):
    """What all of them share. Noise in floating point is no exact draw."""

    simulated = True

    def bound_examples(self, found: ExampleGradients, training: Array, public: Public, coins: Coins) -> Tree:
        """Take the mean, and add what is public."""
        return plus(found.total(mean_weights(training, self.use.ops) * self.clipping(found)), public())

    def clipping(self, found: ExampleGradients) -> Array:
        """Return the factor that bounds each example."""
        return self.use.ops.xp.float32(1)

    def bound_message(self, vector: Tree, coins: Coins) -> Tree:
        """Leave it as it is: nothing bounds it."""
        return vector

    def bound_statistic(self, statistic: Statistic, rows: Array) -> Array:
        """Take the mean."""
        return statistic.plain() / self.use.ops.xp.maximum(rows, 1).astype(self.use.ops.xp.float32)

    def walk(self, work: LocalWork) -> Walk:
        """Take rows as they come."""
        require_rows_in_turn(work)
        return InOrder(work=work, use=self.use)

    def noise(self, release: Release, memory: Tree, coins: Coins) -> tuple[CheckIn, Tree]:
        """Add noise once, then multiply by the weight that the server divides by."""
        update, memory = self.perturbed(release, memory, coins)
        weight = release.rows if self.weighs_rows else self.use.ops.xp.int32(1)
        if not self.use.alone:
            share = self.use.ops.xp.float32(weight)
            update = trees.map(lambda leaf: leaf * share, update)
        counts = self.counts.add(release.counts, self.use.scales, coins) if self.counts and release.counts else ()
        return CheckIn(update=update, weight=weight, counts=counts), memory

    def perturbed(self, release: Release, memory: Tree, coins: Coins) -> tuple[Tree, Tree]:
        """Add the noise to an update, none here; return it, and what the noise remembers."""
        return release.update, memory

    @property
    def weighs_rows(self) -> bool:
        """As the recipe says."""
        return self.use.by_rows

    def read(self, check_in: CheckIn, public: Public) -> tuple[Tree, Array]:
        """Take it as it is: devices have added what is public."""
        return check_in.update, check_in.weight

    def cost(self, uses: int, rows: int | None = None) -> Cost | None:
        """Nothing can be stated where nothing is bounded."""
        return None

    def problem(self, check_in: CheckIn, most_rows: int | None) -> str | None:
        """Look whether numbers are usual ones; nothing else bounds an honest device."""
        return plain_problem(check_in, most_rows, alike=not self.weighs_rows)


@record
class NoNoise(Floats):
    """Mode `none`: no bound, no noise, no promise; live, too."""

    promises = False
    simulated = False
    adds_noise = False

    def deviation_of(self, batch: int) -> float | None:
        """There is none."""
        return 0.0

    def summary(self, releases: int, batch: int) -> dict[str, Any]:
        """Say so."""
        return {"guarantee": "no formal guarantee"}

    def describe(self) -> dict[str, str]:
        """Everything is in clear."""
        return {"update": "in clear"}


@tree_record
class Sent:
    """How many releases a device has made."""

    releases: Array


@record
class Fixed(Floats):
    """Noise of a given size on each message. Without a bound no ε can be stated.

    Attributes:
        law: The noise law.
        scale: The law's scale for the first message.
        deviation: Standard deviation of each number of the first message; of the fresh noise behind each message where
            messages are correlated.
        sequence: How the scale goes on: the same for all messages, times `factor` from one of a device's contacts to
            the next, or in proportion to the learning rate; `banded`: see `Correlated`.
        factor: For the geometric sequence.
    """

    law: NoiseLaw
    scale: float
    deviation: float
    sequence: Literal["iid", "geometric", "rate", "banded"]
    factor: float

    promises = False

    @property
    def wants_count(self) -> bool:
        """Where noise follows the rate."""
        return self.sequence == "rate"

    @property
    def scales(self) -> dict[str, float]:
        """The law's scale for the first message."""
        return {"noise": self.scale}

    def memory(self) -> Tree:
        """Count releases, for a geometric sequence."""
        return Sent(releases=self.use.ops.xp.int32(0)) if self.sequence == "geometric" else ()

    def scale_of(self, release: Release, memory: Tree = ()) -> Array:
        """Scale of the noise on this message."""
        xp, factor = self.use.ops.xp, 1.0
        if self.sequence == "geometric":
            factor = xp.float32(self.factor) ** memory.releases.astype(xp.float32)
        if self.sequence == "rate":
            assert self.use.rate_share is not None  # noqa: S101  the recipe has a rate, or `task_checks` refuses
            factor = self.use.rate_share(release.count)
        return self.use.scales["noise"] * factor

    def deviation_of(self, batch: int) -> float | None:
        """As given, where it stays so."""
        return self.deviation if self.sequence == "iid" else None

    def perturbed(self, release: Release, memory: Tree, coins: Coins) -> tuple[Tree, Tree]:
        """Add it, and count."""
        noisy = add_noise(self.law, release.update, self.scale_of(release, memory), coins, self.use.stage)
        if self.sequence == "geometric":
            memory = Sent(releases=memory.releases + self.use.ops.xp.int32(1))
        return noisy, memory

    def describe(self) -> dict[str, str]:
        """Say law and deviation."""
        said = f"{self.law.name} noise of s.d. {self.deviation:.3g}, simulated"
        return {"update": said} | (self.counts.describe() if self.counts else {})

    def words(self, terms: Terms) -> str:
        """Say that no ε can be stated."""
        return "No formal guarantee: for noise given by its standard deviation no ε can be stated."

    def summary(self, releases: int, batch: int) -> dict[str, Any]:
        """Say law and deviation."""
        return {
            "noise": f"{self.law.name} of s.d. {self.deviation:.3g} on each number of a message",
            "guarantee": "no formal guarantee: for noise given by its s.d. no ε can be stated",
        }
