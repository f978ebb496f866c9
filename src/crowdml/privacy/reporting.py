"""Reporting: the smallest valid ε of releases that were declared in advance, and which sum proves it.

These figures are candidates, and each is valid:

- Σε over pure releases, at δ = 0;
- Rényi divergences, the sum Σρ of `accounting`;
- both side by side, for pure counts next to Gaussian noise, as in `accounting`;
- the privacy loss distribution. It is tighter than the sums, but belongs to one fixed schedule. So it reports, and
  never decides.

What a loss distribution is made of:

- a pure ε release enters as randomised response, which dominates every ε-DP mechanism (Kairouz, Oh and Viswanath 2015,
  theorem 3.4): its loss is +ε with probability e^ε/(1 + e^ε), otherwise -ε;
- an ideal Gaussian release of strength μ, as in paper mode, is one-dimensional after a rotation; releases add up in μ²;
- discrete Gaussian noise on many integers does not enter: no dominating pair is proven for the lattice. There Σρ
  stands.

Losses of independent releases add up, so δ(ε) = Σ P(L) · δ_μ(ε - L) over the sums L of pure losses, where δ_μ is the δ
of a Gaussian release, exactly. That needs no grid. The result is rounded up by less than one part in a million.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import record
from crowdml.privacy.accounting import FILTER_NAMES, Event
from crowdml.privacy.plan import Plan
from crowdml.privacy.promise import gaussian_epsilon
from crowdml.privacy.sound import Sound

SUM, RENYI, MIXED = FILTER_NAMES["pure"], FILTER_NAMES["rdp"], FILTER_NAMES["mixed"]
LOSSES = "privacy loss distribution"
"""Names of the candidates."""

PRECISION = 1e-6
SLACK = 1 + 1e-9
"""More than rounding can take away from a δ."""

Floats = npt.NDArray[np.float64]


@record
class Schedule:
    """Releases declared in advance.

    Attributes:
        pure: ε of pure releases, and how often each is made.
        gaussian: μ of ideal Gaussian releases, and how often each is made.
    """

    pure: tuple[tuple[float, int], ...] = ()
    gaussian: tuple[tuple[float, int], ...] = ()


@record
class Figure:
    """An ε that holds at a δ, and the sum that proves it."""

    epsilon: float
    delta: float
    by: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"epsilon": round(self.epsilon, 6), "delta": self.delta, "by": self.by}


def figure(total: Event, schedule: Schedule | None, delta: float) -> Figure:
    """Return the smallest valid figure.

    Args:
        total: What all releases cost.
        schedule: The same releases, where a loss distribution is known for each of them; None otherwise.
        delta: The δ at which ε is wanted.
    """
    candidates = {SUM: total.pure, RENYI: total.epsilon("rdp", delta)}
    if total.mixed:
        candidates[MIXED] = total.epsilon("mixed", delta)
    if schedule is not None:
        candidates[LOSSES] = pld_epsilon(schedule, delta)
    # Of equal figures the first stands, and Σε says more: it holds at δ = 0.
    by = min(candidates, key=lambda name: candidates[name] * (1 + PRECISION * (name != SUM)))
    return Figure(epsilon=candidates[by], delta=0.0 if by == SUM else delta, by=by)


def sound_figure(sound: Sound, releases: int, delta: float, rows: int | None = None) -> Figure:
    """Return the smallest valid figure of releases in sound mode.

    Args:
        sound: What a device releases.
        releases: How often.
        delta: The δ at which ε is wanted.
        rows: None for one sample; for a device, its rows in a release.
    """
    parts = _parts(sound, rows)
    total = functools.reduce(Event.plus, parts).times(releases - 1 if sound.opening else releases)
    if sound.opening:
        total = total.plus(sound.opening.event.grouped(rows or 1))
    schedule = None
    if not math.isinf(total.pure):
        schedule = Schedule(pure=tuple((own.pure, releases) for own in parts))
    return figure(total, schedule, delta)


def _parts(sound: Sound, rows: int | None) -> list[Event]:
    """Return what update and counts of one release cost a sample, or a device with so many rows in it."""
    update, counts = sound.update, sound.statistics
    if rows is None:
        return [update.event_of_sample] + ([counts.event_of(1)] if counts else [])
    if update.grid.per == "example":
        return [own.grouped(rows) for own in _parts(sound, None)]
    return [update.event] + ([counts.event_of(rows)] if counts else [])


def paper_figure(plan: Plan, releases: int, group: int = 1) -> Figure:
    """Return the smallest valid figure of releases in paper mode, for `group` samples at once."""
    parts = (
        [own.spent for own in (plan.gradient, plan.statistics) if own] if plan.inputs is None else [plan.inputs.spent]
    )
    times = releases if plan.inputs is None else 1
    total = plan.spent(releases).grouped(group)
    rho = sum(own.pure**2 + own.mu_squared for own in parts) * times * group**2 / 2
    pure = math.inf if total.mu_squared else total.pure
    schedule = Schedule(
        pure=tuple((own.pure * group, times) for own in parts if own.pure),
        gaussian=tuple((math.sqrt(own.mu_squared) * group, times) for own in parts if own.mu_squared),
    )
    return figure(Event(pure=pure, rho=rho), schedule, plan.delta)


def correlated_figure(plan: Plan, sensitivity_squared: float, group: int = 1) -> Figure:
    """Return the smallest valid figure of releases that together are one Gaussian release, by their matrix."""
    total = plan.spent_together(sensitivity_squared).grouped(group)
    schedule = Schedule(gaussian=((math.sqrt(total.mu_squared), 1),))
    return figure(Event(pure=math.inf, rho=total.mu_squared / 2), schedule, plan.delta)


@functools.lru_cache(maxsize=1024)
def pld_epsilon(schedule: Schedule, delta: float) -> float:
    """Return ε of a schedule at δ, by its privacy loss distribution.

    >>> round(pld_epsilon(Schedule(pure=((0.1, 100),)), 1e-5), 3)
    4.307
    """
    most = sum(epsilon * count for epsilon, count in schedule.pure)
    mu = math.sqrt(sum(strength**2 * count for strength, count in schedule.gaussian))
    if delta <= 0.0:
        return math.inf if mu else most
    if not schedule.pure:
        return gaussian_epsilon(mu, delta) if mu else 0.0
    losses, chances, missing = _losses(schedule.pure, delta)
    exact = _gaussian_delta(mu) if mu else lambda excess: -np.expm1(np.minimum(excess, 0.0))
    low, high = 0.0, most + (gaussian_epsilon(mu, delta) if mu else 0.0)

    def kept(epsilon: float) -> bool:
        return float((chances * exact(epsilon - losses)).sum()) * SLACK + missing <= delta

    if kept(0.0):
        return 0.0
    while high - low > PRECISION / 4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if kept(middle) else (middle, high)
    return high


def _losses(pure: tuple[tuple[float, int], ...], delta: float) -> tuple[Floats, Floats, float]:
    """Return sums of losses, their chances, and the chance of all that were left out as too unlikely."""
    losses, chances, missing = np.zeros(1), np.ones(1), 0.0
    for epsilon, count in pure:
        own, likely, left = _binomial(epsilon, count, delta * 1e-10)
        losses = (losses[:, None] + own).ravel()
        chances = (chances[:, None] * likely).ravel()
        missing += left
    return losses, chances, missing


def _binomial(epsilon: float, count: int, negligible: float) -> tuple[Floats, Floats, float]:
    """Return the losses of `count` releases of pure ε: count - 2i times ε, where i is binomial."""
    i = np.arange(count + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])
    # The chance of -ε is 1/(1 + e^ε); its logarithm, and that of the other, without overflow.
    minus = -(max(epsilon, 0.0) + math.log1p(math.exp(-epsilon)))
    chances = np.exp(logs[-1] - logs - logs[::-1] + i * minus + (count - i) * (minus + epsilon))
    likely = chances > negligible / (count + 1)
    return epsilon * (count - 2.0 * i[likely]), chances[likely], float(chances[~likely].sum())


def _gaussian_delta(mu: float) -> Callable[[Floats], Floats]:
    """Return the exact δ of a Gaussian release as a function of ε (Balle and Wang 2018, theorem 8), also below zero."""
    from scipy.special import log_ndtr, ndtr  # late: it costs half a second at every start

    def delta(epsilon: Floats) -> Floats:
        far = np.exp(np.minimum(epsilon + log_ndtr(-mu / 2 - epsilon / mu), 0.0))
        return np.asarray(np.maximum(ndtr(mu / 2 - epsilon / mu) - far, 0.0))

    return delta
