"""Poisson and Skellam draws, exact for any rational mean or variance.

**Poisson**: inversion of a table of which every digit is certain.

Read an endless row of words as the fraction U = 0.w₁w₂w₃… in base 2^64; the draw is the least k with U < P(X ≤ k). With
the first n words u of U and the first n digits c(k) = ⌊2^(64n) · P(X ≤ k)⌋ the draw is decided unless u = c(k) for some
k: it is then the number of k with c(k) < u.

Words: every lane takes one. Lanes that are not decided take another, all together in lane order, until all are. (One
lane in 2^48 needs a second word, as the table has some ten thousand entries.)

The digits come from integer arithmetic: weights λ^k/k! relative to the largest, each rounded down, with a bound on
all that was lost. Where the bound leaves a digit open, everything is done again with more bits.

**Skellam**: the difference of two Poisson draws of half the variance each.

P(z) = exp(-v) · I_|z|(v) for z in ℤ, with v the variance and I a modified Bessel function. Sums of independent Skellam
draws are Skellam draws, exactly: that is what the law is for.

Words: lanes are served in blocks of 65,536. Within a block all lanes make their first Poisson draw, mean v/2 (as
above), then all make their second; z is the first less the second.
"""

from __future__ import annotations

import bisect
import functools
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from crowdml.core import record
from crowdml.privacy.noise.samplers import Integers, Words, in_blocks

WORD_BITS = 64
LARGEST_MEAN = 1 << 33
"""A table has 19 entries per standard deviation: at this mean 1.8 million, 14 MB, made in seconds."""
LARGEST_VARIANCE = 2 * LARGEST_MEAN


def poisson(words: Words, mean: Fraction | int, lanes: int) -> Integers:
    """Draw integers k ≥ 0 with probability exp(-mean) · mean^k / k!.

    >>> from crowdml.privacy.noise.samplers import OsWords
    >>> poisson(OsWords(), Fraction(7, 2), 1000).shape
    (1000,)
    """
    mean = Fraction(mean)
    if not 0 < mean <= LARGEST_MEAN:
        raise ValueError(f"the mean must be above zero and at most {LARGEST_MEAN}, not {mean}")
    first, digits = _table(mean)
    drawn = words.take(lanes)
    found = np.searchsorted(digits, drawn, side="right")
    result = found + first
    open_ = np.flatnonzero((found > 0) & (digits[np.maximum(found, 1) - 1] == drawn))
    if len(open_):
        result[open_] = _decide(words, mean, [int(word) for word in drawn[open_]])
    return result


def _decide(words: Words, mean: Fraction, drawn: list[int]) -> list[int]:
    """Take more words for lanes whose first one was a digit of the table."""
    result, waiting, depth = [0] * len(drawn), list(range(len(drawn))), 1
    while waiting:
        depth += 1
        table = digits_of(mean, depth)
        more = words.take(len(waiting))
        left = []
        for lane, word in zip(waiting, more, strict=True):
            drawn[lane] = (drawn[lane] << WORD_BITS) + int(word)
            at = bisect.bisect_right(table.digits, drawn[lane])
            result[lane] = table.first + at
            if at and table.digits[at - 1] == drawn[lane]:
                left.append(lane)
        waiting = left
    return result


@functools.lru_cache(maxsize=8)
def _table(mean: Fraction) -> tuple[int, npt.NDArray[np.uint64]]:
    table = digits_of(mean, 1)
    return table.first, np.array(table.digits, np.uint64)


@record
class Digits:
    """Digits of P(X ≤ k) for k = first, first + 1, …; before them all are 0, after them all are 2^(64n) - 1."""

    first: int
    digits: list[int]


def digits_of(mean: Fraction, depth: int) -> Digits:
    """Return ⌊2^(64·depth) · P(X ≤ k)⌋ for every k where it matters."""
    guard = 96 + 4 * (mean.numerator // mean.denominator).bit_length()
    while True:
        found = _try_digits(mean, depth, guard)
        if found is not None:
            return found
        guard *= 2


def _try_digits(mean: Fraction, depth: int, guard: int) -> Digits | None:
    """Work with `guard` bits more than are asked for; None where that leaves a digit open."""
    one = 1 << WORD_BITS * depth
    first, weights, lost = _weights(mean, WORD_BITS * depth + guard, guard // 2)
    total = sum(weights)
    # P(X ≤ k) lies between S/(T + E) and (S + E)/T, where S and T are sums of lower bounds and E is all that was lost.
    # These two differ by at most E(2T + E)/(T(T + E)), so a remainder below `safe` proves the digits.
    whole = total + lost
    safe = whole - (-(-one * lost * (2 * total + lost) // total))
    reached, digits = 0, []
    for weight in weights:
        reached += weight
        digit, remainder = divmod(one * reached, whole)
        if remainder >= safe:
            return None
        digits.append(digit)
        if digit == one - 1:
            break
    # Only the last of the zeros matters, and only if there is a k before the first weight or a zero among the digits.
    zeros = bisect.bisect_right(digits, 0)
    if zeros == 0 and first > 0:
        return Digits(first=first - 1, digits=[0, *digits])
    return Digits(first=first + max(zeros - 1, 0), digits=digits[max(zeros - 1, 0) :])


def _weights(mean: Fraction, bits: int, stop: int) -> tuple[int, list[int], int]:
    """Return the first k, lower bounds of 2^bits · (λ^k/k!)/(λ^m/m!) from there on, and a bound on all that is missing.

    m = ⌊λ⌋ has the largest weight. A step away from m multiplies by a factor of at most 1 and rounds down, so a weight
    that is n steps away is too small by less than n. Weights below 2^stop are left out; beyond the last one, n steps
    away, the true ones fall at least like a geometric series of ratio λ/(m + n + 1), or (m - n)/λ on the left.
    """
    p, q = mean.numerator, mean.denominator
    mode = p // q
    right, left = [1 << bits], []
    k, weight = mode, 1 << bits
    while weight >> stop:
        k += 1
        weight = weight * p // (q * k)
        right.append(weight)
    tail = -(-(weight + len(right)) * p // (q * (k + 1) - p))
    k, weight = mode, 1 << bits
    while k and weight >> stop:
        weight = weight * q * k // p
        k -= 1
        left.append(weight)
    if k:
        tail += -(-(weight + len(left)) * q * k // (p - q * k))
    lost = tail + len(right) ** 2 + len(left) ** 2
    return k, left[::-1] + right, lost


def skellam(words: Words, variance: Fraction | int, lanes: int) -> Integers:
    """Draw integers of the given variance whose sums have the same kind of law.

    >>> from crowdml.privacy.noise.samplers import OsWords
    >>> skellam(OsWords(), Fraction(25, 4), 1000).shape
    (1000,)
    """
    variance = Fraction(variance)
    if not 0 < variance <= LARGEST_VARIANCE:
        raise ValueError(f"the variance must be above zero and at most {LARGEST_VARIANCE}, not {variance}")
    return in_blocks(lambda count: _difference(words, variance / 2, count), lanes)


def _difference(words: Words, mean: Fraction, lanes: int) -> Integers:
    first = poisson(words, mean, lanes)
    return np.asarray(first - poisson(words, mean, lanes))
