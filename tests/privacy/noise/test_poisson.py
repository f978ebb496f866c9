"""Poisson and Skellam draws: certain digits, exact ratios, statistics, closure under sums, and the rare second word."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from crowdml.privacy.noise.poisson import LARGEST_MEAN, digits_of, poisson, skellam
from crowdml.privacy.noise.samplers import GivenWords, OsWords

MEANS = [Fraction(1, 8), Fraction(1), Fraction(7, 2), Fraction(39, 8), Fraction(60)]


def exact(mean: Fraction, most: int) -> tuple[list[Fraction], Fraction]:
    """Return S(k) = Σ_{j ≤ k} λ^j/j! for k ≤ most, and e^λ from below, by plain fractions (off by less than 2^-400)."""
    sums, term, total, k = [], Fraction(1), Fraction(0), 0
    while k <= most or term > Fraction(1, 1 << 450):
        total += term
        sums.append(total)
        k += 1
        term = term * mean / k
    return sums, total


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_every_digit_is_certain(mean: Fraction, depth: int) -> None:
    table = digits_of(mean, depth)
    most = table.first + len(table.digits)
    sums, total = exact(mean, most)
    one = 1 << 64 * depth
    for k in range(most):
        wanted = math.floor(one * sums[k] / total)
        found = table.digits[k - table.first] if k >= table.first else 0
        assert found == wanted
    assert table.digits[-1] == one - 1


@pytest.mark.parametrize("mean", MEANS)
def test_probabilities_have_exactly_the_ratios_of_a_poisson_law(mean: Fraction) -> None:
    """P(k + 1)/P(k) = λ/(k + 1): with 192 certain bits each difference of digits is off by one unit at most."""
    table = digits_of(mean, 3)
    masses = np.diff(np.array([0, *table.digits], object))
    for k in range(1, len(masses) - 1):
        if masses[k] > 1 << 100:
            ratio = Fraction(int(masses[k + 1]), int(masses[k])) / (mean / (table.first + k + 1))
            assert abs(ratio - 1) < Fraction(1, 1 << 90)


def test_a_draw_is_the_first_k_whose_probability_is_not_reached() -> None:
    table = digits_of(Fraction(7, 2), 1)
    assert table.first == 0
    for k in (0, 3, 10):
        for word, found in ((table.digits[k] - 1, k), (table.digits[k] + 1, k + 1)):
            given = GivenWords([word])
            assert poisson(given, Fraction(7, 2), 1).tolist() == [found]
            assert given.taken == 1


def test_a_word_that_is_a_digit_needs_another_and_lanes_keep_their_order() -> None:
    mean = Fraction(7, 2)
    one, two = digits_of(mean, 1), digits_of(mean, 2)
    first, second = one.digits[3], two.digits[3] & ((1 << 64) - 1)
    given = GivenWords([first, 5, first, first, second - 1, second, second + 1, 1 << 63])
    third = digits_of(mean, 3).digits[3] & ((1 << 64) - 1)
    drawn = poisson(given, mean, 4).tolist()
    assert drawn == [3, 0, 3 if third > 1 << 63 else 4, 4]
    assert given.taken == 8


def test_the_ends_of_the_table_need_another_word() -> None:
    """Of a mean of 60 the first digits are 0, and the last ones all nines: words of that kind decide nothing yet."""
    for word, beyond in ((0, "left"), ((1 << 64) - 1, "right")):
        given = GivenWords([word, 1 << 63])
        drawn = int(poisson(given, Fraction(60), 1)[0])
        assert given.taken == 2
        assert drawn < 10 if beyond == "left" else drawn > 130


def skellam_pmf(variance: Fraction) -> Callable[[Any], Any]:
    return lambda z: special.ive(np.abs(z), float(variance))


def chi_square(draws: Any, pmf: Callable[[Any], Any], reach: int) -> float:
    """Return χ² over at most 201 cells and both tails as a standard normal deviate of the same probability."""
    width = max(1, (2 * reach + 1) // 200)
    edges = np.arange(-reach, reach + 1, width)
    cells = np.array([pmf(np.arange(edge, edge + width)).sum() for edge in edges[:-1]])
    inside = 1 - cells.sum()
    expected = np.concatenate([[inside / 2], cells, [inside / 2]]) * len(draws)
    observed = np.bincount(np.searchsorted(edges, draws, side="right"), minlength=len(edges) + 1)
    observed[-1] += observed[0]
    expected[-1] += expected[0]
    common = expected[1:] > 20
    square = ((observed - expected)[1:][common] ** 2 / expected[1:][common]).sum()
    return float(stats.norm.isf(max(stats.chi2.sf(square, int(common.sum()) - 1), 1e-300)))


VARIANCES = [Fraction(1, 8), Fraction(4), Fraction(39, 4), Fraction(100**2), Fraction(2001**2)]


def reach_of(variance: Fraction) -> int:
    return 5 * math.isqrt(math.ceil(variance)) + 4


@pytest.mark.parametrize("variance", VARIANCES)
def test_a_million_skellam_draws(variance: Fraction) -> None:
    """False alarm: one of 5 cases beyond 4 standard deviations on either side, 1 in 3,000."""
    draws = skellam(OsWords(), variance, 1_000_000)
    assert draws.dtype == np.int64
    assert abs(chi_square(draws, skellam_pmf(variance), reach_of(variance))) < 4


def test_a_million_sums_of_shares_have_the_law_of_the_sum() -> None:
    """Closure: five shares of 9/4 are one draw of 45/4. False alarm: 1 in 16,000."""
    draws = skellam(OsWords(), Fraction(9, 4), 5_000_000).reshape(5, -1).sum(axis=0)
    assert abs(chi_square(draws, skellam_pmf(Fraction(45, 4)), reach_of(Fraction(45, 4)))) < 4


def test_a_wrong_variance_would_be_noticed() -> None:
    """A deviation wrong by 3 % lies tens of deviations out, so it is missed by chance less than once in 10¹²."""
    draws = skellam(OsWords(), 100**2, 1_000_000)
    assert chi_square(draws, skellam_pmf(Fraction(103**2)), 500) > 5
    # And the law is not a discrete Gaussian: at small variance its tails are longer.
    draws = skellam(OsWords(), 1, 1_000_000)
    weights = np.exp(-(np.arange(-40, 41) ** 2) / 2)
    assert chi_square(draws, lambda z: np.exp(-(z.astype(float) ** 2) / 2) / weights.sum(), 8) > 5


def test_a_large_mean_is_exact_too() -> None:
    """The digits of a large table against the regularised gamma function, as far as floating point reaches."""
    mean = 123_456
    table = digits_of(Fraction(mean), 1)
    numbers = np.arange(table.first, table.first + len(table.digits))
    judged = special.gammaincc(numbers + 1.0, float(mean))
    found = np.array([digit / 2**64 for digit in table.digits])
    assert np.abs(found - judged).max() < 1e-11


def test_what_is_not_a_variance_is_refused() -> None:
    for wrong in (0, -1, 2 * LARGEST_MEAN + 1):
        with pytest.raises(ValueError, match="variance"):
            skellam(OsWords(), wrong, 1)
        with pytest.raises(ValueError, match="mean"):
            poisson(OsWords(), wrong, 1)
    assert skellam(OsWords(), 4, 0).tolist() == []
