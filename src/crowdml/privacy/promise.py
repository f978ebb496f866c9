"""Promise: an ε and a δ, and the ε that privacy loss distributions prove at a δ, exactly.

- Gaussian releases add up in μ², where μ is sensitivity over standard deviation (Dong, Roth and Su, Gaussian
  differential privacy): together they are one Gaussian release, whose δ at ε is known (Balle and Wang 2018). An ideal
  Gaussian release of many numbers is one-dimensional after a rotation.
- A pure ε release is at worst randomised response, which dominates every ε-DP mechanism (Kairouz, Oh and Viswanath
  2015, theorem 3.4): its loss is +ε with probability e^ε/(1 + e^ε), otherwise -ε.
- Losses of independent releases add up, so δ(ε) = Σ P(L) · δ_μ(ε - L) over the sums L of pure losses, where δ_μ is the
  δ of a Gaussian release. That needs no grid. The result is rounded up by less than one part in a million.
- Gaussian steps on a random part of the rows are left to dp-accounting: the privacy loss distribution where every row
  is taken by itself (Poisson), Rényi divergences where their number is fixed (Wang, Balle and Kasiviswanathan 2019).
- Rounded Gaussian noise is a function of continuous noise (`gaussian`). Discrete Gaussian noise on many integers, as in
  masked sums, has no such figure: no dominating pair is proven for the lattice. There the sums of `accounting` stand.

A distribution belongs to a schedule that was fixed in advance. So it reports, and never decides.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput, record
from crowdml.core.errors import install

PRECISION = 1e-6
SLACK = 1 + 1e-9
"""More than rounding can take away from a δ."""

ORDERS = (*range(2, 33), 40, 48, 64, 96, 128, 256, 512)
"""Orders of the Rényi divergences of steps: whole ones, at which they are known exactly and quickly."""

Floats = npt.NDArray[np.float64]
Sampling = Literal["poisson", "fixed"]
"""How a step takes its rows: each by itself with some probability, or always so many of them."""


@record
class Promise:
    """An (ε, δ) guarantee."""

    epsilon: float
    delta: float = 0.0


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the exact δ of a Gaussian release at ε (Balle and Wang 2018, theorem 8).

    >>> round(gaussian_delta(1.0, 1.0), 4)
    0.1269
    """
    from scipy.special import log_ndtr, ndtr  # late: it costs half a second at every start

    near, far = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    return max(0.0, float(ndtr(near)) - math.exp(min(700.0, epsilon + float(log_ndtr(far)))))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest ε at which a Gaussian release of strength μ keeps δ; infinite for δ = 0."""
    if delta <= 0.0:
        return math.inf
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    return narrowed(lambda epsilon: gaussian_delta(mu, epsilon) > delta)[1]


def classical_scale(epsilon: float, delta: float) -> float:
    """Return √(2 ln(1.25/δ))/ε: the textbook's scale for sensitivity 1, more than is needed, and proven for ε < 1.

    >>> round(classical_scale(0.1, 1e-3), 1)
    37.8
    """
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ that keeps (ε, δ): the analytic calibration of the Gaussian mechanism."""
    return narrowed(lambda mu: gaussian_delta(mu, epsilon) <= delta)[0]


def narrowed(holds: Callable[[float], bool]) -> tuple[float, float]:
    """Return the largest number found for which something holds, and the least for which it no longer does.

    >>> narrowed(lambda number: number * number <= 2.0)
    (1.414213562373095, 1.4142135623730951)
    """
    low, high = 0.0, 1.0
    while holds(high):
        low, high = high, high * 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


@functools.lru_cache(maxsize=1024)
def losses_epsilon(pure: tuple[tuple[float, int], ...], mu: float, delta: float) -> float:
    """Return ε at δ of pure releases and Gaussian ones, by the distribution of their privacy losses.

    Args:
        pure: ε of pure releases, and how often each is made.
        mu: Strength of all Gaussian releases together; 0 where there are none.
        delta: The δ.

    >>> round(losses_epsilon(((0.1, 100),), 0.0, 1e-5), 3)
    4.307
    """
    most = sum(epsilon * count for epsilon, count in pure)
    if delta <= 0.0:
        return math.inf if mu else most
    if not pure:
        return gaussian_epsilon(mu, delta) if mu else 0.0
    losses, chances, missing = pure_losses(pure, delta)
    exact = gaussian_deltas(mu) if mu else lambda excess: -np.expm1(np.minimum(excess, 0.0))
    low, high = 0.0, most + (gaussian_epsilon(mu, delta) if mu else 0.0)

    def kept(epsilon: float) -> bool:
        return float((chances * exact(epsilon - losses)).sum()) * SLACK + missing <= delta

    if kept(0.0):
        return 0.0
    while high - low > PRECISION / 4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if kept(middle) else (middle, high)
    return high


def pure_losses(pure: tuple[tuple[float, int], ...], delta: float) -> tuple[Floats, Floats, float]:
    """Return sums of losses, their chances, and the chance of all that were left out as too unlikely."""
    losses, chances, missing = np.zeros(1), np.ones(1), 0.0
    for epsilon, count in pure:
        more, likely, left = _binomial(epsilon, count, delta * 1e-10)
        losses = (losses[:, None] + more).ravel()
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


def gaussian_deltas(mu: float) -> Callable[[Floats], Floats]:
    """Return the exact δ of a Gaussian release as a function of ε (Balle and Wang 2018, theorem 8), also below zero."""
    from scipy.special import log_ndtr, ndtr  # late: it costs half a second at every start

    def delta(epsilon: Floats) -> Floats:
        far = np.exp(np.minimum(epsilon + log_ndtr(-mu / 2 - epsilon / mu), 0.0))
        return np.asarray(np.maximum(ndtr(mu / 2 - epsilon / mu) - far, 0.0))

    return delta


@record
class Sampled:
    """A Gaussian step on a random part of the rows (DP-SGD).

    Attributes:
        sampling: How it takes its rows.
        multiplier: Standard deviation of the noise, in sensitivities.
        share: Probability that a row is in it, or the largest share of the rows that it may take.
        batch: Rows that it takes: exactly, or on average.
    """

    sampling: Sampling
    multiplier: float
    share: float
    batch: int

    @property
    def least_rows(self) -> int:
        """Rows of which it takes no larger share than is accounted for."""
        return math.ceil(self.batch / self.share * (1 - 1e-9)) if self.sampling == "fixed" else 1

    def event(self) -> NoReturn:
        """Refuse: sums would forget what sampling saves, and no ledger enforces these steps."""
        raise ValueError("no ledger accounts for sampled steps")

    def grouped(self, size: int) -> Sampled:
        """Refuse more than one sample."""
        if size != 1:
            raise ValueError("sampled steps promise something to one sample, not to several at once")
        return self


@functools.lru_cache(maxsize=256)
def steps_epsilon(step: Sampled, steps: int, delta: float) -> float:
    """Return ε of so many steps at δ.

    >>> round(steps_epsilon(Sampled(sampling="poisson", multiplier=1.1, share=0.01, batch=100), 1000, 1e-5), 2)
    1.52
    """
    if step.sampling == "fixed":
        return divergence_epsilon(step, steps, delta)
    return float(_losses_of_steps(step, steps).get_epsilon(delta))


@functools.lru_cache(maxsize=256)
def steps_delta(step: Sampled, steps: int, epsilon: float) -> float:
    """Return δ of so many steps at ε; at ε = 0 it is the total variation distance of two neighbouring worlds.

    >>> round(steps_delta(Sampled(sampling="poisson", multiplier=1.1, share=0.01, batch=100), 1000, 0.0), 2)
    0.14
    """
    accountant = (_divergences_of_steps if step.sampling == "fixed" else _losses_of_steps)(step, steps)
    return float(accountant.get_delta(epsilon))


@functools.lru_cache(maxsize=16)
def _losses_of_steps(step: Sampled, steps: int) -> Any:
    """Return an accountant of privacy losses, whose figures are rounded up."""
    dp = _dp_accounting()
    losses = dp.pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    losses.compose(dp.PoissonSampledDpEvent(step.share, dp.GaussianDpEvent(step.multiplier)), steps)
    return losses


def divergence_epsilon(step: Sampled, steps: int, delta: float) -> float:
    """Return ε by Rényi divergences: valid for both ways of sampling, quick, and looser for Poisson's."""
    return float(_divergences_of_steps(step, steps).get_epsilon(delta))


def _divergences_of_steps(step: Sampled, steps: int) -> Any:
    dp = _dp_accounting()
    event, relation = dp.GaussianDpEvent(step.multiplier), dp.NeighboringRelation
    if step.sampling == "poisson":
        sampled, neighbours = dp.PoissonSampledDpEvent(step.share, event), relation.ADD_OR_REMOVE_ONE
    else:
        sampled = dp.SampledWithoutReplacementDpEvent(step.least_rows, step.batch, event)
        neighbours = relation.REPLACE_ONE
    accountant = dp.rdp.RdpAccountant(ORDERS, neighboring_relation=neighbours)
    accountant.compose(sampled, steps)
    return accountant


def _dp_accounting() -> Any:
    """Load dp-accounting, late: it costs a second, and only private steps need it."""
    try:
        import dp_accounting
    except ImportError:
        raise BadInput(
            "accounting for noise in local steps needs dp-accounting",
            where="privacy.noise-at",
            hint=install("simulation"),
        ) from None
    return dp_accounting
