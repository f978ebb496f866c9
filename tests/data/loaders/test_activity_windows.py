"""The activity pipeline: right frequencies, honest counts, sessions kept apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.core import BadInput
from crowdml.data.loaders.activity_windows import Recording, keep_changes, keep_slots, split_sessions, windows_of


def recording(seconds: np.ndarray, values: np.ndarray, session: np.ndarray) -> Recording:
    axes = np.stack([values, np.zeros_like(values), np.zeros_like(values)], axis=1)
    return Recording(seconds=seconds, acceleration=axes, session=session.astype(np.int32))


@pytest.mark.parametrize("rate", [20.0, 50.0, 100.0])
def test_a_tone_lands_in_its_bin_whatever_the_rate(rate: float) -> None:
    seconds = np.arange(int(8 * rate)) / rate
    made = windows_of(recording(seconds, 10 + np.sin(2 * np.pi * 2.5 * seconds), np.zeros(len(seconds))))
    assert made.rows.shape == (2, 64) and made.start_s.tolist() == [0.0, 3.2]
    assert (made.rows[:, 1:32].argmax(axis=1) + 1 == 8).all(), "2.5 Hz is bin 8 of 3.2 s"
    assert made.samples.tolist() == [int(3.2 * rate)] * 2


def test_sessions_are_not_joined() -> None:
    session = np.repeat([4, 7], 100)
    seconds = np.tile(np.arange(100) / 20, 2)
    made = windows_of(recording(seconds, np.repeat([1.0, 5.0], 100), session))
    assert made.session.tolist() == [4, 7]
    np.testing.assert_allclose(made.rows[:, 0], [64, 320], rtol=1e-6)


def test_gaps_show_in_the_counts() -> None:
    seconds = np.concatenate([np.arange(64) / 20, 9.6 + np.arange(64) / 20])
    made = windows_of(recording(seconds, np.ones(128), np.zeros(128)))
    assert made.samples.tolist() == [64, 0, 0, 64]


def test_sliding_windows_begin_every_step_and_hold_the_same_as_windows_side_by_side() -> None:
    seconds = np.arange(200) / 20
    whole = recording(seconds, 10 + np.sin(2 * np.pi * 2.5 * seconds), np.zeros(200))
    apart, sliding = windows_of(whole), windows_of(whole, step=16)
    np.testing.assert_allclose(sliding.start_s, np.arange(9) * 0.8)
    assert sliding.samples.tolist() == [64] * 9 and len(apart.rows) == 3
    np.testing.assert_array_equal(sliding.rows[::4], apart.rows)
    with pytest.raises(BadInput, match="step"):
        windows_of(whole, step=0)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=30))
def test_a_row_is_kept_when_its_owners_label_has_changed(pairs: list[tuple[int, int]]) -> None:
    labels, owners = (np.array([pair[at] for pair in pairs]) for at in (0, 1))
    last: dict[int, int] = {}
    expected = []
    for label, owner in pairs:
        expected.append(last.get(owner) != label)
        last[owner] = label
    assert keep_changes(labels, owners).tolist() == expected


def test_time_must_not_run_backwards() -> None:
    with pytest.raises(BadInput, match="order of time"):
        windows_of(recording(np.array([0.0, 1.0, 0.5]), np.ones(3), np.zeros(3)))
    with pytest.raises(BadInput, match="empty"):
        windows_of(recording(np.zeros(0), np.zeros(0), np.zeros(0)))
    with pytest.raises(BadInput, match="rate_hz"):
        windows_of(recording(np.zeros(1), np.zeros(1), np.zeros(1)), rate_hz=0)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 200), st.integers(0, 3)), min_size=1, max_size=40))
def test_keep_slots_takes_one_row_per_slot(pairs: list[tuple[float, int]]) -> None:
    pairs = sorted(pairs, key=lambda pair: (pair[1], pair[0]))
    start, session = np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])
    keep = keep_slots(start, session, 30.0)
    slots = [(number, int(time // 30)) for time, number in pairs]
    assert sorted(slot for slot, kept in zip(slots, keep, strict=True) if kept) == sorted(set(slots))
    assert keep.tolist() == [slot not in slots[:place] for place, slot in enumerate(slots)]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 5)), min_size=1, max_size=20))
def test_no_session_is_split(sessions: list[tuple[int, int]]) -> None:
    session = np.concatenate([np.full(size, number) for number, size in sessions])
    labels, owners = session % 3, session % 2
    test = split_sessions(session, labels, owners)
    for number in np.unique(session):
        assert len(set(test[session == number].tolist())) == 1
    for owner, label in {(int(o), int(k)) for o, k in zip(owners, labels, strict=True)}:
        mine = (owners == owner) & (labels == label)
        count = len(np.unique(session[mine]))
        assert len(np.unique(session[mine & test])) == (count + 1) // 3
