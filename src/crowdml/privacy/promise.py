"""Promise: what an ε and a δ say, and how releases add up.

Two sums are kept apart, because each composes exactly in its own way: pure ε adds up, and Gaussian releases add up
in μ², where μ is sensitivity over standard deviation (Dong, Roth and Su, Gaussian differential privacy).
"""

from __future__ import annotations

import math

from crowdml.core import record


@record
class Promise:
    """An (ε, δ) guarantee."""

    epsilon: float
    delta: float = 0.0


@record
class Spent:
    """What a sequence of releases costs: Σε over pure releases and Σμ² over Gaussian ones.

    >>> five_passes = Spent(pure=10.0).times(5)
    >>> five_passes.promise(delta=0.0)
    Promise(epsilon=50.0, delta=0.0)
    """

    pure: float = 0.0
    mu_squared: float = 0.0

    def plus(self, other: Spent) -> Spent:
        """Add what other releases cost."""
        return Spent(pure=self.pure + other.pure, mu_squared=self.mu_squared + other.mu_squared)

    def times(self, releases: int) -> Spent:
        """Repeat the same releases, each with fresh noise."""
        return Spent(pure=self.pure * releases, mu_squared=self.mu_squared * releases)

    def grouped(self, size: int) -> Spent:
        """Protect `size` samples at once: every sensitivity grows by that factor."""
        return Spent(pure=self.pure * size, mu_squared=self.mu_squared * size**2)

    def promise(self, delta: float) -> Promise:
        """Return the smallest ε this accounting can prove at the given δ."""
        if self.mu_squared == 0.0:
            return Promise(epsilon=self.pure)
        return Promise(epsilon=self.pure + gaussian_epsilon(math.sqrt(self.mu_squared), delta), delta=delta)


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
    low, high = 0.0, 1.0
    while gaussian_delta(mu, high) > delta:
        low, high = high, high * 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(mu, middle) > delta else (low, middle)
    return high


def classical_scale(epsilon: float, delta: float) -> float:
    """Return √(2 ln(1.25/δ))/ε: the textbook's scale for sensitivity 1, more than is needed, and proven for ε < 1.

    >>> round(classical_scale(0.1, 1e-3), 1)
    37.8
    """
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ that keeps (ε, δ): the analytic calibration of the Gaussian mechanism."""
    low, high = 0.0, 1.0
    while gaussian_delta(high, epsilon) <= delta:
        low, high = high, high * 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if middle > 0 and gaussian_delta(middle, epsilon) <= delta else (low, middle)
    return low
