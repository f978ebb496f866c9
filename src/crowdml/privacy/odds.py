"""Odds: how often the best guess is right, out of 100, where a coin is right 50 times.

Somebody knows two data sets that differ in one unit, sees all releases, and must guess of which data they are; both are
equally likely beforehand. Whatever the method, the guess is right with probability (1 + TV)/2 at most, where TV is the
total variation distance between what is released in the two worlds: Neyman and Pearson's test reaches it, and no test
does better. TV is δ at ε = 0. So the figure needs no δ, and it is the same whichever (ε, δ) a promise is stated at.

Guarantee, by what is known of the releases (unit and neighbours are those of `Cost`):

- **Pure ε and Gaussian noise.** A pure ε release is dominated by randomised response, whose loss is +ε with probability
  e^ε/(1 + e^ε) and otherwise -ε (Kairouz, Oh and Viswanath 2015). Gaussian releases together are one of strength
  μ = √Σμ², rounded noise as well (`gaussian`). A sequence of trade-offs that is fixed beforehand composes adaptively to
  their product (Dong, Roth and Su 2022, theorem 3.2), and it is fixed: a ledger allows so many uses, each of which
  costs the same, and what is not released is a release that says nothing. So TV ≤ Σ P(L) δ_μ(-L) over the sums L of
  pure losses. For one pure release that is e^ε/(1 + e^ε) right guesses, for Gaussian noise alone Φ(μ/2), exactly.
- **Rényi divergences alone** (shares of a secure sum). Let A be where the guess says "first", p and q its probability
  in the two worlds, so that TV = p - q. To be told only whether A happened is post-processing: the divergence of order
  α between the coins p and q is at most ρα, in both directions, for every order that is proven. With (p, q) also
  (1 - q, 1 - p) obeys this, and so does the point between them, as Rényi divergences are jointly quasi-convex (van
  Erven and Harremoës 2014, theorem 13). Hence the largest TV belongs to q = 1 - p, and p is then how often the guess is
  right: the largest p whose coin differs from its opposite by at most ρα at every order. At order 1 that is
  (2p - 1) ln(p/(1 - p)) ≤ ρ, as divergences grow with the order.
- **Both.** Either ρ of everything (`accounting`), or TV ≤ 1 - (1 - TV₁)(1 - TV₂): two runs that agree on the first part
  with probability 1 - TV₁ can be coupled to agree on the second given the first. The smaller one counts.
- **Gaussian steps on a random part of the rows.** δ at ε = 0 of dp-accounting: by the distribution of privacy losses,
  rounded up, or from Rényi divergences where the number of rows is fixed.

Figures are rounded up: `success` by more than floating point can lose, `of_100` to a whole number.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from crowdml.core import record
from crowdml.privacy.accounting import Event
from crowdml.privacy.cost import EXACT, LOSSES, RENYI, SUM, Cost, Pure
from crowdml.privacy.promise import Sampled, gaussian_deltas, narrowed, pure_losses, steps_delta

COIN = 0.5
"""How often a coin is right."""
ROUNDING = 1e-9
"""More than the sums here can lose, and less than anybody sees."""
NEGLIGIBLE = 1e-6
"""What is left out of a distribution has 1e-10 of this probability; it is added again as if it gave everything away."""
ORDERS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 32.0, 64.0)
"""Orders at which coins are compared; whichever are taken, the result is valid."""
NEARLY_ALWAYS = 99
"""From so many right guesses out of 100 on, a promise says nothing worth saying."""


@record
class Odds:
    """How often the best guess is right at most.

    >>> from crowdml.privacy.cost import Gaussian
    >>> odds_of(Cost.of(Pure(epsilon=1.0))).of_100
    74
    >>> odds_of(Cost.of(Gaussian(mu_squared=1.0))).of_100
    70

    Attributes:
        success: The probability, from one half to one, rounded up.
        by: What proves it.
    """

    success: float
    by: str

    @property
    def of_100(self) -> int:
        """Right guesses out of 100, rounded up."""
        return min(100, math.ceil(self.success * 100))

    @property
    def says_something(self) -> bool:
        """Whether it leaves a guess that is clearly wrong at times."""
        return self.of_100 < NEARLY_ALWAYS

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"of_100": self.of_100, "success": math.ceil(self.success * 1e6) / 1e6, "by": self.by}


def odds_of(cost: Cost) -> Odds:
    """Return how often the best guess is right after releases of this cost."""
    return _odds(cost)


def odds_after(event: Event, uses: int) -> Odds:
    """Return it after so many uses, each of which costs as much: from what a ledger keeps.

    >>> odds_after(Event.of_pure(0.5), 0).of_100, odds_after(Event.of_pure(0.5), 2).of_100
    (50, 63)
    """
    return _odds(Cost(events=tuple((part, uses) for part in _parts(event)) if uses else ()))


def _parts(event: Event) -> tuple[Event | Pure, ...]:
    """Take the pure releases and the others of one use apart."""
    if event.mixed is None:
        return (event,)
    epsilon, rho = event.mixed
    return Pure(epsilon=epsilon), Event(pure=math.inf, rho=rho, whole=event.whole, gaussian=event.gaussian)


@functools.lru_cache(maxsize=1024)
def _odds(cost: Cost) -> Odds:
    known = sorted_parts(cost)
    if known.steps:
        (step, count) = known.steps
        by = RENYI if step.sampling == "fixed" else LOSSES
        return _from_variation(steps_delta(step, count, 0.0), by)
    exact = _of_known(known)
    if not known.rho:
        return exact
    everything = coin_against_opposite(cost.event().rho, known.whole)
    rest = coin_against_opposite(known.rho, known.whole)
    apart = 1 - (2 - 2 * exact.success) * (2 - 2 * rest) / 2
    if exact.success == COIN or everything <= apart:
        return Odds(success=_up(everything), by=RENYI)
    return Odds(success=_up(apart), by=f"{exact.by} and {RENYI}")


@record
class Known:
    """What is known of the releases of a cost, sorted by what composes with what.

    Attributes:
        pure: ε of pure releases, and how often each is made.
        mu: Strength of all Gaussian releases together.
        rho: Σρ of all releases of which only Rényi divergences are known.
        whole: Whether ρ is proven at whole orders only.
        steps: Steps on a random part of the rows, and how many; then there is nothing else.
    """

    pure: tuple[tuple[float, int], ...] = ()
    mu: float = 0.0
    rho: float = 0.0
    whole: bool = False
    steps: tuple[Sampled, int] | None = None


def sorted_parts(cost: Cost) -> Known:
    """Sort the releases of a cost."""
    pure, mu_squared, rho, whole = list[tuple[float, int]](), 0.0, 0.0, False
    for happened, times in cost.events:
        if isinstance(happened, Sampled):
            return Known(steps=_steps(cost))
        event = happened if isinstance(happened, Event) else happened.event()
        for part in _parts(event):
            each = part if isinstance(part, Event) else part.event()
            if math.isfinite(each.pure):
                pure.append((each.pure, times))
            elif each.gaussian:
                mu_squared += 2 * each.rho * times
            else:
                rho, whole = rho + each.rho * times, whole or each.whole
    return Known(pure=tuple(each for each in pure if each[0]), mu=math.sqrt(mu_squared), rho=rho, whole=whole)


def _steps(cost: Cost) -> tuple[Sampled, int]:
    (step, *others), counts = zip(*cost.events, strict=True)
    if not isinstance(step, Sampled) or any(other != step for other in others):
        raise ValueError("nothing is proven for sampled steps beside other releases, or of several kinds")
    return step, sum(counts)


def _of_known(known: Known) -> Odds:
    """Return the odds of pure and Gaussian releases."""
    if not known.pure:
        return Odds(success=_up(math.erfc(-known.mu / math.sqrt(8)) / 2), by=EXACT if known.mu else SUM)
    if not known.mu and len(known.pure) == 1 and known.pure[0][1] == 1:
        return Odds(success=_up(1 / (1 + math.exp(-min(known.pure[0][0], 700.0)))), by=SUM)
    return _from_variation(known_delta(known)(0.0), LOSSES)


def known_delta(known: Known) -> Callable[[float], float]:
    """Return δ as a function of ε ≥ 0, of pure and Gaussian releases together, rounded up."""
    losses, chances, missing = pure_losses(known.pure, NEGLIGIBLE)
    exact = gaussian_deltas(known.mu) if known.mu else lambda excess: -np.expm1(np.minimum(excess, 0.0))
    return lambda epsilon: min(1.0, float((chances * exact(epsilon - losses)).sum()) * (1 + ROUNDING) + missing)


def coin_against_opposite(rho: float, whole: bool = False, orders: Sequence[float] = ORDERS) -> float:
    """Return the largest p whose coin has divergences of at most ρα from the coin 1 - p, rounded up.

    Args:
        rho: Σρ.
        whole: Whether ρ is proven at whole orders from 2 on only.
        orders: Orders to look at.

    >>> round(coin_against_opposite(0.5), 3)
    0.74
    """
    if math.isinf(rho):
        return 1.0
    tried = [order for order in orders if not whole or (order >= 2 and order.is_integer())]
    logit = narrowed(lambda s: all(_divergence(s, order) <= rho * order for order in tried))[1]
    return 1 / (1 + math.exp(-min(logit, 700.0)))


def _divergence(logit: float, order: float) -> float:
    """Rényi divergence between the coins p and 1 - p, where p/(1 - p) = e^logit; that of order 1 is relative entropy.

    >>> _divergence(0.0, 2.0), round(_divergence(2.0, 1.0), 4) == round(2 * math.tanh(1.0), 4)
    (0.0, True)
    """
    if order == 1.0:
        return logit * math.tanh(logit / 2)
    # p^α q^(1-α) + q^α p^(1-α) = q (e^(αs) + e^((1-α)s)), and q = 1/(1 + e^s); no power is taken of a large number.
    grown = order * logit + math.log1p(math.exp((1 - 2 * order) * logit))
    return max(0.0, (grown - logit - math.log1p(math.exp(-logit))) / (order - 1))


def _from_variation(variation: float, by: str) -> Odds:
    return Odds(success=_up((1 + min(1.0, variation)) / 2), by=by)


def _up(success: float) -> float:
    """Round up; a coin stays one."""
    return success if success == COIN else min(1.0, success + ROUNDING)
