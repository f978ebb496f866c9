"""Accounting: what a release costs, and the filters that decide whether another one may be sent.

Sums are kept for every unit, and each alone is a valid filter (also when later releases depend on earlier ones):

- Σε over pure releases: basic composition. Gaussian releases have no pure ε, so their sum is infinite.
- Σρ of zero-concentrated privacy: a release is ρ-zCDP if its Rényi divergence of order α is at most ρα, for all α > 1.
  A discrete Gaussian of variance σ² on integers of L2 sensitivity Δ has ρ = Δ²/(2σ²) (Canonne, Kamath and Steinke
  2020, theorem 14); a pure ε release has ρ = ε²/2 (Bun and Steinke 2016, proposition 3.3). Rényi divergences add up,
  adaptively too (Feldman and Zrnic 2021: a filter that stops before the sum passes a fixed budget at every order).
- Both side by side, for pure counts next to Gaussian noise: Σε over the pure releases, plus what Σρ over the *others*
  gives at δ. Write the ratio of probabilities of all outputs in two neighbouring worlds as A·B, A over the pure
  releases and B over the others. A ≤ e^Σε for every output, so δ at Σε + ε' is at most E[max(0, 1 - e^ε'/B)]; and the
  moments of B, taken release by release given what came before, are at most those that Σρ of the others allows, which
  is all that the proposition below needs. Few large counts cost less here, many small ones less in Σρ of everything.

Σρ becomes ε at a δ by proposition 12 of Canonne, Kamath and Steinke: for every α > 1,
ε = ρα + ln(1 - 1/α) - (ln δ + ln α)/(α - 1). Whatever α the search ends at, the figure is valid.
"""

from __future__ import annotations

import functools
import math
from typing import Literal

from crowdml.core import record
from crowdml.privacy.promise import Promise

FilterKind = Literal["pure", "rdp", "mixed"]

FILTER_NAMES: dict[FilterKind, str] = {
    "pure": "Σε",
    "rdp": "Rényi divergences",
    "mixed": "Σε of the counts and Rényi divergences of the rest",
}
"""How a page calls the sum that enforces."""

MARGIN = 1 + 1e-9
"""Sums of floating-point numbers are trusted up to this factor, always to the safe side."""


@record
class Event:
    """What releases cost one unit: pure ε (infinite for Gaussian noise) and ρ.

    >>> Event.of_pure(10.0).times(5).promise(0.0)
    Promise(epsilon=50.0, delta=0.0)
    >>> counts_and_gradient = Event.of_pure(2.0).plus(Event.of_gaussian(1.0, 1.0))
    >>> [round(counts_and_gradient.epsilon(kind, 1e-5), 2) for kind in ("pure", "rdp", "mixed")]
    [inf, 12.3, 6.73]

    Attributes:
        pure: Σε.
        rho: Σρ.
        mixed: Σε of the pure releases and Σρ of the others, where there are both.
    """

    pure: float = 0.0
    rho: float = 0.0
    mixed: tuple[float, float] | None = None

    @staticmethod
    def of_pure(epsilon: float) -> Event:
        """Return the cost of a release with pure ε."""
        return Event(pure=epsilon, rho=epsilon**2 / 2)

    @staticmethod
    def of_gaussian(sensitivity_squared: float, variance: float) -> Event:
        """Return the cost of a discrete Gaussian release."""
        return Event(pure=math.inf, rho=sensitivity_squared / (2 * variance))

    @property
    def apart(self) -> tuple[float, float]:
        """Σε of the pure releases, and Σρ of the others."""
        return self.mixed or ((0.0, self.rho) if math.isinf(self.pure) else (self.pure, 0.0))

    def plus(self, other: Event) -> Event:
        """Add what other releases cost."""
        epsilon, rho = (own + more for own, more in zip(self.apart, other.apart, strict=True))
        mixed = (epsilon, rho) if epsilon and rho else None
        return Event(pure=self.pure + other.pure, rho=self.rho + other.rho, mixed=mixed)

    def times(self, releases: int) -> Event:
        """Repeat, each time with fresh noise."""
        return self._scaled(releases, releases) if releases else Event()

    def grouped(self, size: int) -> Event:
        """Protect `size` units at once: ε grows by that factor, ρ by its square (Bun and Steinke, proposition 1.9)."""
        return self._scaled(size, size**2)

    def epsilon(self, kind: FilterKind, delta: float) -> float:
        """Return ε as one filter sees it."""
        if kind == "pure":
            return self.pure
        epsilon, rho = self.apart if kind == "mixed" else (0.0, self.rho)
        return epsilon + rdp_epsilon(rho, delta)

    def promise(self, delta: float) -> Promise:
        """Return the smallest ε that any of the sums proves at this δ."""
        by_rho = min(self.epsilon("rdp", delta), self.epsilon("mixed", delta))
        if self.pure <= by_rho:
            return Promise(epsilon=self.pure)
        return Promise(epsilon=by_rho, delta=delta)

    def _scaled(self, epsilon: int, rho: int) -> Event:
        mixed = (self.mixed[0] * epsilon, self.mixed[1] * rho) if self.mixed else None
        return Event(pure=self.pure * epsilon, rho=self.rho * rho, mixed=mixed)


@record
class Filter:
    """The sum that enforces, and its limit. A task names one; δ = 0 leaves only Σε.

    Attributes:
        kind: `pure` for Σε, `rdp` for Σρ, `mixed` for both side by side.
        epsilon: The limit.
        delta: The δ it holds at.
    """

    kind: FilterKind
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        """Refuse a filter that could never let anything pass."""
        if self.kind != "pure" and self.delta <= 0:
            raise ValueError("Σρ says something at δ > 0 only")

    def covers(self, total: Event) -> bool:
        """Tell whether releases of this total cost keep the promise."""
        return total.epsilon(self.kind, self.delta) <= self.epsilon * MARGIN


def rdp_epsilon(rho: float, delta: float) -> float:
    """Return an ε that ρ-zCDP gives at δ: the best over the orders tried, each of which is valid.

    >>> round(rdp_epsilon(0.5, 1e-5), 3)
    4.728
    """
    if rho == 0.0:
        return 0.0
    if delta <= 0.0 or math.isinf(rho):
        return math.inf
    centre = math.log(math.sqrt(math.log(1 / delta) / rho) + 1e-3)
    low, high = centre - 4.0, centre + 4.0
    shrink = (math.sqrt(5) - 1) / 2
    for _ in range(50):  # golden section over ln(α - 1)
        width = (high - low) * shrink
        if _at_order(rho, delta, high - width) <= _at_order(rho, delta, low + width):
            high = low + width
        else:
            low = high - width
    return max(0.0, _at_order(rho, delta, (low + high) / 2))


def _at_order(rho: float, delta: float, log_excess: float) -> float:
    excess = math.exp(log_excess)
    alpha = 1 + excess
    return rho * alpha + math.log(excess / alpha) - (math.log(delta) + math.log(alpha)) / excess


@functools.lru_cache(maxsize=4096)
def rho_budget(epsilon: float, delta: float) -> float:
    """Return the largest ρ whose ε at δ is at most `epsilon`."""
    low, high = 0.0, 1.0
    while rdp_epsilon(high, delta) <= epsilon:
        low, high = high, high * 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if rdp_epsilon(middle, delta) <= epsilon else (low, middle)
    return low
