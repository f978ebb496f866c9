"""Formats of the numbers that cross a cut: what comes back, how many bytes it takes, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.core.errors import MalformedMessage
from crowdml.slicing.number_formats import NUMBERS

EXTREMES = np.array([[0.0, -0.0, 1e-45, 3e38], [1.0, 1e-40, -1e-38, -3e38], [-0.5, 1e-3, 7.0, 1.0]], np.float32)


@pytest.mark.parametrize(("name", "relative"), [("float32", 0.0), ("bfloat16", 2**-8), ("int8", 0.5 / 127)])
def test_numbers_come_back_as_near_as_the_format_can(name: str, relative: float) -> None:
    """bfloat16 is near each number, int8 near the largest of a row; subnormal scales are as coarse as they are."""
    numbers = NUMBERS[name]
    for matrix in (EXTREMES, np.random.default_rng(0).standard_normal((40, 7)).astype(np.float32)):
        found = numbers.decode(numbers.encode(matrix), *matrix.shape)
        assert found.dtype == np.float32 and len(numbers.encode(matrix)) == numbers.length(*matrix.shape)
        largest = np.abs(matrix).max(axis=0) if name == "int8" else np.abs(matrix)
        assert (np.abs(found.astype(np.float64) - matrix) <= relative * 1.0001 * largest + 1e-40).all()
        assert found.tobytes() == numbers.passed(matrix).tobytes()
        # What was rounded once is not rounded again.
        if name != "int8":
            assert numbers.passed(found).tobytes() == found.tobytes()


def test_bfloat16_rounds_to_the_nearest_and_ties_to_even() -> None:
    """One bit of bfloat16 above 1 is 2^-7: 1 + 2^-8 lies between two, and 1 + 3 · 2^-8 as well."""
    matrix = np.array([[1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20]], np.float32)
    assert NUMBERS["bfloat16"].passed(matrix).tolist() == [[1.0, 1 + 2**-6, 1 + 2**-7]]


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int8"])
def test_what_is_not_finite_or_of_another_length_is_refused(name: str) -> None:
    numbers = NUMBERS[name]
    good = numbers.encode(EXTREMES)
    for wrong in (good[:-1], good + b"\0", b""):
        with pytest.raises(MalformedMessage, match="bytes for 3 numbers of 4 rows"):
            numbers.decode(wrong, 3, 4)
    for value in (np.nan, np.inf, -np.inf):
        spoilt = EXTREMES.copy()
        spoilt[1, 2] = value
        with pytest.raises(MalformedMessage, match="not finite"):
            numbers.decode(numbers.encode(spoilt), 3, 4)
    every_bit = np.array([[0x7FFFFFFF, 0xFFFFFFFF]], np.uint32).view(np.float32)
    assert np.isnan(numbers.passed(every_bit)).all()


def test_codes_differ() -> None:
    assert sorted(numbers.code for numbers in NUMBERS.values()) == [0, 1, 2]
