"""Noise for sums: each device adds its part, and the honest survivors' parts together are what protects.

The distributed discrete Gaussian: every device draws a discrete Gaussian of variance total/h_min, where h_min is the
least number of honest survivors, h_min = m_min - (1 - γ)·n_invited. A sum of discrete Gaussians is not one, but nearly
(Kairouz, Liu and Steinke 2021, theorem 1): with per-device variance σ² the sum of h of them is within

    τ = 10 · Σ_{k=1}^{h-1} exp(-2π²σ²·k/(k+1))

of a discrete Gaussian of variance hσ², in the sense that a release of L2 sensitivity Δ in d dimensions is ½ε²-zCDP with
ε = min(√(Δ²/(hσ²) + 2τd), Δ/(√h σ) + τ√d). A per-device standard deviation of 2 makes τ < 1e-15 for any crowd, and is
enforced. The guarantee is computational: it needs the masks.
"""

from __future__ import annotations

import math
from fractions import Fraction

from crowdml.core import BadInput, record

LEAST_DEVIATION = 2


@record
class ShareOfSum:
    """One device's part of the noise on a masked sum.

    Attributes:
        variance: Of the discrete Gaussian each device draws.
        survivors: Least number of honest survivors, h_min.
    """

    variance: Fraction
    survivors: int

    def rho(self, sensitivity: float, size: int) -> float:
        """Return the zCDP parameter of the sum for an L2 sensitivity in `size` dimensions."""
        gap, total = sum_gap(float(self.variance), self.survivors), float(self.variance) * self.survivors
        strict = math.sqrt(sensitivity**2 / total + 2 * gap * size)
        loose = sensitivity / math.sqrt(total) + gap * math.sqrt(size)
        return min(strict, loose) ** 2 / 2


def honest_survivors(least: int, invited: int, honest: float) -> int:
    """Return h_min = m_min - (1 - γ)·n_invited, rounded down: every dishonest device may be among the survivors."""
    found = math.floor(least - (1 - honest) * invited + 1e-9)
    if found < 1:
        raise BadInput(
            f"of {least} survivors as many as {invited - honest * invited:g} may be dishonest: nobody's noise is left",
            hint="ask for more survivors, or invite fewer devices",
        )
    return found


def share_of_sum(total_variance: Fraction, survivors: int) -> ShareOfSum:
    """Split a total variance over the honest survivors; the part of each has a standard deviation of at least 2."""
    each = max(Fraction(total_variance) / survivors, Fraction(LEAST_DEVIATION**2))
    return ShareOfSum(variance=Fraction(math.ceil(each * 16), 16), survivors=survivors)


def sum_gap(variance: float, survivors: int) -> float:
    """Return τ, an upper bound: every term is at most the first."""
    return 10 * sum(math.exp(-2 * math.pi**2 * variance * k / (k + 1)) for k in range(1, min(survivors, 10_000))) + (
        10 * max(0, survivors - 10_000) * math.exp(-2 * math.pi**2 * variance * 10_000 / 10_001)
    )
