"""Skellam draws, exact for any rational variance: the difference of two Poisson draws of half the variance each.

P(z) = exp(-v) · I_|z|(v) for z in ℤ, with v the variance and I a modified Bessel function. Sums of independent Skellam
draws are Skellam draws, exactly: that is what the law is for.

Words: lanes are served in blocks of 65,536. Within a block all lanes make their first Poisson draw, mean v/2 (see
`poisson`), then all make their second; z is the first less the second.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from crowdml.privacy.samplers.discrete_laplace import BLOCK
from crowdml.privacy.samplers.poisson import LARGEST_MEAN, poisson
from crowdml.privacy.samplers.words import Integers, Words

LARGEST_VARIANCE = 2 * LARGEST_MEAN


def skellam(words: Words, variance: Fraction | int, lanes: int) -> Integers:
    """Draw integers of the given variance whose sums have the same kind of law.

    >>> from crowdml.privacy.samplers.words import OsWords
    >>> skellam(OsWords(), Fraction(25, 4), 1000).shape
    (1000,)
    """
    variance = Fraction(variance)
    if not 0 < variance <= LARGEST_VARIANCE:
        raise ValueError(f"the variance must be above zero and at most {LARGEST_VARIANCE}, not {variance}")
    blocks = [_block(words, variance / 2, min(BLOCK, lanes - begin)) for begin in range(0, lanes, BLOCK)]
    return np.concatenate(blocks) if blocks else np.zeros(0, np.int64)


def _block(words: Words, mean: Fraction, lanes: int) -> Integers:
    first = poisson(words, mean, lanes)
    return np.asarray(first - poisson(words, mean, lanes))
