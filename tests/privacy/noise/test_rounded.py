"""Rounded Gaussian draws: exact cells, floats that are never trusted too far, rare words, statistics, and vectors."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from crowdml.privacy.noise import rounded
from crowdml.privacy.noise.rounded import FARTHEST, LARGEST_SLIP, NEAREST, cell, inverse, rounded_gaussian, upper_tail
from crowdml.privacy.noise.samplers import GivenWords, OsWords

SCALES = [
    Fraction(1, 16),
    Fraction(1, 2),
    Fraction(15, 16),
    Fraction(2),
    Fraction(121, 16),
    Fraction(568),
    Fraction(1 << 26),
]
MINUS = 1 << 63


def tail_by_fractions(x: Fraction, digits: int = 120) -> tuple[Fraction, Fraction]:
    """Return bounds on Q(x) by plain fractions: two steps of an alternating sum, and π between two fractions."""
    s, term, total, n = x * x / 2, x, x, 0
    while term > Fraction(1, 10**digits) or n < 2 * s:
        n += 1
        term = term * s / n
        total += (-1) ** n * term / (2 * n + 1)
    least, most = total - term, total + term
    # Archimedes would have liked 50 digits more: Machin's formula with its own remainder.
    pi = 16 * _arctan(5) - 4 * _arctan(239)
    unit = 10**100
    root = Fraction(math.isqrt(math.floor(2 * pi * unit**2)), unit)
    return Fraction(1, 2) - most / root * (1 + Fraction(1, 10**99)), Fraction(1, 2) - least / root * (
        1 - Fraction(1, 10**99)
    )


def _arctan(n: int) -> Fraction:
    return sum((Fraction((-1) ** k, (2 * k + 1) * n ** (2 * k + 1)) for k in range(90)), Fraction(0))


@pytest.mark.parametrize("x", [Fraction(1, 10**9), Fraction(1, 3), Fraction(1), Fraction(17, 4), Fraction(9)])
@pytest.mark.parametrize("bits", [64, 96, 200])
def test_tails_are_between_their_bounds(x: Fraction, bits: int) -> None:
    low, high = upper_tail(x, bits)
    least, most = tail_by_fractions(x)
    assert low < least * 2**bits and most * 2**bits < high and high - low <= 3


@pytest.mark.parametrize("bits", [64, 128, 500])
def test_another_implementation_agrees_on_tails(bits: int) -> None:
    mpmath = pytest.importorskip("mpmath", reason="mpmath is not installed")
    rng = np.random.default_rng(bits)
    with mpmath.workprec(1200):
        for numerator, denominator in zip(rng.integers(1, 10**9, 60), rng.integers(10**7, 10**9, 60), strict=True):
            x = Fraction(int(numerator), int(denominator))
            exact = mpmath.erfc(mpmath.mpf(x.numerator) / x.denominator / mpmath.sqrt(2)) / 2 * mpmath.mpf(2) ** bits
            low, high = upper_tail(x, bits)
            assert low < exact < high and high - low <= 3


def test_beyond_all_digits_a_tail_is_between_nothing_and_one() -> None:
    assert upper_tail(Fraction(10**300), 64) == (0, 1)
    assert upper_tail(Fraction(12), 64) == (0, 1)
    assert upper_tail(Fraction(12), 200)[0] > 0


def borders() -> Any:
    """Return tails around both borders of AS 241's regions, at both ends, and at random, millions of them."""
    rng = np.random.default_rng(1)
    near, far = round((0.5 - NEAREST) * 2**64), round(math.exp(-(FARTHEST**2)) * 2**64)
    steps = np.unique(np.round(np.geomspace(1, 1e17, 100_000)).astype(np.int64))
    around = [near + steps, near - steps, far + steps[steps < far], far - steps[steps < far]]
    even = rng.integers(1, 1 << 63, 2_000_000, dtype=np.uint64)
    small = np.exp2(rng.uniform(0, 63, 1_000_000))
    middle = np.uint64(1 << 63)
    ends = [np.arange(1, 3000), middle - np.arange(1, 3000, dtype=np.uint64), middle - steps.astype(np.uint64)]
    return np.unique(np.concatenate([part.astype(np.uint64) for part in (*around, even, small, *ends)]))


def test_the_slip_allowed_is_a_hundred_times_what_is_measured() -> None:
    """By one step of Newton's method from what was found: Q, or ½ - Q near zero, is known there to a part in 10¹⁵."""
    tail = borders()
    assert len(tail) > 3_000_000
    found = inverse(tail)
    away = (np.uint64(1 << 63) - tail).astype(np.float64) * 2.0**-64
    near = away < 0.25
    missed = np.where(
        near, special.erf(found / math.sqrt(2)) / 2 - away, tail.astype(float) * 2.0**-64 - special.ndtr(-found)
    )
    slips = np.abs(missed) / stats.norm.pdf(found) / (found + 0.01)
    assert slips.max() < LARGEST_SLIP / 100


def test_our_judge_agrees_on_the_slip() -> None:
    """The same without floating point, at fewer points: |z| is found to lie between two exact tails."""
    tail = borders()
    rng = np.random.default_rng(2)
    chosen = np.concatenate([rng.choice(tail, 300), tail[:20], tail[-20:]])
    for value, found in zip(chosen.tolist(), inverse(chosen).tolist(), strict=True):
        slip = Fraction(LARGEST_SLIP) / 100 * (Fraction(found) + Fraction(1, 100))
        assert upper_tail(Fraction(found) + slip, 128)[0] < value << 64
        if found > slip:
            assert upper_tail(Fraction(found) - slip, 128)[1] > value << 64


@pytest.mark.parametrize("scale", SCALES)
def test_floats_decide_as_integers_do(scale: Fraction) -> None:
    """At words of all sizes, and at those next to the border of a cell, where floating point must not decide."""
    rng = np.random.default_rng(3)
    words = [int(word) for word in rng.integers(1, 1 << 63, 200, dtype=np.uint64)]
    words += [int(2**power) for power in rng.uniform(0, 63, 100)]
    for k in rng.integers(0, math.ceil(4 * scale), 100).tolist():
        border = upper_tail(Fraction(2 * k + 1) / (2 * scale), 64)[0]
        words += [border + near for near in (-1, 2, 3)]
    words = [word for word in words if 0 < word < MINUS]
    sizes, unsure = rounded._by_floats(np.array(words, np.uint64), float(scale))
    doubted = set(unsure.tolist())
    for lane, word in enumerate(words):
        if lane not in doubted:
            assert cell(word, 64, scale) == sizes[lane]
    assert len(doubted & set(range(200))) <= 1  # nearly all are decided quickly


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(121, 16), Fraction(568)])
def test_probabilities_are_those_of_the_law_to_the_last_digit(scale: Fraction) -> None:
    """The words that give k are counted without drawing any: 2⁶⁴·P(|z| = k)/2 of them, up to one at each end."""
    for k in (0, 1, 2, math.ceil(3 * scale)):
        outer = upper_tail(Fraction(2 * k + 1) / (2 * scale), 64)
        inner = upper_tail(Fraction(2 * k - 1) / (2 * scale), 64) if k else (MINUS, MINUS)
        for first in range(outer[0] - 1, outer[1] + 2):
            if first > 0:
                expected = {k} if first > outer[1] else {k + 1} if first < outer[0] - 1 else {k, k + 1, None}
                assert cell(first, 64, scale) in expected
        middle = (outer[1] + inner[0]) // 2
        assert cell(middle, 64, scale) == k
        exact = stats.norm.sf(float((2 * k - 1) / (2 * scale))) if k else 0.5
        share = (inner[0] - outer[1]) / 2**64
        assert share == pytest.approx(exact - stats.norm.sf(float((2 * k + 1) / (2 * scale))), abs=1e-15)


@pytest.mark.parametrize("scale", SCALES)
def test_every_border_between_draws_is_where_the_law_has_it(scale: Fraction) -> None:
    """From given words to the draw, with floats, integers and further words, against another implementation.

    The least p whose draw is at most k is found by bisection, to 192 binary digits, and is Q((k + ½)/σ); so P(k), which
    lies between two borders, is right to as many. Far out that is beyond the first word, which is then zero.
    """
    mpmath = pytest.importorskip("mpmath", reason="mpmath is not installed")
    for k in {0, 1, round(3 * scale), round(8 * scale), round(12 * scale) + 1}:
        low, high = 0, (1 << 191) - 1
        while high - low > 1:
            middle = (low + high) // 2
            given = GivenWords([middle >> 128, middle >> 64 & (1 << 64) - 1, middle & (1 << 64) - 1, 0, 0])
            low, high = (low, middle) if rounded_gaussian(given, scale, 1)[0] <= k else (middle, high)
        with mpmath.workprec(600):
            exact = (
                mpmath.erfc(
                    mpmath.mpf(2 * k + 1) / (2 * mpmath.mpf(scale.numerator) / scale.denominator) / mpmath.sqrt(2)
                )
                / 2
            )
            assert low <= exact * mpmath.mpf(2) ** 192 <= high


def test_a_word_on_a_border_needs_another_and_lanes_keep_their_order() -> None:
    scale = Fraction(121, 16)
    x = Fraction(11) / (2 * scale)  # between 5 and 6
    split = [upper_tail(x, bits)[0] for bits in (64, 128)]
    one = next(value for value in (split[0], split[0] + 1) if cell(value, 64, scale) is None)
    two = next(value for value in (split[1], split[1] + 1) if cell(value, 128, scale) is None)
    low = two - (one << 64)
    assert 0 < low < (1 << 64) - 1
    given = GivenWords([one, 1 << 62, one | MINUS, one, low - 1, low + 1, low, 0])
    assert rounded_gaussian(given, scale, 4).tolist() == [6, 5, -5, 6]
    assert given.taken == 8


def test_the_end_of_the_tail_needs_more_words() -> None:
    """v = 0 decides nothing, however often it comes; then the search goes on where floats have no numbers."""
    for zeros in (1, 2, 20):
        given = GivenWords([0] * zeros + [1 << 63])
        (drawn,) = rounded_gaussian(given, 3, 1).tolist()
        assert given.taken == zeros + 1
        bits = 64 * (zeros + 1)
        assert upper_tail(Fraction(2 * drawn + 1, 6), bits)[1] <= 1 << 63
        assert upper_tail(Fraction(2 * drawn - 1, 6), bits)[0] >= (1 << 63) + 1
    given = GivenWords([MINUS, 1])
    assert rounded_gaussian(given, Fraction(1, 32), 1).tolist() == [0] and given.taken == 2


@pytest.mark.parametrize("word", [1, 2, 3, (1 << 63) - 1])
def test_tiny_and_large_tails_at_every_scale(word: int) -> None:
    """Far out a cell of a large scale is finer than one word; at the middle everything is zero."""
    for scale in (*SCALES, Fraction(1, 10**40), Fraction(1 << 60, 7)):
        given = GivenWords([word, *range(1 << 60, (1 << 60) + 9)])
        drawn = int(rounded_gaussian(given, scale, 1)[0])
        bits, value = 64 * given.taken, word
        for more in range(1 << 60, (1 << 60) + given.taken - 1):
            value = value << 64 | more
        assert cell(value, bits, scale) == drawn
        low, high = Fraction(2 * drawn - 1) / (2 * scale), Fraction(2 * drawn + 1) / (2 * scale)
        assert upper_tail(high, bits + 64)[0] < value << 64
        assert low < 0 or upper_tail(low, bits + 64)[1] > value << 64


def test_scales_beyond_machine_integers() -> None:
    """False alarm: 400 squared draws, seven standard deviations."""
    scale = Fraction(1 << 90, 3)
    large = rounded_gaussian(OsWords(), scale, 400)
    assert all(isinstance(z, int) for z in large.tolist())
    assert float(np.mean((large / float(scale)).astype(float) ** 2)) == pytest.approx(1.0, rel=0.5)
    assert rounded_gaussian(OsWords(), Fraction(1, 10**400), 3).tolist() == [0, 0, 0]
    assert rounded_gaussian(OsWords(), 5, 0).tolist() == []
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="above zero"):
            rounded_gaussian(OsWords(), wrong, 1)


@pytest.mark.parametrize("scale", SCALES[1:])
def test_a_million_draws(scale: Fraction) -> None:
    """False alarm: one of 6 cases beyond 4.5 standard deviations, 1 in 25,000. A scale off by 1.5 % is noticed."""
    draws, s = rounded_gaussian(OsWords(), scale, 1_000_000), float(scale)
    assert abs(deviation(draws, s)) < 4.5
    assert deviation(draws, 0.985 * s) > 6


def deviation(draws: Any, scale: float) -> float:
    """Return χ² over at most 100 cells as a standard normal deviate of the same probability."""
    edges = np.unique(np.round(np.linspace(-4.2, 4.2, 101) * max(scale, 0.8))) + 0.5
    chances = np.diff(np.concatenate([[0.0], stats.norm.cdf(edges / scale), [1.0]]))
    observed = np.bincount(np.searchsorted(edges, draws), minlength=len(edges) + 1)
    expected = chances * len(draws)
    common = expected > 10
    square = ((observed - expected)[common] ** 2 / expected[common]).sum()
    return float(stats.norm.isf(max(stats.chi2.sf(square, int(common.sum()) - 1), 1e-300)))


def test_four_million_draws_in_a_second_of_cpu() -> None:
    """Twelve on an idle machine: a busy one must not fail."""
    times = []
    for _ in range(5):
        began = time.process_time()
        rounded_gaussian(OsWords(), 26_464, 200_000)
        times.append(time.process_time() - began)
    assert min(times) < 0.05
