"""Randomised response: a label is kept with a known probability, otherwise it becomes any other (Warner 1965).

Words: one integer below `out_of` per lane; then, for the lanes not kept, one integer j below classes - 1, and the
label becomes (label + 1 + j) mod classes.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from crowdml.core import record
from crowdml.privacy.accounting import Event
from crowdml.privacy.noise.samplers import Integers, Words, below, flip


@record
class RandomisedResponse:
    """Bound, noise and cost of releasing labels themselves.

    Guarantee: replace-one on samples. A label is one of `classes`, which is checked; whatever it is replaced by, any
    answer becomes at most keep·(classes - 1)/(1 - keep) times as likely. Each answer costs `event`, once, however often
    the server uses it.

    >>> RandomisedResponse.calibrated(1.0, 3).event.pure <= 1.0
    True

    Attributes:
        classes: Number of labels.
        keep: Probability that a label stays as it is.
    """

    classes: int
    keep: Fraction

    def __post_init__(self) -> None:
        """Refuse what is no answer, or no noise."""
        if self.classes < 2 or not Fraction(1, self.classes) <= self.keep < 1:
            raise ValueError(f"a label of {self.classes} cannot be kept with probability {self.keep}")

    @staticmethod
    def calibrated(epsilon: float, classes: int) -> RandomisedResponse:
        """Return the response that keeps as many labels as ε allows, with a margin.

        The largest multiple of 2^-32 that is at most e^ε / (e^ε + classes - 1). That floating-point quotient is off by
        far less than one part in 2^48; the margin makes the result safe.
        """
        exact = 1.0 / (1.0 + (classes - 1) * math.exp(-epsilon))
        keep = Fraction(math.floor(exact * (1 - 2.0**-48) * (1 << 32)), 1 << 32)
        return RandomisedResponse(classes=classes, keep=max(Fraction(1, classes), keep))

    @property
    def event(self) -> Event:
        """Cost of one answer, rounded up: the logarithm of `keep` over the probability of any one other label."""
        favour = self.keep * (self.classes - 1) / (1 - self.keep)
        found = math.log(favour)
        return Event.of_pure(found + 2.0**-50 * max(1.0, found) if favour > 1 else 0.0)

    def answer(self, words: Words, labels: Integers) -> Integers:
        """Answer for each label."""
        given = np.asarray(labels)
        if given.size and not (given.min() >= 0 and given.max() < self.classes):
            raise ValueError(f"labels are numbers from 0 to {self.classes - 1}")
        moved = np.array(given, np.int64)
        others = np.flatnonzero(~flip(words, self.keep.numerator, self.keep.denominator, len(moved)))
        moved[others] = (moved[others] + 1 + below(words, self.classes - 1, len(others))) % self.classes
        return moved
