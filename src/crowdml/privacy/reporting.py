"""Reporting a schedule that was declared in advance: privacy loss distributions, and the smallest valid figure.

A numerical privacy loss distribution (dp-accounting) is tighter than either filter, but belongs to one fixed schedule.
So it reports, and never decides. What enters:

- a pure ε release as randomised response, which dominates every ε-DP mechanism (Kairouz, Oh and Viswanath 2015);
- an ideal Gaussian release of strength μ, as in paper mode, which is one-dimensional after a rotation;
- discrete Gaussian noise on many integers does not: no dominating pair is proven for the lattice. There ρ stands.

dp-accounting takes seconds to import, so it is imported when first asked for, and answers are kept.
"""

from __future__ import annotations

import functools
import math

from crowdml.core import record
from crowdml.privacy.promise import Promise

INTERVAL = 1e-4
"""Grid of the loss distribution; a coarser one is worse than Σρ."""


@record
class Schedule:
    """Releases declared in advance.

    Attributes:
        pure: ε of pure releases, and how often each is made.
        gaussian: μ of ideal Gaussian releases, and how often each is made.
    """

    pure: tuple[tuple[float, int], ...] = ()
    gaussian: tuple[tuple[float, int], ...] = ()


@functools.lru_cache(maxsize=256)
def pld_epsilon(schedule: Schedule, delta: float) -> float:
    """Return ε of a schedule at δ, by its privacy loss distribution (pessimistic: never below the truth)."""
    from dp_accounting.pld import common, privacy_loss_distribution

    parts = [
        privacy_loss_distribution.from_privacy_parameters(
            common.DifferentialPrivacyParameters(epsilon, 0.0), value_discretization_interval=INTERVAL
        ).self_compose(count)
        for epsilon, count in schedule.pure
    ]
    parts += [
        privacy_loss_distribution.from_gaussian_mechanism(1 / mu, value_discretization_interval=INTERVAL).self_compose(
            count
        )
        for mu, count in schedule.gaussian
    ]
    if not parts:
        return 0.0
    return float(functools.reduce(lambda one, other: one.compose(other), parts).get_epsilon_for_delta(delta))


def smallest(candidates: dict[str, float], delta: float) -> tuple[str, Promise]:
    """Return the name and the promise of the smallest valid figure; the pure sum holds at δ = 0.

    >>> smallest({"Σε": 3.0, "Σρ": 2.0}, 1e-5)
    ('Σρ', Promise(epsilon=2.0, delta=1e-05))
    """
    name = min(candidates, key=lambda key: (candidates[key], key))
    return name, Promise(epsilon=candidates[name], delta=0.0 if name == "Σε" or math.isinf(candidates[name]) else delta)
