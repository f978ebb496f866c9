"""The error of the recent check-ins, with the band of its noise: what a page may honestly show of a live task.

Counts are summed from the beginning, so their quotient remembers the first, bad models for ever. The difference of two
such sums is about the check-ins between them. Of n rows counted in m check-ins the server has E' = E + Z: the true
number of errors, and noise that the devices added. With p the chance that the recent models get a row wrong,

    Var(E'/n) = p(1 - p)/n + m·v/n²

where the first part is sampling (rows drawn alike and apart) and the second is noise, v being the variance of one
check-in's noise. The band holds every p in [0, 1] that lies within 1.96 such deviations of the estimate: Wilson's score
interval, with noise. It leaves out that the model moves within the window, that rows may have been trained on before,
and Byzantine devices.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from crowdml.core import record
from crowdml.privacy import Plan

LEAST_CHECK_INS = 20
"""A window holds at least so many check-ins, if there are as many."""
SHARE = 5
"""And at least the last fifth of all."""
DEVIATIONS = 1.96
"""Half of a 95 % band, in standard deviations."""

WIDEST = 0.5
"""An error whose band is wider than this is not known."""


@record
class Totals:
    """Counts summed from the beginning up to a moment.

    Attributes:
        version: Commits so far.
        check_ins: Check-ins so far.
        counted: Rows over which errors were counted.
        errors: Errors among them, with noise.
    """

    version: int
    check_ins: int
    counted: int
    errors: int


BEGINNING = Totals(version=0, check_ins=0, counted=0, errors=0)


@record
class RecentError:
    """The error over a window of check-ins.

    Attributes:
        estimate: Errors over rows counted, as noise left it: it may be below 0 or above 1.
        low: Lower end of the 95 % band.
        high: Upper end.
        check_ins: Check-ins in the window.
        rows: Rows counted in it.
        from_version: Version at its beginning.
        to_version: Version at its end.
    """

    estimate: float
    low: float
    high: float
    check_ins: int
    rows: int
    from_version: int
    to_version: int

    @property
    def says_something(self) -> bool:
        """Whether the band leaves out half of what an error can be; else noise hides it, and no number stands alone."""
        return self.high - self.low <= WIDEST

    def words(self) -> str:
        """Say it in one line; noise may push an estimate out of [0, 1], where no error can be.

        >>> RecentError(
        ...     estimate=0.21, low=0.14, high=0.3, check_ins=20, rows=400, from_version=80, to_version=100
        ... ).words()
        '0.21 (95 % band 0.14 to 0.30; last 20 check-ins, 400 rows, version 80 to 100)'
        """
        estimate = min(1.0, max(0.0, self.estimate))
        return (
            f"{estimate:.2f} (95 % band {self.low:.2f} to {self.high:.2f}; last {self.check_ins} check-ins, "
            f"{self.rows} rows, version {self.from_version} to {self.to_version})"
        )


def count_noise_variance(plan: Plan) -> float:
    """Return the variance of the noise on the error count of one check-in: the largest that an owner may choose."""
    counts = plan.noisiest.last.counts
    return counts.variance if counts else 0.0


def band(estimate: float, rows: int, noise_variance: float) -> tuple[float, float]:
    """Return the 95 % band of an error rate.

    Args:
        estimate: Errors over rows, with noise.
        rows: Rows counted, at least one.
        noise_variance: Variance of the noise in the number of errors, over the whole window.

    >>> low, high = band(0.1, 100, 0.0)  # Wilson's interval for 10 of 100
    >>> round(low, 3), round(high, 3)
    (0.055, 0.174)
    """
    sampling = DEVIATIONS**2 / rows
    noise = DEVIATIONS**2 * noise_variance / rows**2
    # (p̂ - p)² = sampling·p(1 - p) + noise, solved for p.
    middle = 2.0 * estimate + sampling
    inside = sampling**2 + 4.0 * sampling * estimate * (1.0 - estimate) + 4.0 * (1.0 + sampling) * noise
    spread = math.sqrt(max(inside, 0.0))  # below zero no p is likely at all: the nearest is left
    ends = ((middle + side * spread) / (2.0 * (1.0 + sampling)) for side in (-1.0, 1.0))
    low, high = (min(1.0, max(0.0, end)) for end in ends)
    return low, high


def recent_error(marks: Sequence[Totals], now: Totals, noise_variance: float) -> RecentError | None:
    """Return the error over the recent check-ins; None where nothing was counted in them.

    Args:
        marks: Earlier moments, oldest first.
        now: The present.
        noise_variance: Of one check-in, as `count_noise_variance` has it.
    """
    length = max(LEAST_CHECK_INS, -(-now.check_ins // SHARE))
    at = bisect_right(marks, now.check_ins - length, key=lambda mark: mark.check_ins)
    start = marks[at - 1] if at else BEGINNING
    rows, check_ins = now.counted - start.counted, now.check_ins - start.check_ins
    if rows <= 0:
        return None
    estimate = (now.errors - start.errors) / rows
    low, high = band(estimate, rows, check_ins * noise_variance)
    return RecentError(
        estimate=estimate,
        low=low,
        high=high,
        check_ins=check_ins,
        rows=rows,
        from_version=start.version,
        to_version=now.version,
    )
