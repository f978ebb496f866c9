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

- Exactly, where all that is not pure is Gaussian noise, continuous or rounded (`gaussian` has the proof): Σε over the
  pure releases, plus the ε of one Gaussian release with μ² = 2Σρ at δ. It is never above the sum before; Σρ of
  everything can be smaller, where many small counts are made.

The sums side by side need both of their limits fixed beforehand, and they are: a ledger allows so many uses, and each
costs the same pure ε and the same ρ at most. `renyi` and `gaussian` turn Σρ into ε at a δ.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Literal

from crowdml.core import BadInput, record
from crowdml.privacy.gaussian import gaussian_epsilon_up
from crowdml.privacy.promise import Promise
from crowdml.privacy.renyi import rdp_epsilon

Unit = Literal["sample", "device"]
"""What one promise protects."""
FilterKind = Literal["pure", "rdp", "mixed", "gaussian"]

FILTER_NAMES: dict[FilterKind, str] = {
    "pure": "Σε",
    "rdp": "Rényi divergences",
    "mixed": "Σε of the counts and Rényi divergences of the rest",
    "gaussian": "Σμ² of Gaussian noise",
}
"""How a page calls the sum that enforces."""
BY_RHO: tuple[FilterKind, ...] = ("rdp", "mixed", "gaussian")
"""Sums that say something at δ > 0 only."""


@record
class Event:
    """What releases cost one unit: pure ε (infinite for Gaussian noise) and ρ.

    >>> Event.of_pure(10.0).times(5).promise(0.0)
    Promise(epsilon=50.0, delta=0.0)
    >>> counts_and_gradient = Event.of_pure(2.0).plus(Event.of_rounded_gaussian(1.0, 1.0))
    >>> [round(counts_and_gradient.epsilon(kind, 1e-5), 2) for kind in ("pure", "rdp", "mixed", "gaussian")]
    [inf, 12.3, 6.73, 6.38]

    Attributes:
        pure: Σε.
        rho: Σρ.
        mixed: Σε of the pure releases and Σρ of the others, where there are both.
        whole: Whether ρ is proven at whole orders only.
        gaussian: Whether there are releases that are not pure, and all of those have Gaussian noise, continuous or
            rounded: then ρ = μ²/2, and their sum is known exactly.
    """

    pure: float = 0.0
    rho: float = 0.0
    mixed: tuple[float, float] | None = None
    whole: bool = False
    gaussian: bool = False

    @staticmethod
    def of_pure(epsilon: float) -> Event:
        """Return the cost of a release with pure ε."""
        return Event(pure=epsilon, rho=math.inf if math.isinf(epsilon) else round_up(Fraction(epsilon) ** 2 / 2))

    @staticmethod
    def of_rounded_gaussian(sensitivity_squared: Fraction | float, variance: Fraction | float) -> Event:
        """Return the cost of a release with Gaussian noise, continuous or rounded."""
        rho = round_up(Fraction(sensitivity_squared) / (2 * Fraction(variance)))
        return Event(pure=math.inf, rho=rho, gaussian=True)

    @staticmethod
    def of_discrete_gaussian(sensitivity_squared: Fraction | float, variance: Fraction | float) -> Event:
        """Return the cost of a release with discrete Gaussian noise, of which Rényi divergences alone are proven."""
        return replace(Event.of_rounded_gaussian(sensitivity_squared, variance), gaussian=False)

    @property
    def apart(self) -> tuple[float, float]:
        """Σε of the pure releases, and Σρ of the others."""
        return self.mixed or ((0.0, self.rho) if math.isinf(self.pure) else (self.pure, 0.0))

    def plus(self, other: Event) -> Event:
        """Add what other releases cost."""
        epsilon, rho = (sum_up(one, more) for one, more in zip(self.apart, other.apart, strict=True))
        not_pure = [event for event in (self, other) if event.apart[1]]
        return Event(
            pure=sum_up(self.pure, other.pure),
            rho=sum_up(self.rho, other.rho),
            mixed=(epsilon, rho) if epsilon and rho else None,
            whole=self.whole or other.whole,
            gaussian=bool(not_pure) and all(event.gaussian for event in not_pure),
        )

    def times(self, releases: int) -> Event:
        """Repeat, each time with fresh noise."""
        return self._scaled(releases, releases, self.whole) if releases else Event()

    def grouped(self, size: int) -> Event:
        """Protect `size` units at once: ε grows by that factor, ρ by its square (Bun and Steinke, proposition 1.9).

        For Gaussian noise that is exact, since the change of what is released grows by the factor.

        That proof needs all orders. Divergences do not fall with the order, so what is proven at whole orders from 2 on
        holds at all orders with 2ρ: at α between n and n + 1 the divergence is at most ρ(n + 1) ≤ 2ρα.
        """
        return self if size == 1 else self._scaled(size, size**2 * (2 if self.whole else 1), False)

    def epsilon(self, kind: FilterKind, delta: float) -> float:
        """Return ε as one filter sees it."""
        if kind == "pure":
            return self.pure
        epsilon, rho = (0.0, self.rho) if kind == "rdp" else self.apart
        if kind == "gaussian":
            return math.inf if rho and not self.gaussian else sum_up(epsilon, gaussian_epsilon_up(rho, delta))
        return sum_up(epsilon, rdp_epsilon(rho, delta, self.whole))

    def promise(self, delta: float) -> Promise:
        """Return the smallest ε that any of the sums proves at this δ."""
        by_rho = min(self.epsilon(kind, delta) for kind in BY_RHO)
        if self.pure <= by_rho:
            return Promise(epsilon=self.pure)
        return Promise(epsilon=by_rho, delta=delta)

    def _scaled(self, epsilon: int, rho: int, whole: bool) -> Event:
        mixed = (_product_up(self.mixed[0], epsilon), _product_up(self.mixed[1], rho)) if self.mixed else None
        pure, total = _product_up(self.pure, epsilon), _product_up(self.rho, rho)
        return Event(pure=pure, rho=total, mixed=mixed, whole=whole, gaussian=self.gaussian)


@record
class Filter:
    """The sum that enforces, and its limit. A task names one; δ = 0 leaves only Σε.

    Attributes:
        kind: `pure` for Σε, `rdp` for Σρ, `mixed` for both side by side, `gaussian` for these with Gaussian noise.
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


@record
class Terms:
    """What is promised, or claimed; nothing where neither `filter` nor `claim` is given.

    Attributes:
        mode: As in the task file; for words only.
        unit: What one promise protects.
        adjacency: Which data sets are neighbours.
        delta: The δ at which ε is stated.
        uses: Uses that a unit has: releases a sample may enter, or a device may make. 0 where nothing is enforced.
        first_uses: Uses that the first release counts for.
        rows: Rows behind a release at most; None where a device sends as many as it has.
        filter: Which sum a ledger enforces, and its limit; None where nothing is enforced.
        share: Part of ε that goes to the counts, the same whatever ε an owner chooses.
        label_share: Part of that which goes to label counts.
        owner_range: Smallest and largest ε that an owner may choose; None where owners cannot choose.
        claim: What a paper would claim; None where nothing is claimed.
        unproven: What that paper claims without a proof that covers it, in words; empty where nothing is.
    """

    mode: str
    unit: Unit = "sample"
    adjacency: str = "replace"
    delta: float = 0.0
    uses: int = 0
    first_uses: int = 1
    rows: int | None = None
    filter: Filter | None = None
    share: float = 0.0
    label_share: float = 0.5
    owner_range: tuple[float, float] | None = None
    claim: Promise | None = None
    unproven: str = ""

    @property
    def promised(self) -> bool:
        """Whether owners are promised something that their ledgers enforce."""
        return self.filter is not None

    @property
    def limit(self) -> Filter:
        """The sum that enforces, and its limit, where there is one."""
        if self.filter is None:
            raise ValueError("nothing is promised, so nothing is enforced")
        return self.filter

    @property
    def releases(self) -> int:
        """Releases that a unit may enter: all uses, where the first does not count for several."""
        return self.uses - self.first_uses + 1

    @property
    def changing(self) -> int | None:
        """Rows of a release that change with the unit: None for one sample, else as many as a device has in it."""
        return None if self.unit == "sample" else self.rows or 1

    def require_choice(self, epsilon: float) -> None:
        """Refuse an ε that an owner cannot choose."""
        if self.filter is None or self.owner_range is None:
            raise BadInput(
                "there is no ε to choose", where="privacy.mode", hint='owners choose where mode = "sound" keeps it'
            )
        low, high = self.owner_range
        if not low <= epsilon <= high:
            raise BadInput(
                f"ε = {epsilon:g} is not between {low:g} and {high:g}",
                where="privacy.owner-range",
                hint="owners choose within this range",
            )


def require_delta(delta: float, units: int, unit: Unit) -> None:
    """Refuse a δ that would allow one of so many samples or devices that are promised something to be published."""
    problem = delta_problem(delta, units, unit)
    if problem:
        raise BadInput(
            problem,
            where="privacy.delta",
            hint=f"delta must be below 1/{units} = {1 / units:.3g}, and should be well below, such as "
            f"delta = {0.01 / units:.0e}",
        )


def delta_problem(delta: float, units: int, unit: Unit) -> str | None:
    """Say why δ means nothing to so many units; None where it means something."""
    if delta == 0 or delta * units < 1:
        return None
    return f"delta = {delta:g} is no promise to {units} {unit}s: publishing one of them outright keeps it"


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
