"""Simulated noise, as it is attacked: what mode `paper` adds to messages, and to sums of local steps.

Noise in floating point protects nobody: whoever looks at single bits undoes it. So what is attacked is the formula, and
not the arithmetic: would its noise keep what the paper claims, if it were drawn exactly?
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np

from crowdml.algorithms import Phase
from crowdml.algorithms.device_parts.local_steps import LocalSteps
from crowdml.audit.neighbours import Bench, Pair
from crowdml.audit.seen import CONTROL, Floats, Seen, flattened, less_noise
from crowdml.audit.worlds import Sent
from crowdml.core import Array, Batch, Broadcast, CheckIn, Coins, Release, record, trees
from crowdml.core.ops import Tree
from crowdml.privacy.calibration.private_steps import PrivateSteps
from crowdml.privacy.noise.counts import CountNoise
from crowdml.privacy.noise.laws import MECHANISMS, NoiseLaw
from crowdml.privacy.promise import Sampled
from crowdml.privacy.sanitisers.paper import Paper
from crowdml.privacy.sanitisers.walks import ByChance


class SimulatedCoins:
    """Coins of a simulation, that begins anew every time."""

    def __init__(self) -> None:
        self._generator = np.random.default_rng()

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Between 0 and 1."""
        return self._generator.random(shape, np.float32)

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Of scale 1."""
        return self._generator.laplace(size=shape)

    def gaussian(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Of deviation 1."""
        return self._generator.standard_normal(shape)

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """The difference of two geometric draws."""
        chance = -math.expm1(-1 / scale)
        return (self._generator.geometric(chance, shape) - self._generator.geometric(chance, shape)).astype(np.int32)


class PaperMessages(Seen):
    """Means of bounded gradients, or messages of a paper's own, with a paper's noise; as sums, whose noise is known."""

    dtype: ClassVar[type] = np.float64

    @property
    def sanitiser(self) -> Paper:
        """What adds the noise."""
        return cast(Paper, self.phase.sanitiser)

    @property
    def law(self) -> NoiseLaw:
        """Of the mechanism."""
        return self.sanitiser.mechanism.law

    @property
    def scale(self) -> float:
        """For a sum; a part of it where several devices add theirs."""
        return self.sanitiser.mechanism.noise / math.sqrt(self.sanitiser.use.among or 1)

    @property
    def shares(self) -> int:
        """As many as there are devices in a sum whose noise counts."""
        return math.ceil(self.sanitiser.use.among or 1)

    @property
    def counts(self) -> CountNoise | None:
        """Of the sanitiser."""
        return self.sanitiser.counts

    @property
    def rows(self) -> int | None:
        """As the task says."""
        return None

    def coins(self) -> Any:
        """Those of a simulation."""
        return SimulatedCoins()

    def plain(self, broadcast: Broadcast, work: Tree, batch: Batch, coins: Coins) -> tuple[Release, Tree]:
        """Let the device part work, and take the sum for the mean."""
        release, work = self.phase.device.step(broadcast, work, batch, coins)
        rows = 1 if self.sanitiser.use.among else int(release.rows)
        update = trees.map(lambda leaf: np.asarray(leaf, np.float64) * rows, release.update)
        return replace(release, update=update, rows=np.int32(1)), work

    def noisy(self, release: Release, coins: Coins) -> CheckIn:
        """Let the sanitiser add it; where a message is drawn as one vector, line by line."""
        if self.law.whole:
            lines = [replace(release, update=line) for line in np.atleast_2d(release.update)]
            update: Any = np.array([self.sanitiser.perturbed(line, (), coins)[0] for line in lines])
        else:
            update = self.sanitiser.perturbed(release, (), coins)[0]
        counts = self.counts.add(release.counts, self.sanitiser.use.scales, coins) if self.counts else ()
        return CheckIn(update=update, weight=np.int32(1), counts=counts if release.counts else ())

    def weakened(self, factor: float = CONTROL) -> PaperMessages:
        """Lessen the scales that the sanitiser draws by."""
        weak = replace(self.sanitiser, bound_to=less_noise(self.sanitiser.use, self.sanitiser.scales, factor))
        return PaperMessages(phase=replace(self.phase, sanitiser=weak))

    def score(self, sent: CheckIn, one: Release, other: Release) -> float:
        """Return the log-likelihood ratio of the update."""
        seen, first, second = (flattened(each.update) for each in (sent, one, other))
        return float(self.ratio(seen, first, second))

    def allowed(self, whole_device: bool) -> float:
        """As the formula says: the sensitivity over the noise, or its square."""
        mechanism = self.sanitiser.mechanism
        found = mechanism.bound.sensitivity / mechanism.noise
        return found if self.law.pure else found**2

    def distance(self, difference: Floats) -> float:
        """Return how far apart two messages are; where the noise is one vector's, by their lengths."""
        if self.law.whole:
            return float(np.linalg.norm(difference)) / self.scale
        return super().distance(difference)


@record
class SampledSteps(Sent):
    """All local steps of a task in two worlds: in each the row is taken by chance, with Gaussian noise on the sum.

    Attributes:
        each: How a step takes rows.
        noise: Deviation of the noise, as the device draws it.
    """

    each: Sampled
    noise: float

    def statistic(self, world: int, trials: int, coins: Coins, seen: Seen, counted: bool = True) -> Floats:
        """Return the log-likelihood ratio of the mixtures, added up over all steps."""
        gaussian, share, total = MECHANISMS["gaussian"], self.each.share, np.zeros(trials)
        one, other = (made[0] for made in self.updates)
        row = self.updates[world][0]
        drawn_by = self.noise * (seen.scale / self.seen.scale)
        for _ in range(self.times):
            taken = np.asarray(coins.uniform("rows", (trials, 1))) < share
            sums = taken * row + gaussian.draw(coins, "step", drawn_by, (trials, len(row)))
            total += self._mixed(sums, one) - self._mixed(sums, other)
        return total

    def _mixed(self, sums: Floats, row: Floats) -> Floats:
        """Return ln((1 - q) + q p(sums, with the row) / p(sums, without))."""
        ratio = (sums @ row - row @ row / 2) / self.noise**2
        found: Floats = np.logaddexp(math.log1p(-self.each.share), math.log(self.each.share) + ratio)
        return found


class ChanceSums(PaperMessages):
    """Sums of steps that take rows by chance: what a row adds to one, without noise."""

    @property
    def walk(self) -> ByChance:
        """What takes the steps."""
        device = self.phase.device
        if not isinstance(device, LocalSteps) or not isinstance(device.walk, ByChance):
            raise TypeError("noise in steps is that of local steps that take rows by chance")
        return device.walk

    @property
    def law(self) -> NoiseLaw:
        """Gaussian."""
        return MECHANISMS["gaussian"]

    @property
    def scale(self) -> float:
        """Deviation of the noise on a sum, as it is drawn."""
        return float(self.walk.use.scales["noise"])

    @property
    def shares(self) -> int:
        """All of it is the device's own."""
        return 1

    @property
    def counts(self) -> CountNoise | None:
        """None are sent."""
        return None

    @property
    def rows(self) -> int | None:
        """The row that is taken or not; another keeps it company."""
        return 2

    def plain(self, broadcast: Broadcast, work: Tree, batch: Batch, coins: Coins) -> tuple[Release, Tree]:
        """Sum what the first row adds."""
        only = np.array([1.0, *[0.0] * (len(batch.mask) - 1)], np.float32)
        found = self.walk.bounded_total(self.walk.work.objective.gradients(broadcast.parameters, batch), only)
        return Release(update=trees.map(lambda leaf: np.asarray(leaf, np.float64), found), rows=np.int32(1)), work

    def weakened(self, factor: float = CONTROL) -> ChanceSums:
        """Lessen the scale that steps draw by."""
        use = less_noise(self.walk.use, {"noise": self.scale}, factor)
        steps = self.phase.device
        assert isinstance(steps, LocalSteps)  # noqa: S101  `walk` has looked
        return ChanceSums(phase=replace(self.phase, device=replace(steps, walk=replace(self.walk, use=use))))

    def allowed(self, whole_device: bool) -> float:
        """As far as two rows may be apart that are both taken."""
        return (2 * self.walk.steps.radius / self.scale) ** 2


def sampled_steps(bench: Bench, pair: Pair, steps: PrivateSteps, count: int) -> SampledSteps:
    """Let a step sum what the row adds in either world; where rows may be missing, the second world has none.

    Args:
        bench: The task.
        pair: The two worlds.
        steps: What is drawn, and how.
        count: Steps of the task.
    """
    seen = bench.seen[-1]
    made = [flattened(seen.plain(pair.broadcast, (), batch, seen.coins())[0].update) for batch in bench.batches(pair)]
    if steps.each.sampling == "poisson":
        made[1] = np.zeros_like(made[0])
    # Noise is the same on every number, so only the plane of both rows matters: here, their coordinates in it.
    basis = np.linalg.qr(np.array(made).T)[0]
    updates = tuple((row @ basis)[None] for row in made)
    return SampledSteps(
        seen=seen,
        updates=(updates[0], updates[1]),
        counts=(),
        times=count,
        each=steps.each,
        noise=seen.scale,
    )


def simulated(phase: Phase) -> Seen:
    """Say what of a phase in mode `paper` is attacked."""
    return ChanceSums(phase=phase) if phase.sanitiser.noise_in_steps else PaperMessages(phase=phase)
