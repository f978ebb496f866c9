"""Noise for masked sums: each device adds its share, and the honest survivors' shares together are what protects.

Every device draws integers of variance σ², where h·σ² is enough for h, the least number of honest survivors:
h = m_min - (1 - γ)·n_invited. What others add besides only helps. The guarantee is computational: it needs the masks.

The sum of h shares, for integers of L2 sensitivity Δ₂ in d dimensions:

- **Distributed discrete Gaussian** (Kairouz, Liu and Steinke 2021, theorem 1). A sum of discrete Gaussians is not one,
  but nearly: with τ = 10 · Σ_{k=1}^{h-1} exp(-2π²σ²·k/(k+1)) the release is ½ε²-zCDP, where
  ε = min(√(Δ₂²/(hσ²) + 2τd), Δ₂/(√h σ) + τ√d). A standard deviation of 2 per share makes τ < 1e-15 for any crowd, and
  is enforced.
- **Skellam** (Agarwal, Kairouz and Liu 2021, corollary 3.6). Sums of Skellam draws are Skellam draws, exactly. With
  v = hσ² and the L1 sensitivity Δ₁, at every whole order α ≥ 2 the Rényi divergence is at most
  αΔ₂²/(2v) + min(((2α - 1)Δ₂² + 6Δ₁)/(4v²), 3Δ₁/(2v)). As 1 ≤ α/2 this is at most ρα with
  ρ = Δ₂²/(2v) + min(Δ₂²/(2v²) + 3Δ₁/(4v²), 3Δ₁/(4v)). Differences of integer vectors have Δ₁ ≤ min(√d·Δ₂, Δ₂²).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from crowdml.core import BadInput, Registry, record
from crowdml.privacy.accounting import Event, Filter
from crowdml.privacy.grid import Grid
from crowdml.privacy.mechanisms.contract import NoiseLaw
from crowdml.privacy.mechanisms.discrete_gaussian import DISCRETE_GAUSSIAN
from crowdml.privacy.mechanisms.skellam import SKELLAM
from crowdml.privacy.samplers import Words, discrete_gaussian, skellam
from crowdml.privacy.samplers.words import Integers

STEPS = 16
"""Variances are multiples of a sixteenth, so that every runtime holds them exactly."""


@record
class SumLaw:
    """A kind of noise for shares of a sum.

    Attributes:
        name: As in a task file.
        least: Least variance of one share.
        draw: `draw(words, variance, lanes)`: one share for each lane.
        event: `event(sensitivity_squared, size, variance, survivors)`: what one masked sum costs.
        noise: The same law as devices and simulations draw it, by coins.
    """

    name: str
    least: Fraction
    draw: Callable[[Words, Fraction, int], Integers]
    event: Callable[[int, int, Fraction, int], Event]
    noise: NoiseLaw


@record
class Shared:
    """Noise that the honest survivors of a masked sum have added together.

    Attributes:
        law: The law of each share.
        survivors: Least number of honest survivors.
    """

    law: SumLaw
    survivors: int

    def event(self, sensitivity_squared: int, size: int, scale: float) -> Event:
        """Cost of one masked sum whose shares have this standard deviation, rounded up."""
        return self.law.event(sensitivity_squared, size, Fraction(scale) ** 2, self.survivors)


@record
class SumMechanism:
    """Bound, noise and cost of one kind of masked sum.

    Guarantee: one vector of the sum is replaced by another that obeys the grid (one whole release, or one example's
    vector within a release). At least `survivors` honest devices have added a share each, and nobody sees less than the
    sum: one masked sum then costs `event`.

    Attributes:
        grid: The bound, in L2.
        law: The noise law.
        variance: Of one device's share, in levels squared; a multiple of a sixteenth.
        survivors: Least number of honest survivors.
    """

    grid: Grid
    law: SumLaw
    variance: Fraction
    survivors: int

    def __post_init__(self) -> None:
        """Refuse a norm mismatch, shares that are too small, and variances that are not exact."""
        if self.grid.order != 2:
            raise ValueError(f"{self.law.name} noise on sums needs a bound in L2, not L{self.grid.order}")
        if self.variance < self.law.least or STEPS % self.variance.denominator:
            raise ValueError(f"{self.variance} is not a variance for {self.law.name} shares")
        if self.survivors < 1:
            raise ValueError("nobody's noise is left")

    @property
    def event(self) -> Event:
        """Cost of one masked sum, rounded up."""
        return self.law.event(self.grid.sensitivity_squared, self.grid.size, self.variance, self.survivors)

    def share(self, words: Words) -> Integers:
        """Draw one device's share of the noise, for every number of its vector."""
        return self.law.draw(words, self.variance, self.grid.size)

    def bits(self, devices: int) -> int:
        """Return the bits of a modulus that a sum over so many devices does not wrap, but for 8 deviations of noise."""
        deviation = math.isqrt(math.ceil(self.variance * devices)) + 1
        return math.ceil(math.log2(2 * (devices * math.isqrt(self.grid.limit) + 8 * deviation)))


def calibrate_sum(
    law: SumLaw, grid: Grid, epsilon: float, delta: float, uses: int, survivors: int
) -> tuple[SumMechanism, Filter]:
    """Return the least noise that keeps (ε, δ) over so many masked sums, and the filter that proves it."""
    limit = Filter(kind="rdp", epsilon=epsilon, delta=delta)

    def made(steps: int) -> SumMechanism:
        return SumMechanism(grid=grid, law=law, variance=Fraction(steps, STEPS), survivors=survivors)

    def enough(steps: int) -> bool:
        return limit.covers(made(steps).event.times(uses))

    low = math.ceil(law.least * STEPS) - 1
    high = low + 1
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return made(high), limit


def honest_survivors(least: int, invited: int, honest: float) -> int:
    """Return h_min = m_min - (1 - γ)·n_invited, rounded down: every dishonest device may be among the survivors.

    >>> honest_survivors(80, 100, 0.9)
    70
    """
    dishonest = (1 - Fraction(repr(honest))) * invited
    found = math.floor(least - dishonest)
    if found < 1:
        raise BadInput(
            f"of {least} survivors as many as {float(dishonest):g} may be dishonest: nobody's noise is left",
            hint="ask for more survivors, or invite fewer devices",
        )
    return found


def sum_gap(variance: Fraction | float, survivors: int) -> float:
    """Return τ, an upper bound: from the ten thousandth on, every term is at most that one."""
    exponent, most = -2 * math.pi**2 * float(variance), 10_000
    terms = math.fsum(math.exp(exponent * k / (k + 1)) for k in range(1, min(survivors, most)))
    return 10 * (terms + max(0, survivors - most) * math.exp(exponent * most / (most + 1))) * (1 + 1e-9)


def _gaussian_event(sensitivity_squared: int, size: int, variance: Fraction, survivors: int) -> Event:
    gap, ratio = sum_gap(variance, survivors), float(sensitivity_squared / (variance * survivors))
    strict = ratio + 2 * gap * size
    loose = (math.sqrt(ratio) + gap * math.sqrt(size)) ** 2
    return Event(pure=math.inf, rho=_up(min(strict, loose) / 2))


def _skellam_event(sensitivity_squared: int, size: int, variance: Fraction, survivors: int) -> Event:
    total, squared = float(variance * survivors), float(sensitivity_squared)
    sum_of_sizes = min(math.sqrt(size * squared), squared)
    close = squared / (2 * total**2) + 3 * sum_of_sizes / (4 * total**2)
    extra = min(close, 3 * sum_of_sizes / (4 * total))
    return Event(pure=math.inf, rho=_up(squared / (2 * total) + extra), whole=True)


def _up(rho: float) -> float:
    """Round up by more than a handful of floating-point operations can have lost."""
    return rho * (1 + 1e-14)


SUM_LAWS: Registry[SumLaw] = Registry(
    "law for sums",
    {
        "discrete-gaussian": SumLaw(
            name="discrete-gaussian",
            least=Fraction(4),
            draw=discrete_gaussian,
            event=_gaussian_event,
            noise=DISCRETE_GAUSSIAN,
        ),
        "skellam": SumLaw(name="skellam", least=Fraction(1, STEPS), draw=skellam, event=_skellam_event, noise=SKELLAM),
    },
)
