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
ε = ρα + ln(1 - 1/α) - (ln δ + ln α)/(α - 1). Whatever α the search ends at, the figure is valid. The divergences of
Skellam noise are known at whole orders α = 2, 3, … only; a sum with such a release is turned into ε at those.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
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

ROUNDING = 2.0**-50
"""More than the handful of floating-point operations at one order can lose, relative to the largest number in them."""


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
        whole: Whether ρ is proven at whole orders only.
    """

    pure: float = 0.0
    rho: float = 0.0
    mixed: tuple[float, float] | None = None
    whole: bool = False

    @staticmethod
    def of_pure(epsilon: float) -> Event:
        """Return the cost of a release with pure ε."""
        return Event(pure=epsilon, rho=math.inf if math.isinf(epsilon) else round_up(Fraction(epsilon) ** 2 / 2))

    @staticmethod
    def of_gaussian(sensitivity_squared: float, variance: float) -> Event:
        """Return the cost of a discrete Gaussian release."""
        return Event(pure=math.inf, rho=round_up(Fraction(sensitivity_squared) / (2 * Fraction(variance))))

    @property
    def apart(self) -> tuple[float, float]:
        """Σε of the pure releases, and Σρ of the others."""
        return self.mixed or ((0.0, self.rho) if math.isinf(self.pure) else (self.pure, 0.0))

    def plus(self, other: Event) -> Event:
        """Add what other releases cost."""
        epsilon, rho = (sum_up(own, more) for own, more in zip(self.apart, other.apart, strict=True))
        return Event(
            pure=sum_up(self.pure, other.pure),
            rho=sum_up(self.rho, other.rho),
            mixed=(epsilon, rho) if epsilon and rho else None,
            whole=self.whole or other.whole,
        )

    def times(self, releases: int) -> Event:
        """Repeat, each time with fresh noise."""
        return self._scaled(releases, releases, self.whole) if releases else Event()

    def grouped(self, size: int) -> Event:
        """Protect `size` units at once: ε grows by that factor, ρ by its square (Bun and Steinke, proposition 1.9).

        That proof needs all orders. Divergences do not fall with the order, so what is proven at whole orders from 2 on
        holds at all orders with 2ρ: at α between n and n + 1 the divergence is at most ρ(n + 1) ≤ 2ρα.
        """
        return self if size == 1 else self._scaled(size, size**2 * (2 if self.whole else 1), False)

    def epsilon(self, kind: FilterKind, delta: float) -> float:
        """Return ε as one filter sees it."""
        if kind == "pure":
            return self.pure
        epsilon, rho = self.apart if kind == "mixed" else (0.0, self.rho)
        return sum_up(epsilon, rdp_epsilon(rho, delta, self.whole))

    def promise(self, delta: float) -> Promise:
        """Return the smallest ε that any of the sums proves at this δ."""
        by_rho = min(self.epsilon("rdp", delta), self.epsilon("mixed", delta))
        if self.pure <= by_rho:
            return Promise(epsilon=self.pure)
        return Promise(epsilon=by_rho, delta=delta)

    def _scaled(self, epsilon: int, rho: int, whole: bool) -> Event:
        mixed = (_product_up(self.mixed[0], epsilon), _product_up(self.mixed[1], rho)) if self.mixed else None
        return Event(pure=_product_up(self.pure, epsilon), rho=_product_up(self.rho, rho), mixed=mixed, whole=whole)


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
        """Tell whether releases of this total cost keep the promise. Sums are rounded up, and the limit is exact."""
        return total.epsilon(self.kind, self.delta) <= self.epsilon


def rdp_epsilon(rho: float, delta: float, whole: bool = False) -> float:
    """Return an ε that ρ-zCDP gives at δ: the best over the orders tried, each of which is valid.

    Args:
        rho: The sum.
        delta: The δ.
        whole: Whether only whole orders may be tried.

    >>> round(rdp_epsilon(0.5, 1e-5), 3)
    4.728
    """
    if rho == 0.0:
        return 0.0
    if delta <= 0.0 or math.isinf(rho):
        return math.inf
    # Not ln(1/δ): that quotient is infinite for a δ below 6e-309, and from there on nothing would be a number.
    centre = math.log(math.sqrt(-math.log(delta) / rho) + 1e-3)
    if math.isinf(centre):
        return math.inf
    low, high = centre - 4.0, centre + 4.0
    shrink = (math.sqrt(5) - 1) / 2
    for _ in range(50):  # golden section over ln(α - 1)
        width = (high - low) * shrink
        if _at_order(rho, delta, math.exp(high - width)) <= _at_order(rho, delta, math.exp(low + width)):
            high = low + width
        else:
            low = high - width
    best = (low + high) / 2
    if whole:
        below = max(1, math.floor(math.exp(best)))
        return max(0.0, min(_at_order(rho, delta, excess) for excess in (below, below + 1)))
    return max(0.0, _at_order(rho, delta, math.exp(best)))


def _at_order(rho: float, delta: float, excess: float) -> float:
    """Return ε at the order 1 + excess, rounded up."""
    alpha = 1 + excess
    first, second = rho * alpha, math.log(excess / alpha)
    third, fourth = math.log(delta) / excess, math.log(alpha) / excess
    return first + second - third - fourth + ROUNDING * (first - second - third + fourth)


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


def sum_up(one: float, other: float) -> float:
    """Add, rounded up.

    >>> sum_up(0.1, 0.2), sum_up(1.0, 1e-30) > 1.0
    (0.30000000000000004, True)
    """
    if math.isinf(one) or math.isinf(other):
        return math.inf
    return round_up(Fraction(one) + Fraction(other))


def _product_up(one: float, times: int) -> float:
    return math.inf if math.isinf(one) else round_up(Fraction(one) * times)


def round_up(value: Fraction) -> float:
    """Return the least floating-point number that is not below the value.

    >>> round_up(Fraction(1, 2)), Fraction(round_up(Fraction(1, 3))) > Fraction(1, 3)
    (0.5, True)
    """
    found = float(value)
    return found if Fraction(found) >= value else math.nextafter(found, math.inf)
