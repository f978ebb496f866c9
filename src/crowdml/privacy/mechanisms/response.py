"""Randomised response: a label is kept with a known probability, otherwise it becomes any other (Warner 1965)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from crowdml.core import record
from crowdml.privacy.accounting import Event
from crowdml.privacy.samplers import Words, randomised_response
from crowdml.privacy.samplers.response import keep_probability, response_epsilon
from crowdml.privacy.samplers.words import Integers


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
        """Return the response that keeps as many labels as ε allows."""
        return RandomisedResponse(classes=classes, keep=keep_probability(epsilon, classes))

    @property
    def event(self) -> Event:
        """Cost of one answer."""
        return Event.of_pure(response_epsilon(self.keep, self.classes))

    def answer(self, words: Words, labels: Integers) -> Integers:
        """Answer for each label."""
        given = np.asarray(labels)
        if given.size and not (given.min() >= 0 and given.max() < self.classes):
            raise ValueError(f"labels are numbers from 0 to {self.classes - 1}")
        return randomised_response(words, given, self.classes, self.keep)
