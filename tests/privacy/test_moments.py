"""Squares of rows: two rows are never farther apart than what the noise is made for, and budgets are kept."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdml.algorithms.moments import Moments
from crowdml.core import NUMPY, BadInput, Batch
from crowdml.privacy import PrivacySettings, Releases
from crowdml.privacy.moments import moments_grid
from crowdml.privacy.reporting import sound_figure
from crowdml.privacy.sound_plan import make_sound

FEATURES = 5
NUMBERS = st.floats(-1, 1, width=32)
ROW = st.lists(NUMBERS, min_size=FEATURES, max_size=FEATURES)


def integers(row: list[float], label: int, labels: bool) -> np.ndarray:
    moments = Moments(features=FEATURES, labels=labels, ops=NUMPY)
    batch = Batch(rows=np.array([row], np.float32), labels=np.array([label], np.int32), mask=np.ones(1, np.float32))
    found = moments.on_grid(batch.rows, batch, moments_grid(FEATURES, labels))
    return np.asarray(found, np.int64)


@given(ROW, ROW, st.integers(0, 1), st.integers(0, 1), st.booleans())
def test_no_two_rows_are_farther_apart_than_the_sensitivity(
    one: list[float], other: list[float], first: int, second: int, labels: bool
) -> None:
    apart = integers(one, first, labels) - integers(other, second, labels)
    assert int(apart @ apart) <= moments_grid(FEATURES, labels).sensitivity_squared


@pytest.mark.parametrize(("labels", "cosine", "second"), [(False, 0.0, 1), (True, 0.5, 0)])
def test_the_bound_is_nearly_met(labels: bool, cosine: float, second: int) -> None:
    other = [cosine, math.sqrt(1 - cosine**2), 0.0, 0.0, 0.0]
    apart = integers([1.0, 0.0, 0.0, 0.0, 0.0], 1, labels) - integers(other, second, labels)
    if labels:  # y·x and u·z point apart where the labels differ, so the worst pair has x·z = +½
        assert second == 0
    grid = moments_grid(FEATURES, labels)
    assert math.sqrt(int(apart @ apart)) > 0.999 * grid.sensitivity


def test_rows_that_are_too_long_or_no_numbers_say_no_more() -> None:
    grid = moments_grid(FEATURES, True)
    for row in ([100.0, 3.0, 0.0, 0.0, 0.0], [math.nan, 1.0, 0.0, 0.0, 0.0], [math.inf] * 5):
        with np.errstate(invalid="ignore"):
            found = integers(row, 1, True)
        assert int(found @ found) <= grid.limit


def terms(**changes: object) -> PrivacySettings:
    given = {"mechanism": "gaussian", "clip": 0.5, "epsilon": 1.0, "delta": 1e-5, "max_uses": 12}
    return PrivacySettings(**(given | changes))  # type: ignore[arg-type]


def releases(opening: int = 2) -> Releases:
    return Releases(
        sound=True, sends="gradient" if opening else "moments", size=105, rows=None, features=105, opening=opening
    )


def test_squares_and_gradients_together_keep_the_total() -> None:
    sound = make_sound(terms(), lambda order: None, False, releases())
    assert sound.opening is not None
    assert sound.opening.event.rho / sound.update.event.rho == pytest.approx(2, abs=1e-2)
    assert sound.opening.event.rho <= 2 * sound.update.event.rho
    assert 0.99 < sound_figure(sound, 11, 1e-5).epsilon <= 1.0
    assert sound_figure(sound, 12, 1e-5).epsilon > 1.0


@pytest.mark.parametrize("uses", [1, 3])
def test_rounds_of_squares_alone_keep_the_total(uses: int) -> None:
    sound = make_sound(terms(max_uses=uses), lambda order: None, False, releases(opening=0))
    assert sound.opening is None and 0.99 < sound_figure(sound, uses, 1e-5).epsilon <= 1.0


def test_squares_that_cost_more_than_their_uses_are_refused() -> None:
    sound = make_sound(terms(), lambda order: None, False, releases())
    with pytest.raises(ValueError, match="than the 1 uses"):
        replace(sound, opening_uses=1)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"unit": "device"}, "privacy.unit"),
        ({"mechanism": "laplace"}, "privacy.mechanism"),
        ({"owner_range": [0.5, 2.0]}, "privacy.owner-range"),
        ({"max_uses": 2}, "privacy.max-uses"),
    ],
)
def test_what_cannot_be_kept_is_refused(changes: dict[str, object], where: str) -> None:
    limited = Releases(**(vars(releases()) | {"limit": 11}))
    with pytest.raises(BadInput) as caught:
        make_sound(terms(**changes), lambda order: None, False, limited)
    assert caught.value.where == where
