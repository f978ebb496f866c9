"""Squares of rows: two rows are never farther apart than what the noise is made for, and budgets are kept."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdml.algorithms import parse
from crowdml.algorithms.live import definition_of, open_task
from crowdml.algorithms.moments import Moments
from crowdml.core import NUMPY, BadInput, Batch
from crowdml.privacy import PrivacySettings, Releases
from crowdml.privacy.mechanisms import SUM_LAWS, Shared
from crowdml.privacy.moments import moments_grid
from crowdml.privacy.reporting import sound_figure
from crowdml.privacy.sound_plan import make_sound
from crowdml.protocol.sheet import Sheet

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


@pytest.mark.parametrize("label", [-1, 2, 7, 2**31 - 1])
def test_a_strange_label_makes_no_row_longer(label: int) -> None:
    """Devices refuse such labels; the bound does not rely on it, not even for rows so short that they would pass."""
    nearest = min(max(label, 0), 1)
    for row in ([0.6, 0.0, -0.8, 0.0, 0.0], [0.0014, 0.0, 0.0, 0.0, 0.0]):
        assert (integers(row, label, True) == integers(row, nearest, True)).all()


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("longer", [1.0001, 3.0, 1e10])
def test_rows_longer_than_one_are_shortened_and_not_dropped(labels: bool, longer: float) -> None:
    row = np.array([0.6, 0.0, -0.8, 0.0, 0.0])
    found, expected = integers(list(longer * row), 1, labels), integers(list(row), 1, labels)
    assert np.abs(found - expected).max() <= 1 and np.abs(expected).max() > 10_000


@pytest.mark.parametrize("labels", [False, True])
def test_rows_a_little_longer_than_one_are_no_farther_apart_than_the_sensitivity(labels: bool) -> None:
    """The check on the integers' length alone would let them pass: it leaves room for rounding."""
    grid = moments_grid(FEATURES, labels)
    cosine, nearest = (0.5 if labels else 0.0), 0.0
    for longer in 1 + np.linspace(0, 2 * math.sqrt(grid.size) / grid.levels, 60):
        other = longer * np.array([cosine, math.sqrt(1 - cosine**2), 0.0, 0.0, 0.0])
        apart = integers([longer, 0.0, 0.0, 0.0, 0.0], 1, labels) - integers(list(other), 0, labels)
        nearest = max(nearest, int(apart @ apart) / grid.sensitivity_squared)
    assert 0.999 < nearest <= 1


@pytest.mark.parametrize(("labels", "apart"), [(False, math.sqrt(2)), (True, math.sqrt(4.5))])
@pytest.mark.parametrize("features", [1, 5, 105])
def test_rounding_is_part_of_the_sensitivity(features: int, labels: bool, apart: float) -> None:
    """Half a level for each number of either row; few rows are rounded so unluckily, so it is worked out here."""
    grid = moments_grid(features, labels)
    assert apart * grid.levels / grid.radius + math.sqrt(grid.size) < grid.sensitivity
    assert grid.sensitivity < apart * grid.levels / grid.radius + 1.05 * math.sqrt(grid.size) + 1


@pytest.mark.parametrize("labels", [False, True])
def test_rows_that_are_padding_are_not_counted(labels: bool) -> None:
    moments = Moments(features=FEATURES, labels=labels, ops=NUMPY)
    rows = np.full((3, FEATURES), 0.4, np.float32)
    batch = Batch(rows=rows, labels=np.ones(3, np.int32), mask=np.array([1, 0, 0], np.float32))
    found = moments.on_grid(rows, batch, moments_grid(FEATURES, labels))
    np.testing.assert_array_equal(found, integers([0.4] * FEATURES, 1, labels))


NEWTON = """
crowdml = 1
name = "income"
[data]
features = 4
labels = ["low", "high"]
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "logistic"
[algorithm]
kind = "consensus-newton"
per-round = 100
[privacy]
mechanism = "gaussian"
epsilon = 1.0
delta = 1e-5
clip = 0.5
max-uses = 20
[sums]
masked = true
"""


@pytest.mark.parametrize("uses", [1, 2, 5])
def test_a_first_message_of_squares_is_charged_as_many_uses_as_it_costs(uses: int) -> None:
    task = parse(NEWTON, changes=(f"algorithm.opening-uses={uses}",))
    live = open_task(Sheet(task=task.name, incarnation=1, definition=definition_of(task), arrays=({},)))
    sound = live.plan.sound
    assert sound is not None and sound.opening is not None
    assert [live.uses(version) for version in range(3)] == [uses, 1, 1]
    assert sound.opening.event.rho <= sound.event.times(live.uses(0)).rho
    if uses > 1:
        assert sound.opening.event.rho > sound.event.times(uses - 1).rho
    # All that a sample may enter, charged as it is charged, keeps the promise; one release more does not.
    assert sound.releases == 20 - uses + 1 and sound.after(0).rho == 0
    assert sound.after(1).rho == sound.event.times(uses).rho
    assert sound.filter.covers(sound.after(sound.releases))
    assert sound.after(sound.releases).promise(1e-5).epsilon > 0.99


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


@pytest.mark.parametrize("law", SUM_LAWS)
def test_shares_are_never_too_small_for_the_law_of_their_sum(law: str) -> None:
    """However many there are: nothing is proven of sums of smaller ones."""
    shared = Shared(law=SUM_LAWS[law], survivors=10**6)
    sound = make_sound(terms(), lambda order: None, False, replace(releases(), shared=shared))
    assert sound.update.scale**2 >= shared.law.least
    assert sound.opening is not None and sound.opening.scale**2 >= shared.law.least


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
