"""Discrete Laplace draws, exact for any rational scale (Canonne, Kamath and Steinke 2020, algorithm 2).

P(z) = (1 - r)/(1 + r) · r^|z| with r = exp(-1/scale), for z in ℤ. With scale = t/s in lowest terms, one attempt is:

1. U uniform below t, one draw per waiting lane; a flip of exp(-U/t) must be "true", or the attempt has failed.
2. V: the number of "true" flips of exp(-1) before the first "false"; lanes still flipping go round by round.
3. A sign: an integer below 2, for the lanes left. z = ⌊(U + t·V)/s⌋; minus zero has failed, otherwise z with its sign.

(U + t·V is geometric with ratio exp(-1/t): step 1 makes its remainder, step 2 its quotient. The floor makes the ratio
exp(-s/t), and refusing minus zero keeps zero from counting twice.) Lanes that failed try again, all together.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from crowdml.privacy.samplers.bernoulli import flip_exp, flip_inverse_e
from crowdml.privacy.samplers.words import NARROW, Integers, Words, below

BLOCK = 1 << 16
"""Lanes served at a time: the first so many, then the next. It keeps the work in the processor's cache."""


def discrete_laplace(words: Words, scale: Fraction | int, lanes: int) -> Integers:
    """Draw integers z with probability proportional to exp(-|z| / scale).

    >>> from crowdml.privacy.samplers.words import OsWords
    >>> discrete_laplace(OsWords(), Fraction(7, 2), 1000).shape
    (1000,)
    """
    scale = Fraction(scale)
    if scale <= 0:
        raise ValueError(f"the scale must be above zero, not {scale}")
    blocks = [_block(words, scale, min(BLOCK, lanes - begin)) for begin in range(0, lanes, BLOCK)]
    return np.concatenate(blocks) if blocks else np.zeros(0, np.int64)


def _block(words: Words, scale: Fraction, lanes: int) -> Integers:
    # The quotient is geometric: 64 or more has probability e^-64; Python's integers take over long before they must.
    drawn = np.zeros(lanes, np.int64 if scale.numerator < NARROW >> 10 else object)
    waiting = np.arange(lanes)
    while len(waiting):
        kept, values = _attempt(words, scale.numerator, scale.denominator, len(waiting))
        drawn[waiting[kept]] = values
        failed = np.ones(len(waiting), bool)
        failed[kept] = False
        waiting = waiting[failed]
    return drawn


def _attempt(words: Words, t: int, s: int, lanes: int) -> tuple[Integers, Integers]:
    """Return which lanes succeed, and their draws."""
    remainder = below(words, t, lanes)
    kept = np.flatnonzero(flip_exp(words, remainder, t))
    quotient = np.zeros(len(kept), remainder.dtype)
    flipping = np.arange(len(kept))
    while len(flipping):
        flipping = flipping[flip_inverse_e(words, len(flipping))]
        quotient[flipping] += 1
    size = (remainder[kept] + quotient * t) // s
    negative = below(words, 2, len(kept)) == 1
    good = ~(negative & (size == 0))
    return kept[good], np.where(negative, -size, size)[good]
