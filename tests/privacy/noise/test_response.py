"""Randomised response as a mechanism: what is kept, what it costs, what is refused."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdml.privacy import Event
from crowdml.privacy.noise.response import RandomisedResponse
from crowdml.privacy.noise.samplers import OsWords


@given(st.floats(1e-3, 60.0), st.integers(2, 1000))
def test_a_calibrated_response_costs_at_most_what_was_asked(epsilon: float, classes: int) -> None:
    made = RandomisedResponse.calibrated(epsilon, classes)
    assert made.event.pure <= epsilon
    if 0.01 < epsilon < 10:
        assert made.event.pure > epsilon * 0.99 - 1e-4


def test_the_cost_is_the_worst_ratio_of_probabilities() -> None:
    made = RandomisedResponse(classes=4, keep=Fraction(5, 8))
    other = (1 - made.keep) / 3
    assert math.exp(made.event.pure) >= made.keep / other
    assert made.event.pure == pytest.approx(math.log(5), rel=1e-12)
    assert made.event == Event.of_pure(made.event.pure)
    assert RandomisedResponse(classes=4, keep=Fraction(1, 4)).event == Event()


def test_answers_follow_the_record() -> None:
    """False alarm: 400,000 flips, five standard deviations, below 1 in 10⁶ each."""
    made = RandomisedResponse(classes=3, keep=Fraction(3, 4))
    answers = made.answer(OsWords(), np.full(400_000, 1))
    share = np.bincount(answers, minlength=3) / 400_000
    assert share == pytest.approx([1 / 8, 3 / 4, 1 / 8], abs=5 * math.sqrt(3 / 16 / 400_000))


def test_what_is_no_label_or_no_noise_is_refused() -> None:
    made = RandomisedResponse(classes=3, keep=Fraction(3, 4))
    for labels in ([3], [-1], [0, 7]):
        with pytest.raises(ValueError, match="from 0 to 2"):
            made.answer(OsWords(), np.array(labels))
    for classes, keep in ((3, Fraction(1)), (3, Fraction(1, 4)), (1, Fraction(1, 2))):
        with pytest.raises(ValueError, match="cannot be kept"):
            RandomisedResponse(classes=classes, keep=keep)
    assert made.answer(OsWords(), np.zeros(0, np.int64)).tolist() == []
