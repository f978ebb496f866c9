"""Rényi divergences: the ε that Σρ of zero-concentrated privacy gives at a δ.

By proposition 12 of Canonne, Kamath and Steinke (2020): for every α > 1, ε = ρα + ln(1 - 1/α) - (ln δ + ln α)/(α - 1).
Whatever α the search ends at, the figure is valid. The divergences of Skellam noise are known at whole orders
α = 2, 3, … only; a sum with such a release is turned into ε at those.
"""

from __future__ import annotations

import functools
import math

from crowdml.privacy.promise import narrowed

ROUNDING = 2.0**-50
"""More than the handful of floating-point operations at one order can lose, relative to the largest number in them."""


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
def rho_budget(epsilon: float, delta: float, whole: bool = False) -> float:
    """Return the largest ρ whose ε at δ is at most `epsilon`, by all orders or by whole ones."""
    return narrowed(lambda rho: rdp_epsilon(rho, delta, whole) <= epsilon)[0]
