"""Randomised response: a label is kept with a rational probability, otherwise it becomes any other.

Words: one integer below `out_of` per lane; then, for the lanes not kept, one integer j below classes - 1, and the
label becomes (label + 1 + j) mod classes.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from crowdml.privacy.samplers.bernoulli import flip
from crowdml.privacy.samplers.words import Integers, Words, below


def keep_probability(epsilon: float, classes: int, denominator: int = 1 << 32) -> Fraction:
    """Return the largest multiple of 1/denominator that is at most e^ε / (e^ε + classes - 1), with a margin.

    The floating-point quotient is off by far less than one part in 2^48; the margin makes the result safe.
    """
    exact = 1.0 / (1.0 + (classes - 1) * math.exp(-epsilon))
    return max(Fraction(1, classes), Fraction(math.floor(exact * (1 - 2.0**-48) * denominator), denominator))


def response_epsilon(keep: Fraction, classes: int) -> float:
    """Return what one response costs, rounded up: the logarithm of keep over the probability of any one other label."""
    favour = keep * (classes - 1) / (1 - keep)
    found = math.log(favour)
    return found + 2.0**-50 * max(1.0, found) if favour > 1 else 0.0


def randomised_response(words: Words, labels: Integers, classes: int, keep: Fraction) -> Integers:
    """Keep each label with probability `keep`.

    Guarantee: replace-one on samples, one label per sample; pure ε = `response_epsilon(keep, classes)`.
    """
    kept = flip(words, keep.numerator, keep.denominator, len(labels))
    moved = np.array(labels, np.int64)
    others = np.flatnonzero(~kept)
    moved[others] = (moved[others] + 1 + below(words, classes - 1, len(others))) % classes
    return moved
