"""How the targets of a crowd are spread, with the band of the noise: equation (14) of Crowd-ML 2015 for the prior.

Devices count how many of their rows fall under each label, or into each bin of a number, and add noise. The sums over
all check-ins are N'_k = N_k + Z_k, and how many rows were counted, n, travels in clear. So N'_k/n estimates the share
of each label among all rows that were looked at, rows that were looked at twice counting twice. These counts are
charged with every release; to show them costs nothing more. The band is that of `recent_error`: sampling, and noise.
"""

from __future__ import annotations

from crowdml.core import Tally, Target, record
from crowdml.privacy import Plan
from crowdml.task.recent_error import band


@record
class TargetShare:
    """The share of one label, or of one bin of a number.

    Attributes:
        name: The label; or the bin, such as `10 to 12`.
        share: Its share as noise left it: it may be below 0 or above 1.
        low: Lower end of the 95 % band.
        high: Upper end.
    """

    name: str
    share: float
    low: float
    high: float


def spread_noise_variance(plan: Plan) -> float:
    """Return the variance of the noise on one number of the spread of one check-in: the largest an owner may choose."""
    counts = plan.noisiest.last.counts
    return counts.spread_variance if counts else 0.0


def target_shares(target: Target, counts: Tally, check_ins: int, noise_variance: float) -> list[TargetShare]:
    """Estimate the share of each label or bin; nothing before any row was counted.

    Args:
        target: What rows are mapped to.
        counts: Sums over all check-ins, with noise.
        check_ins: How many check-ins those are.
        noise_variance: Of one number of one check-in, as `spread_noise_variance` has it.
    """
    rows = int(counts.rows)
    if rows <= 0:
        return []
    found = []
    for name, number in zip(target.bin_names, counts.spread.tolist(), strict=True):
        low, high = band(number / rows, rows, check_ins * noise_variance)
        found.append(TargetShare(name=name, share=number / rows, low=low, high=high))
    return found
