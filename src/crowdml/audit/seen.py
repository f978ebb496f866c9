"""Seen: what whoever attacks sees of one release, with noise and without, and how far apart two worlds may be in it.

- `Messages`: integers on the grid, and counts. In a secure sum nobody sees one message. What is attacked is what a
  server sees together with all corrupt devices: one device's release, and the shares of noise of as many honest
  survivors as the promise counts on, each drawn by itself.
- `StepSums`: noise in every local step. The proof lets whoever attacks see the noisy sum of every step, which is more
  than the change that is sent: so those sums are attacked, at parameters of the attacker's choice. Steps are cut short
  to a few rows, since noise and bound are the same for any number. `canaries` and `whole_check_ins` look at the
  messages themselves.

Either has a weakened form, in which the device adds half the noise: a planted bug.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from crowdml.algorithms import Phase
from crowdml.algorithms.device_parts.local_steps import LocalSteps
from crowdml.algorithms.device_parts.personal import WithPersonal
from crowdml.algorithms.rates import Constant, Rate
from crowdml.core import NUMPY, Array, Batch, Broadcast, CheckIn, Coins, GridCoins, Release, record, trees
from crowdml.core.ops import Tree, ZeroCoins
from crowdml.device.entropy_coins import DeviceCoins
from crowdml.privacy.noise.counts import CountNoise
from crowdml.privacy.noise.grid import GridMechanism
from crowdml.privacy.noise.laws import NoiseLaw
from crowdml.privacy.sanitisers.base import Use
from crowdml.privacy.sanitisers.grid_steps import InTurn

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[Any]
CONTROL = 0.5
"""Noise of the control, in parts of what was promised."""
PROBED = 1 << 12
"""Levels of noise by which it is tried out what a level makes of a message."""
FEW_ROWS = 4
"""Rows of a step that is attacked."""


def ratio_of_laplace(seen: Floats, one: Floats, other: Floats, scale: float) -> Floats:
    """Return the logarithm of the likelihood ratio of the two worlds, under Laplace noise."""
    found: Floats = ((np.abs(seen - other) - np.abs(seen - one)) / scale).sum(axis=-1)
    return found


def ratio_of_gaussian(seen: Floats, one: Floats, other: Floats, scale: float) -> Floats:
    """Return the same under Gaussian noise, or noise close to it."""
    found: Floats = ((seen - (one + other) / 2) @ (one - other)) / scale**2
    return found


def ratio_of_lengths(seen: Floats, one: Floats, other: Floats, scale: float) -> Floats:
    """Return the same where the density falls with the length of the noise."""
    found: Floats = (np.linalg.norm(seen - other, axis=-1) - np.linalg.norm(seen - one, axis=-1)) / scale
    return found


RATIOS: dict[str, Callable[[Floats, Floats, Floats, float], Floats]] = {
    "discrete-laplace": ratio_of_laplace,
    "rounded-gaussian": ratio_of_gaussian,
    "discrete-gaussian": ratio_of_gaussian,
    "skellam": ratio_of_gaussian,
    "laplace": ratio_of_laplace,
    "gaussian": ratio_of_gaussian,
    "k-norm": ratio_of_lengths,
}
"""Logarithms of likelihood ratios, by law; by the lemma of Neyman and Pearson no other statistic tells more."""


@record
class Seen(abc.ABC):
    """One kind of release, as it is attacked.

    Attributes:
        phase: What the device does.
    """

    phase: Phase

    dtype: ClassVar[type] = np.int32
    """Of the numbers that get noise."""

    @property
    @abc.abstractmethod
    def law(self) -> NoiseLaw:
        """The noise law."""

    @property
    @abc.abstractmethod
    def scale(self) -> float:
        """Scale of one share of the noise on each number."""

    @property
    def order(self) -> int:
        """The norm in which messages are bounded."""
        return self.law.order

    @property
    def shares(self) -> int:
        """Shares of noise that are in what the server sees."""
        return 1

    @property
    def counts(self) -> CountNoise | None:
        """Noise on counts; None where they are not sent."""
        return None

    @property
    @abc.abstractmethod
    def rows(self) -> int | None:
        """Rows of a batch that is attacked; None: as many as the task says."""

    def coins(self) -> Any:
        """Return fresh coins: those of a device."""
        return DeviceCoins()

    @abc.abstractmethod
    def plain(self, broadcast: Broadcast, work: Tree, batch: Batch, coins: Coins) -> tuple[Release, Tree]:
        """Let the device part work; return what gets noise, and what the device remembers."""

    @abc.abstractmethod
    def noisy(self, release: Release, coins: Coins) -> CheckIn:
        """Add noise, one share of it; a release may have many lines."""

    def level(self, broadcast: Broadcast, work: Tree, batch: Batch) -> Floats:
        """Return what one level of noise makes of each number that a device sends."""
        return np.ones(1)

    @abc.abstractmethod
    def weakened(self, factor: float = CONTROL) -> Seen:
        """Return the same, but that the device adds less noise than it says: a planted bug."""

    @abc.abstractmethod
    def score(self, sent: CheckIn, one: Release, other: Release) -> float:
        """Return how much likelier one whole check-in is in the first world than in the second.

        Args:
            sent: The check-in.
            one: What the device makes of the first world, without any noise.
            other: The same of the second.
        """

    @abc.abstractmethod
    def allowed(self, whole_device: bool) -> float:
        """Return how far apart messages may be: ε for Laplace noise, μ² for Gaussian."""

    def distance(self, difference: Floats) -> float:
        """Return how far apart two messages are, in the same units."""
        scale = self.scale * math.sqrt(self.shares)
        if self.order == 1:
            return float(np.abs(difference).sum() / scale)
        return float((difference**2).sum() / scale**2)

    def ratio(self, seen: Floats, one: Floats, other: Floats) -> Floats:
        """Return log-likelihood ratios of what is seen, a line for each, with all shares of noise in it."""
        return RATIOS[self.law.name](seen, one, other, self.scale * math.sqrt(self.shares))


class OnGrid(Seen):
    """What integers have in common."""

    @property
    @abc.abstractmethod
    def mechanism(self) -> GridMechanism:
        """Bound and noise."""

    @property
    def law(self) -> NoiseLaw:
        """Of the mechanism."""
        return self.mechanism.law

    @property
    def scale(self) -> float:
        """Of the mechanism, in levels."""
        return self.mechanism.scale

    def allowed(self, whole_device: bool) -> float:
        """As the ledger charges."""
        mechanism = self.mechanism
        event = mechanism.event if whole_device else mechanism.event_of_sample
        return event.pure if self.order == 1 else 2 * event.rho


class Messages(OnGrid):
    """Integers with their noise, as they are sent."""

    @property
    def mechanism(self) -> GridMechanism:
        """Of the sanitiser."""
        found = self.phase.sanitiser.on_grid
        if found is None:
            raise ValueError("only integers on a grid are attacked")
        return found

    @property
    def shares(self) -> int:
        """As many as there are honest survivors at least."""
        shared = self.phase.sanitiser.shared
        return 1 if shared is None else shared.survivors

    @property
    def counts(self) -> CountNoise | None:
        """Of the sanitiser."""
        return self.phase.sanitiser.counts

    @property
    def rows(self) -> int | None:
        """As the task says."""
        return None

    def plain(self, broadcast: Broadcast, work: Tree, batch: Batch, coins: Coins) -> tuple[Release, Tree]:
        """Let the device part work."""
        return self.phase.device.step(broadcast, work, batch, coins)

    def noisy(self, release: Release, coins: Coins) -> CheckIn:
        """Let the sanitiser add it."""
        return self.phase.sanitiser.noise(release, (), coins)[0]

    def score(self, sent: CheckIn, one: Release, other: Release) -> float:
        """Return the log-likelihood ratio of the update."""
        seen, first, second = (flattened(each.update).astype(np.float64) for each in (sent, one, other))
        return float(RATIOS[self.mechanism.law.name](seen, first, second, self.mechanism.scale))

    def weakened(self, factor: float = CONTROL) -> Messages:
        """Lessen the scales that the sanitiser draws by."""
        sanitiser, mechanism = self.phase.sanitiser, self.mechanism
        weak = replace(sanitiser, bound_to=less_noise(sanitiser.use, sanitiser.scales, factor))
        if mechanism.law.static_scale:
            # These are drawn from a table that is made from the mechanism's own scale, of four binary places.
            scale = max(1, round(16 * factor * mechanism.scale)) / 16
            counts = sanitiser.counts
            less: dict[str, Any] = {"mechanism": replace(mechanism, scale=scale)}
            if counts:
                less["counts"] = replace(counts, errors=counts.errors * factor, spread=counts.spread * factor)
            weak = replace(weak, **less)
        return Messages(phase=replace(self.phase, sanitiser=weak))


class StepSums(OnGrid):
    """Sums of checked integers, each with the noise of its step."""

    @staticmethod
    def of(phase: Phase) -> StepSums:
        """Cut steps short; rates that make no multiple of a sum are left out, so that changes can be read."""
        steps, walk = _steps_of(phase), _walk_of(phase)
        rate = steps.rate if _is_multiple(steps.rate, steps.zeros()) else Constant(c=1.0).build(np.float32(1), NUMPY)
        work = replace(walk.work, size=min(FEW_ROWS, walk.work.size), rate=rate)
        cut = replace(phase, device=replace(steps, rate=rate))
        return StepSums(phase=_with_walk(cut, replace(walk, work=work)))

    @property
    def walk(self) -> InTurn:
        """What takes the steps."""
        return _walk_of(self.phase)

    @property
    def mechanism(self) -> GridMechanism:
        """Of a step."""
        return self.walk.mechanism

    @property
    def rows(self) -> int | None:
        """Those of one step."""
        return self.walk.work.size

    def plain(self, broadcast: Broadcast, work: Tree, batch: Batch, coins: Coins) -> tuple[Release, Tree]:
        """Sum what a step sums, at the parameters that are broadcast."""
        found = self.walk.work.objective.gradients(broadcast.parameters, batch)
        total = self.walk.checked_sum(found, batch.mask, cast(GridCoins, coins))
        return Release(update=total, rows=batch.count(np)), work

    def noisy(self, release: Release, coins: Coins) -> CheckIn:
        """Let the step add it."""
        noisy = self.walk.noised(release.update, cast(GridCoins, coins))
        return CheckIn(update=noisy, weight=np.int32(1), counts=())

    def level(self, broadcast: Broadcast, work: Tree, batch: Batch) -> Floats:
        """Try it out: with noise of a given number of levels, and without."""
        made = [
            flattened(self.phase.device.step(broadcast, work, batch, GivenNoise(levels))[0].update)
            for levels in (0, PROBED)
        ]
        return (made[1] - made[0]) / PROBED

    def score(self, sent: CheckIn, one: Release, other: Release) -> float:
        """Return where between the worlds a change is that was sent, in parts of their distance.

        A step moves parameters by a multiple of its sum, so that is the log-likelihood ratio but for a factor, which is
        the same for all.
        """
        seen, first, second = (flattened(each.update).astype(np.float64) for each in (sent, one, other))
        apart = first - second
        return float((seen - (first + second) / 2) @ apart / max(float(apart @ apart), 1e-300))

    def weakened(self, factor: float = CONTROL) -> StepSums:
        """Lessen the scale that steps draw by."""
        use = less_noise(self.walk.use, self.phase.sanitiser.scales, factor)
        return StepSums(phase=_with_walk(self.phase, replace(self.walk, use=use)))


def seen_of(phase: Phase) -> Seen:
    """Say what of a phase is attacked: its messages, or what goes into its steps."""
    return StepSums.of(phase) if phase.sanitiser.noise_in_steps else Messages(phase=phase)


def flattened(tree: Any) -> Numbers:
    """Return all numbers of a message as one vector; whole ones in 64 bits."""
    flat = np.concatenate([np.asarray(leaf).ravel() for leaf in trees.leaves(tree)])
    return flat.astype(np.int64) if flat.dtype.kind in "iu" else flat.astype(np.float64)


def less_noise(use: Use, scales: Mapping[str, float], factor: float) -> Use:
    """Return a use of a sanitiser by which less noise is drawn."""
    return replace(use, scales=dict(use.scales) | {name: use.scales[name] * factor for name in scales})


class GivenNoise(ZeroCoins):
    """Coins by which all noise is a given number of levels.

    Args:
        levels: How many.
    """

    def __init__(self, levels: int) -> None:
        super().__init__()
        self._levels = levels

    def rounded_gaussian(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """The given number."""
        return np.full(shape, self._levels, np.int32)

    def retry(self, number: Array) -> GivenNoise:
        """The same again."""
        return self


def _is_multiple(rate: Rate, zeros: Tree) -> bool:
    """Tell whether a first step is a multiple of what it is made of."""

    def change(by: float) -> Floats:
        made: Floats = flattened(rate.step(rate.init(zeros), trees.map(lambda leaf: leaf + by, zeros), np.int32(1))[0])
        return made

    return np.allclose(2 * change(0.5), change(1.0), rtol=1e-4) and bool(np.any(change(1.0)))


def _steps_of(phase: Phase) -> LocalSteps:
    device = phase.device.shared if isinstance(phase.device, WithPersonal) else phase.device
    if not isinstance(device, LocalSteps):
        raise TypeError("noise in steps is that of local steps")
    return device


def _walk_of(phase: Phase) -> InTurn:
    walk = _steps_of(phase).walk
    if not isinstance(walk, InTurn):
        raise TypeError("noise in steps is that of steps in turn")
    return walk


def _with_walk(phase: Phase, walk: InTurn) -> Phase:
    """Return a phase whose device takes these steps; what it keeps for its owner is left out."""
    return replace(phase, device=replace(_steps_of(phase), walk=walk))
