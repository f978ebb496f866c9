"""Shares of targets: equation (14) for the prior, and a band that holds the truth as often as it says."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.core import Labels, Number, Tally
from crowdml.privacy.noise.counts import CountNoise, laplace_variance
from crowdml.task.target_shares import target_shares


def tally(rows: int, *spread: int) -> Tally:
    return Tally(rows=np.int32(rows), counted=np.int32(rows), errors=np.int32(0), spread=np.array(spread, np.int32))


def test_a_share_is_a_count_over_all_rows() -> None:
    found = target_shares(Labels(names=("a", "b")), tally(40, 10, 30), 2, 0.0)
    assert [(own.name, own.share) for own in found] == [("a", 0.25), ("b", 0.75)]
    assert all(own.low < own.share < own.high for own in found)


def test_bins_of_a_number_have_their_names() -> None:
    found = target_shares(Number(low=10.0, high=20.0, bins=2), tally(4, 1, 3), 1, 0.0)
    assert [own.name for own in found] == ["10 to 15", "15 to 20"]


def test_nothing_is_said_before_a_row_was_counted() -> None:
    assert target_shares(Labels(names=("a", "b")), tally(0, 0, 0), 0, 1.0) == []


@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_the_band_holds_the_truth_nineteen_times_in_twenty(scale: float) -> None:
    """Rows drawn alike, noise as devices add it: the share is in its band about as often as the band says."""
    draws, check_ins, rows, truth, tries = np.random.default_rng(3), 20, 2000, 0.3, 400
    variance = CountNoise(errors=1.0, spread=scale).spread_variance
    assert variance == pytest.approx(laplace_variance(scale))
    ratio = np.exp(-1 / scale)
    inside = 0
    for _ in range(tries):
        noise = draws.geometric(1 - ratio, check_ins) - draws.geometric(1 - ratio, check_ins)
        count = draws.binomial(rows, truth) + int(noise.sum())
        first, _ = target_shares(Labels(names=("a", "b")), tally(rows, count, rows - count), check_ins, variance)
        inside += first.low <= truth <= first.high
    assert 0.92 <= inside / tries <= 0.98
