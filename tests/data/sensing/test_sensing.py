"""Rows from sensors: those of the vectors, which the browser is held to as well, and what they are good for."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.data.loaders.embedded import load_digits
from crowdml.data.sensing.drawn_digits import row_of_strokes
from crowdml.data.sensing.phone_motion import even_samples, rows_of_motion
from crowdml.data.transforms.whole_rows import magnitudes
from tests.data.sensing.record import VECTORS, content
from tests.support.strokes import another_hand

STORED = json.loads(VECTORS.read_text(encoding="utf-8"))


def test_the_vectors_are_those_that_the_program_makes() -> None:
    made = json.loads(json.dumps(content()))
    assert made["digits"] == STORED["digits"]
    for now, then in zip(made["motion"], STORED["motion"], strict=True):
        assert now["seconds"] == then["seconds"] and now["acceleration"] == then["acceleration"]
        np.testing.assert_allclose(now["rows"], then["rows"], rtol=1e-6, atol=1e-5)


def test_rows_are_the_windows_of_the_loader_where_no_filter_is_needed() -> None:
    """Slow movement passes the filter, so both ways to rows agree."""
    seconds = np.arange(0, 8, 1 / 60)
    axes = np.zeros((len(seconds), 3))
    axes[:, 2] = 9.81 + np.sin(2 * np.pi * 1.25 * seconds)
    plain = magnitudes(np.interp(np.arange(64, 128) / 20, seconds, axes[:, 2])[None])
    assert np.abs(rows_of_motion(seconds, axes)[1] - plain[0]).max() < 0.01 * plain[0, 4]


def test_what_is_too_fast_for_the_window_is_taken_out_and_not_folded_into_it() -> None:
    seconds = np.arange(0, 4, 1 / 60)
    fast = np.sin(2 * np.pi * 17.0 * seconds)
    folded = np.interp(np.arange(64) / 20, seconds, fast)
    assert np.abs(folded).max() > 0.9, "interpolation alone makes 3 Hz of 17 Hz"
    assert np.abs(even_samples(seconds, fast)[8:64]).max() < 0.01


def test_a_gap_begins_a_new_window() -> None:
    rows = {one["name"]: len(one["rows"]) for one in STORED["motion"]}
    assert rows == {"wavering 60 Hz": 2, "even 50 Hz": 2, "slow 9 Hz": 2, "a gap in the middle": 2}
    cut = next(one for one in STORED["motion"] if one["name"] == "a gap in the middle")
    assert not np.allclose(cut["rows"][1], STORED["motion"][0]["rows"][1], rtol=1e-3)


@pytest.mark.parametrize("strokes", [[], [[]], [[(0.0, float("nan"))]]])
def test_no_strokes_are_no_digit(strokes: Any) -> None:
    with pytest.raises(BadInput, match="at least one stroke"):
        row_of_strokes(strokes)


def test_times_that_go_back_are_refused() -> None:
    with pytest.raises(BadInput, match="ascend"):
        even_samples(np.array([0.0, 1.0, 0.5]), np.zeros(3))


def test_drawn_digits_look_like_those_of_the_dataset() -> None:
    """A model that knows scikit-learn's digits alone reads drawn ones."""
    digits = load_digits()
    means = np.stack([digits.train_rows[digits.train_targets == label].mean(axis=0) for label in range(10)])
    drawn = [(label, row_of_strokes(another_hand(label, seed))) for label in range(10) for seed in range(10)]
    right = [np.square(means - row).sum(axis=1).argmin() == label for label, row in drawn]
    assert np.mean(right) > 0.75
    assert all(row.min() >= 0 and row.max() <= 16 and (row == row.round()).all() for _, row in drawn)
