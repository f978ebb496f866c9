"""Noise for secure aggregation: each device adds its share, and the shares of honest survivors protect together.

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

from crowdml.core import BadInput, record
from crowdml.privacy.accounting import Event
from crowdml.privacy.noise.poisson import LARGEST_VARIANCE


@record
class SumLaw:
    """What a noise law is as a share of a sum; the law itself is in `laws`, under the same name.

    Attributes:
        name: As in a task file.
        least: Least variance of one share.
        event: `event(sensitivity_squared, size, variance, survivors)`: what one masked sum costs.
        largest: Largest standard deviation of one share that is drawn.
    """

    name: str
    least: Fraction
    event: Callable[[int, int, Fraction, int], Event]
    largest: float = math.inf


@record
class Shared:
    """Noise that the honest survivors of a masked sum have added together.

    Guarantee: one vector of the sum is replaced by another that obeys its bound in L2 (one whole release, or one
    example's vector within a release). At least `survivors` honest devices have added a share each, and nobody sees
    less than the sum: one masked sum then costs `event`.

    Attributes:
        law: The law of each share.
        survivors: Least number of honest survivors.
    """

    law: SumLaw
    survivors: int

    def __post_init__(self) -> None:
        """Refuse a sum without noise."""
        if self.survivors < 1:
            raise ValueError("nobody's noise is left")

    @property
    def least_scale(self) -> float:
        """Least standard deviation of a share."""
        return math.sqrt(self.law.least)

    def event(self, sensitivity_squared: int, size: int, scale: float) -> Event:
        """Cost of one masked sum whose shares have this standard deviation, rounded up."""
        return self.law.event(sensitivity_squared, size, Fraction(scale) ** 2, self.survivors)


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


DISCRETE_GAUSSIAN_SHARES = SumLaw(name="discrete-gaussian", least=Fraction(4), event=_gaussian_event)
SKELLAM_SHARES = SumLaw(
    name="skellam", least=Fraction(1, 16), event=_skellam_event, largest=math.sqrt(LARGEST_VARIANCE)
)
