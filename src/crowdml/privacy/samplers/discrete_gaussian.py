"""Discrete Gaussian draws, exact for any rational variance (Canonne, Kamath and Steinke 2020, algorithm 3).

P(z) ∝ exp(-z² / (2σ²)) for z in ℤ. With σ² = p/q in lowest terms and t = ⌊σ⌋ + 1, one attempt is: a discrete Laplace
draw y of scale t for every waiting lane (all lanes of the attempt complete it first), then a flip of
exp(-(|y| - σ²/t)² / (2σ²)) = exp(-(|y|·t·q - p)² / (2·p·q·t²)) for all of them, which must be "true". Lanes that failed
try again, all together. Lanes are served in blocks of 65,536.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from crowdml.privacy.samplers.bernoulli import flip_exp_parts
from crowdml.privacy.samplers.discrete_laplace import BLOCK, discrete_laplace
from crowdml.privacy.samplers.words import NARROW, Integers, Words


def discrete_gaussian(words: Words, variance: Fraction | int, lanes: int) -> Integers:
    """Draw integers z with probability proportional to exp(-z² / (2·variance)).

    The variance of the draws is at most `variance`, and nearly equal to it from 1 on.

    >>> from crowdml.privacy.samplers.words import OsWords
    >>> discrete_gaussian(OsWords(), 100, 1000).shape
    (1000,)
    """
    variance = Fraction(variance)
    if variance <= 0:
        raise ValueError(f"the variance must be above zero, not {variance}")
    blocks = [_block(words, variance, min(BLOCK, lanes - begin)) for begin in range(0, lanes, BLOCK)]
    return np.concatenate(blocks) if blocks else np.zeros(0, np.int64)


def _block(words: Words, variance: Fraction, lanes: int) -> Integers:
    p, q = variance.numerator, variance.denominator
    t = math.isqrt(p // q) + 1
    drawn, waiting = np.zeros(lanes, np.int64), np.arange(lanes)
    while len(waiting):
        y = discrete_laplace(words, t, len(waiting))
        good = flip_exp_parts(words, *_exponents(y, p, q, t), 2 * p * q * t * t)
        drawn[waiting[good]] = y[good]
        waiting = waiting[~good]
    return drawn


def _exponents(y: Integers, p: int, q: int, t: int) -> tuple[Integers, Integers]:
    """Return quotient and remainder of (|y|·t·q - p)² by 2·p·q·t².

    Squares do not fit into 64 bits, but remainders do: with a quotient that floating point has right up to one, the
    square less that many times the divisor lies between minus one and two divisors, and comes out right modulo 2^64.
    """
    size, divisor = np.abs(y), 2 * p * q * t * t
    if divisor >= NARROW or (len(size) and int(size.max()) * t * q >= 1 << 52):
        squares = (size.astype(object) * (t * q) - p) ** 2
        return squares // divisor, squares % divisor
    root = size * (t * q) - p
    whole = (root.astype(np.float64) ** 2 / divisor).astype(np.int64)
    with np.errstate(over="ignore"):
        rest = root * root - whole * divisor
    off = (rest >= divisor).astype(np.int64) - (rest < 0)
    return whole + off, rest - off * divisor
