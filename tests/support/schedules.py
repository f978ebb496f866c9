"""Releases declared in advance, and their ε by the distribution of privacy losses."""

from __future__ import annotations

import math

from crowdml.core import record
from crowdml.privacy.accounting import Event
from crowdml.privacy.cost import Figure, smallest
from crowdml.privacy.promise import losses_epsilon


@record
class Schedule:
    """Releases declared in advance.

    Attributes:
        pure: ε of pure releases, and how often each is made.
        gaussian: μ of ideal Gaussian releases, and how often each is made.
    """

    pure: tuple[tuple[float, int], ...] = ()
    gaussian: tuple[tuple[float, int], ...] = ()


def pld_epsilon(schedule: Schedule, delta: float) -> float:
    """Return ε of a schedule at δ."""
    mu = math.sqrt(sum(strength**2 * count for strength, count in schedule.gaussian))
    return losses_epsilon(schedule.pure, mu, delta)


def figure(total: Event, schedule: Schedule | None, delta: float) -> Figure:
    """Return the smallest valid figure of a ledger's sum and a schedule of the same releases, where one is known."""
    return smallest(total, None if schedule is None else pld_epsilon(schedule, delta), delta)
