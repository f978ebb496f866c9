"""Cost: what releases cost, as a list of what happened and how often. Adding up is exact.

Four things happen: a release with pure ε, a release that is ρ-zCDP, an ideal Gaussian release (exact μ²), and a
Gaussian step on a random part of the rows. From the list follow

- `event`: Σε and Σρ, rounded up, which the ledger sums and a filter limits (`accounting`);
- `figure`: the smallest ε at a δ, and what proves it. These are candidates, and each is valid: Σε over pure releases,
  at δ = 0; Rényi divergences, Σρ; both side by side, for pure counts next to Gaussian noise, exactly where that is
  possible; and the distribution of privacy losses (`promise`), which is tighter than the sums but belongs to one fixed
  schedule. Rounded Gaussian noise has that of continuous noise, of which it is a function.

Sampled steps stand alone: nothing is proven here for them beside other releases, or for several samples at once.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

from crowdml.core import record
from crowdml.privacy.accounting import FILTER_NAMES, Event
from crowdml.privacy.promise import PRECISION, Promise, Sampled, losses_epsilon, steps_epsilon

SUM, RENYI, MIXED, EXACT = (FILTER_NAMES[kind] for kind in ("pure", "rdp", "mixed", "gaussian"))
LOSSES = "privacy loss distribution"
"""Names of what proves a figure."""


@record
class Pure:
    """A release with pure ε."""

    epsilon: float

    def event(self) -> Event:
        """Return what a ledger adds."""
        return Event.of_pure(self.epsilon)

    def grouped(self, size: int) -> Pure:
        """Protect `size` samples at once."""
        return Pure(epsilon=self.event().grouped(size).pure)


@record
class Gaussian:
    """A release with ideal Gaussian noise, or several as one: μ is sensitivity over standard deviation."""

    mu_squared: float

    def event(self) -> Event:
        """Return what a ledger would add."""
        return Event(pure=math.inf, rho=self.mu_squared / 2, gaussian=True)

    def grouped(self, size: int) -> Gaussian:
        """Protect `size` samples at once."""
        return Gaussian(mu_squared=self.mu_squared * size**2)


Happened = Event | Pure | Gaussian | Sampled
"""An event is a release whose ρ is known by itself: ρ-zCDP, or with pure ε and less than ε²/2."""


@record
class Figure:
    """An ε that holds at a δ, and the sum that proves it."""

    epsilon: float
    delta: float
    by: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"epsilon": round(self.epsilon, 6), "delta": self.delta, "by": self.by}


@record
class Cost:
    """What happened, and how often.

    >>> Cost.of(Pure(epsilon=2.0)).times(5).promise(0.0)
    Promise(epsilon=10.0, delta=0.0)
    >>> both = Cost.of(Pure(epsilon=2.0)).plus(Cost.of(Event(pure=math.inf, rho=0.5)))
    >>> figure(both, 1e-5).by
    'Σε of the counts and Rényi divergences of the rest'
    """

    events: tuple[tuple[Happened, int], ...] = ()

    @staticmethod
    def of(happened: Happened, times: int = 1) -> Cost:
        """Begin with one kind of release."""
        return Cost(events=((happened, times),))

    @staticmethod
    def of_event(event: Event) -> Cost:
        """Read a ledger's sums as one release; not where pure releases and others are already mixed in them."""
        if event.mixed:
            raise ValueError("a sum of pure releases and others does not say what happened")
        return Cost.of(event)

    def plus(self, other: Cost) -> Cost:
        """Add what other releases cost."""
        if [happened for happened, _ in self.events] == [happened for happened, _ in other.events]:
            pairs = zip(self.events, other.events, strict=True)
            return Cost(events=tuple((happened, times + more) for (happened, times), (_, more) in pairs))
        return Cost(events=self.events + other.events)

    def times(self, releases: int) -> Cost:
        """Repeat, each time with fresh noise."""
        return Cost(events=tuple((happened, times * releases) for happened, times in self.events if releases))

    def grouped(self, size: int) -> Cost:
        """Protect `size` samples at once: every sensitivity grows by that factor."""
        return Cost(events=tuple((happened.grouped(size), times) for happened, times in self.events))

    def event(self) -> Event:
        """Return Σε and Σρ, rounded up.

        What is made equally often is one release: its parts are added up first, then repeated. Every runtime's ledger
        adds up in this order, so that all of them round alike.
        """
        total = Event()
        for times, parts in itertools.groupby(self.events, key=lambda part: part[1]):
            each = [_event(happened) for happened, _ in parts]
            total = total.plus(functools.reduce(lambda rest, part: part.plus(rest), reversed(each)).times(times))
        return total

    def promise(self, delta: float) -> Promise:
        """Return the smallest ε that is proven at this δ, with the δ that it needs."""
        found = figure(self, delta)
        return Promise(epsilon=found.epsilon, delta=found.delta)


def figure(cost: Cost, delta: float) -> Figure:
    """Return the smallest valid ε at δ, and what proves it."""
    if any(isinstance(happened, Sampled) for happened, _ in cost.events):
        return _of_steps(cost, delta)
    mu_squared = sum(_mu_squared(found) * times for found, times in cost.events)
    others = [(found, times) for found, times in cost.events if not isinstance(found, Gaussian)]
    pure = tuple((_event(found).pure, times) for found, times in others if not _mu_squared(found))
    # Of rounded noise alone a ledger's sum is as exact, and rounded up.
    known = all(math.isfinite(epsilon) for epsilon, _ in pure) and (bool(pure) or not others)
    losses = losses_epsilon(pure, math.sqrt(mu_squared), delta) if known else None
    return smallest(cost.event(), losses, delta)


def _mu_squared(happened: Happened) -> float:
    """Return μ² of a release with Gaussian noise; 0 for others."""
    if isinstance(happened, Gaussian):
        return happened.mu_squared
    return 2 * happened.rho if isinstance(happened, Event) and happened.gaussian and not happened.mixed else 0.0


def _event(happened: Happened) -> Event:
    return happened if isinstance(happened, Event) else happened.event()


def smallest(total: Event, losses: float | None, delta: float) -> Figure:
    """Return the smallest of all candidates.

    Args:
        total: What all releases cost.
        losses: ε by the distribution of their losses; None where that is not known.
        delta: The δ at which ε is wanted.
    """
    candidates = {SUM: total.pure, RENYI: total.epsilon("rdp", delta)}
    if total.mixed:
        candidates[MIXED] = total.epsilon("mixed", delta)
    if losses is None:
        candidates[EXACT] = total.epsilon("gaussian", delta)
    if losses is not None:
        candidates[LOSSES] = losses
    # Of equal figures the first stands, and Σε says more: it holds at δ = 0.
    by = min(candidates, key=lambda name: candidates[name] * (1 + PRECISION * (name != SUM)))
    return Figure(epsilon=candidates[by], delta=0.0 if by == SUM else delta, by=by)


def _of_steps(cost: Cost, delta: float) -> Figure:
    """Return what steps of one kind cost together."""
    (step, *others), counts = zip(*cost.events, strict=True)
    if not isinstance(step, Sampled) or any(other != step for other in others):
        raise ValueError("nothing is proven for sampled steps beside other releases, or of several kinds")
    epsilon = steps_epsilon(step, sum(counts), delta)
    return Figure(epsilon=epsilon, delta=delta, by=LOSSES if step.sampling == "poisson" else RENYI)
