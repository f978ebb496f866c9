"""Trade-off curve: of two errors that a guess can make, how small one can be where the other is given.

Whoever guesses "first" in the second world makes one kind of error (α), whoever guesses "second" in the first makes the
other (β). No method lies below the curve β = f(α). It says everything that a promise says: its tangent of slope -e^ε
meets the axis at 1 - δ, so every (ε, δ) is a tangent; and the best guess at even odds is where α + β is least, so
`odds` is 1 - (α + β)/2 there. Drawn is what is proven:

- of pure and Gaussian releases the largest of all tangents, by δ(ε) of `odds`:
  f(α) = max over ε of 1 - δ(ε) - e^ε α and e^-ε (1 - δ(ε) - α);
- where only Rényi divergences are known, the coins 1 - β and α may differ by at most ρα' at every order α', in both
  directions; that is post-processing, as for the odds.
"""

from __future__ import annotations

import math

import numpy as np

from crowdml.privacy.cost import Cost
from crowdml.privacy.odds import ORDERS, Known, known_delta, sorted_parts
from crowdml.privacy.promise import Floats

TANGENTS = 1500
STEPS = 60


def trade_off(cost: Cost, first: Floats) -> Floats:
    """Return the least second error for each first error, from 0 to 1.

    >>> from crowdml.privacy.cost import Pure
    >>> trade_off(Cost.of(Pure(epsilon=math.log(3))), np.array([0.0, 0.25, 1.0])).round(3).tolist()
    [1.0, 0.25, 0.0]
    """
    known = sorted_parts(cost)
    if known.steps:
        raise ValueError("no curve is drawn for steps on a random part of the rows")
    if known.rho:
        return np.array([_least_second(cost.event().rho, known.whole, float(error)) for error in first])
    return _tangents(known, first)


def _tangents(known: Known, first: Floats) -> Floats:
    delta = known_delta(known)
    most = sum(epsilon * count for epsilon, count in known.pure) + known.mu**2 / 2 + 9 * known.mu
    found = np.zeros_like(first)
    # The steepest tangents decide where errors are rare: more of them near ε = 0 would not be seen.
    for epsilon in np.unique(np.append(np.linspace(0.0, most, TANGENTS), [each for each, _ in known.pure])):
        kept, steep = 1 - delta(float(epsilon)), math.exp(min(float(epsilon), 700.0))
        found = np.maximum(found, np.maximum(kept - steep * first, (kept - first) / steep))
    return np.clip(found, 0.0, 1.0)


def _least_second(rho: float, whole: bool, first: float) -> float:
    """Narrow down β: the coins 1 - β and α come the further apart, the smaller it is."""
    orders = [order for order in ORDERS if not whole or (order >= 2 and order.is_integer())]
    low, high = 0.0, 1 - first
    for _ in range(STEPS):
        middle = (low + high) / 2
        far = any(
            _between(p, q, order) > rho * order
            for order in orders
            for p, q in ((1 - middle, first), (first, 1 - middle))
        )
        low, high = (middle, high) if far else (low, middle)
    return low


def _between(p: float, q: float, order: float) -> float:
    """Rényi divergence of the coin p from the coin q.

    >>> _between(0.5, 0.5, 2.0), _between(0.5, 0.0, 2.0)
    (0.0, inf)
    """
    sides = [(one, other) for one, other in ((p, q), (1 - p, 1 - q)) if one > 0]
    if any(other <= 0 for _, other in sides):
        return math.inf
    if order == 1.0:
        return sum(one * math.log(one / other) for one, other in sides)
    powers = [order * math.log(one) + (1 - order) * math.log(other) for one, other in sides]
    largest = max(powers)
    return (largest + math.log(sum(math.exp(power - largest) for power in powers))) / (order - 1)
