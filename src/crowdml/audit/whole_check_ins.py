"""Whole check-ins: made from beginning to end by the device's own code, through bytes, and their noise measured.

An attack looks at the numbers that differ between two worlds. Here all numbers are looked at: that the noise on them is
as much as was promised, and that no two check-ins have the same. So noise that is missing somewhere, drawn from a seed
that is used again, or kept from one release to the next, is found whatever the neighbours are.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from crowdml.audit.neighbours import Bench, Pair
from crowdml.audit.seen import Seen, flattened
from crowdml.core import Array, record
from crowdml.core.ops import ZeroCoins
from crowdml.device.entropy_coins import DeviceCoins
from crowdml.privacy.noise.counts import laplace_variance
from crowdml.wire import layouts, message

Floats = npt.NDArray[np.float64]


class RoundedAlike:
    """A device's coins, but that numbers are rounded to the nearest: so the release below the noise is known.

    Args:
        coins: A device's.
    """

    def __init__(self, coins: DeviceCoins) -> None:
        self._coins = coins

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Array:
        """One half."""
        return np.full(shape, 0.5, np.float32)

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Refuse, as the device does."""
        return self._coins.laplace(stage, shape)

    gaussian = laplace

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Draw as the device does."""
        return self._coins.discrete_laplace(stage, scale, shape)

    def discrete_gaussian(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Draw as the device does."""
        return self._coins.discrete_gaussian(stage, scale, shape)

    def rounded_gaussian(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Draw as the device does."""
        return self._coins.rounded_gaussian(stage, scale, shape)

    def skellam(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Draw as the device does."""
        return self._coins.skellam(stage, scale, shape)

    def retry(self, number: Array) -> RoundedAlike:
        """Round alike again."""
        return self


@record
class Measured:
    """The noise of whole check-ins, on all their numbers.

    Attributes:
        check_ins: How many were made, through bytes.
        numbers: Numbers that were compared with the release below them.
        share: Their mean square over what was promised.
        most: What that share may be at most, but for the stated error.
        repeated: Largest correlation between the noise of two check-ins.
        allowed: What fresh noise stays below, but for the stated error.
        counts_most: As `most`, of the noise on counts; infinite where none are sent.
    """

    check_ins: int
    numbers: int
    share: float
    most: float
    repeated: float
    allowed: float
    counts_most: float = math.inf

    @property
    def holds(self) -> bool:
        """Whether as much noise left as was promised, fresh each time."""
        return min(self.most, self.counts_most) >= 1.0 and self.repeated <= self.allowed


MEASURED = 20_000
"""Numbers whose noise is measured, at least; but in no more check-ins than `MOST_CHECK_INS`."""
FEWEST_CHECK_INS, MOST_CHECK_INS = 24, 150


def whole(bench: Bench, pair: Pair, seen: Seen, error: float) -> Measured:
    """Make check-ins from beginning to end, two by each device, and measure the noise on them.

    Args:
        bench: The task.
        pair: Its first world is used.
        seen: What is seen in the phase that lasts, or in a control's.
        error: Probability that honest noise is called too little, or repeated.
    """
    from scipy.special import ndtri

    promised = bench.seen[-1]
    law, scale, counts = promised.law, promised.scale, promised.counts
    noise, on_counts = _noise(bench, pair, seen)
    share, most = _share(noise**2 / _variance(law.name, scale), law.order, error / 3)
    counts_most = math.inf
    if counts is not None and on_counts.size:
        scales = [counts.errors, *[counts.errors if counts.shared else counts.spread] * (on_counts.shape[1] - 1)]
        variances = np.array([_variance(counts.law.name, each) for each in scales])
        counts_most = _share(on_counts**2 / variances, counts.law.order, error / 3)[1]
    pairs = len(noise) * (len(noise) - 1) / 2
    return Measured(
        check_ins=len(noise),
        numbers=noise.size,
        share=share,
        most=most,
        repeated=_likest(noise),
        allowed=min(0.999, -float(ndtri(error / 6 / pairs)) / math.sqrt(noise.shape[1])),
        counts_most=counts_most,
    )


def _noise(bench: Bench, pair: Pair, seen: Seen) -> tuple[Floats, Floats]:
    """Make check-ins, two by each device; return what was added to updates and to counts, a line for each."""
    batch, wire, updates, counts = bench.batches(pair)[0], None, list[Floats](), list[Floats]()
    phase, told, numbers = seen.phase, bench.first(), 1
    while len(updates) < min(MOST_CHECK_INS, max(FEWEST_CHECK_INS, MEASURED // numbers)):
        state = phase.begin()
        for _ in range(2):
            with np.errstate(all="ignore"):
                below = phase.device.step(told, state.work, batch, ZeroCoins())[0]
                level = seen.level(told, state.work, batch)
                sent, state = phase.contribute(told, state, batch, RoundedAlike(DeviceCoins()))
            wire = wire or layouts(told, sent)
            received = wire.check_in.decode(wire.check_in.encode(message(0, sent)))["content"]
            updates.append((flattened(received.update) - flattened(below.update)) / level)
            numbers = len(updates[0])
            if below.counts:
                both = [np.append(each.counts.errors, each.counts.spread) for each in (received, below)]
                counts.append((both[0] - both[1]).astype(np.float64))
    return np.array(updates), np.array(counts)


def _share(squares: Floats, order: int, error: float) -> tuple[float, float]:
    """Return the mean of squares over their variances, and what it may be at most, but for the error.

    The mean of n squares of draws of kurtosis κ scatters by √((κ - 1)/n). It is skewed: too little is rarer than so.
    """
    from scipy.special import ndtri

    kurtosis, share = 6.0 if order == 1 else 3.0, float(np.mean(squares))
    return share, share - float(ndtri(error)) * math.sqrt((kurtosis - 1) / squares.size)


def _variance(law: str, scale: float) -> float:
    """Return the variance of a draw."""
    if law == "discrete-laplace":
        return laplace_variance(scale)
    if law != "rounded-gaussian":
        return scale**2
    # Rounding adds a twelfth of a level, and something else where the noise is not much larger than a level.
    width = math.ceil(12 * scale) + 2
    return scale**2 + 1 / 12 if width > 10_000 else _rounded_variance(scale, width)


def _rounded_variance(scale: float, width: int) -> float:
    from scipy.special import ndtr

    levels = np.arange(1, width)
    chances = ndtr(-(levels - 0.5) / scale) - ndtr(-(levels + 0.5) / scale)
    return float(2 * (levels**2 * chances).sum())


def _likest(noise: Floats) -> float:
    """Return the largest correlation between two lines; lines without any noise are alike."""
    lengths = np.sqrt((noise**2).sum(axis=1))
    if not lengths.all():
        return 1.0
    alike = (noise @ noise.T) / np.outer(lengths, lengths)
    np.fill_diagonal(alike, 0.0)
    return float(np.abs(alike).max())
