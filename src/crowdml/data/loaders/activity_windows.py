"""From an accelerometer to rows a model can learn from, as in section V.B of Hamm et al. (ICDCS 2015).

Acceleration (x, y, z) becomes its magnitude, the magnitude is brought to 20 samples a second, cut into windows of
3.2 seconds, and each window becomes the magnitudes of its 64-bin Fourier transform. Everything is a pure function
of arrays; who recorded what stays with the caller.
"""

from __future__ import annotations

import itertools
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import BadInput, positive
from crowdml.core.records import record
from crowdml.data.dataset import Floats, Ints
from crowdml.data.transforms.whole_rows import magnitudes

Doubles: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@record
class Recording:
    """Samples of one sensor, of many sessions one after the other.

    Attributes:
        seconds: Time of each sample within its session, not decreasing, shape (samples,).
        acceleration: The three axes, shape (samples, 3).
        session: Which session a sample belongs to; samples of a session stand together.
    """

    seconds: Doubles
    acceleration: npt.NDArray[Any]
    session: Ints


@record
class Windows:
    """What the pipeline makes of a recording, one entry per window.

    Attributes:
        rows: Magnitudes of the Fourier bins, shape (windows, bins).
        session: The session each window came from.
        start_s: When the window begins within its session.
        samples: How many real samples the window holds; few means that most of it is interpolated.
    """

    rows: Floats
    session: Ints
    start_s: Doubles
    samples: Ints


def windows_of(recording: Recording, rate_hz: float = 20.0, bins: int = 64, step: int | None = None) -> Windows:
    """Turn a recording into windows of `bins` samples at `rate_hz`.

    Args:
        recording: Sessions of samples.
        rate_hz: Samples a second.
        bins: Samples in a window.
        step: Samples from the beginning of a window to that of the next: fewer than `bins` make windows that slide, as
            in the paper. Not given: side by side, without overlap.

    >>> seconds = np.arange(200) / 50
    >>> upright = np.tile([0.0, 0.0, 9.81], (200, 1))
    >>> made = windows_of(Recording(seconds=seconds, acceleration=upright, session=np.zeros(200, np.int32)))
    >>> made.rows.shape, round(float(made.rows[0, 0] / 64), 2)
    ((1, 64), 9.81)
    """
    step = bins if step is None else step
    positive(rate_hz=rate_hz, bins=bins, step=step)
    magnitude = np.sqrt(np.square(recording.acceleration, dtype=np.float64).sum(axis=1))
    spans = _spans(recording.session)
    parts = [_session(recording, magnitude, first, last, rate_hz, bins, step) for first, last in spans]
    if not parts:
        raise BadInput("the recording is empty")
    return Windows(
        rows=np.concatenate([part.rows for part in parts]),
        session=np.concatenate([part.session for part in parts]),
        start_s=np.concatenate([part.start_s for part in parts]),
        samples=np.concatenate([part.samples for part in parts]),
    )


def _spans(session: Ints) -> list[tuple[int, int]]:
    """List the first and one-past-last place of each run of equal numbers."""
    if not len(session):
        return []
    cuts = np.flatnonzero(np.diff(session)) + 1
    edges = [0, *cuts.tolist(), len(session)]
    return list(itertools.pairwise(edges))


def _session(
    recording: Recording, magnitude: Doubles, first: int, last: int, rate_hz: float, bins: int, step: int
) -> Windows:
    times = recording.seconds[first:last]
    if (np.diff(times) < 0).any():
        raise BadInput("the samples of a session must stand in the order of time")
    # One sample stands for the time until the next, so n samples at the rate last n/rate and not (n-1)/rate.
    ticks = int((times[-1] - times[0] + 1 / rate_hz + 1e-9) * rate_hz + 1e-6)
    starts = np.arange(max((ticks - bins) // step + 1, 0)) * step
    grid = times[0] + (starts[:, None] + np.arange(bins)) / rate_hz
    even = np.interp(grid, times, magnitude[first:last])
    begins = times[0] + starts / rate_hz
    # A hair earlier, so that a sample exactly on an edge counts for the window that begins there.
    within = [np.searchsorted(times, edge - 1e-9) for edge in (begins, begins + bins / rate_hz)]
    return Windows(
        rows=magnitudes(even),
        session=np.full(len(starts), recording.session[first], np.int32),
        start_s=begins,
        samples=(within[1] - within[0]).astype(np.int32),
    )


def keep_slots(start_s: Doubles, session: Ints, every_s: float = 30.0) -> Mask:
    """Choose the first row of each slot of time in each session.

    >>> keep_slots(np.array([0.0, 3.2, 31.0, 0.0]), np.array([1, 1, 1, 2]), every_s=30.0).tolist()
    [True, False, True, True]
    """
    positive(every_s=every_s)
    slot = np.floor_divide(start_s, every_s).astype(np.int64)
    _, first = np.unique(np.stack([session.astype(np.int64), slot]), axis=1, return_index=True)
    keep = np.zeros(len(start_s), bool)
    keep[first] = True
    return keep


def keep_changes(labels: Ints, owners: Ints) -> Mask:
    """Choose rows whose label is another than that of their owner's row before, and each owner's first.

    Crowd-ML 2015 collects so, in order that rows differ. It is a filter that depends on data: a promise then is about
    the rows that it lets pass.

    >>> keep_changes(np.array([0, 0, 2, 1, 1]), np.array([5, 5, 5, 6, 5])).tolist()
    [True, False, True, True, True]
    """
    keep = np.zeros(len(labels), bool)
    for owner in np.unique(owners):
        rows = np.flatnonzero(owners == owner)
        keep[rows] = np.concatenate([[True], np.diff(labels[rows]) != 0])
    return keep


def split_sessions(session: Ints, labels: Ints, owners: Ints) -> Mask:
    """Choose whole sessions for testing: of each owner's sessions of one class every third, from the second on.

    Windows of one session resemble each other, so a session stands on one side only. An owner with a single session
    of a class keeps it for training.

    Returns:
        True for the rows to test on.

    >>> split_sessions(np.array([1, 1, 2, 3, 9]), np.zeros(5, np.int32), np.array([4, 4, 4, 4, 5])).tolist()
    [False, False, True, False, False]
    """
    groups = np.stack([owners, labels, session])
    kinds, member = np.unique(groups, axis=1, return_inverse=True)
    # Columns of `kinds` are sorted: sessions of one owner and class stand together, in order.
    new_group = np.any(np.diff(kinds[:2], axis=1) != 0, axis=0)
    starts = np.concatenate([[0], np.flatnonzero(new_group) + 1])
    place = np.arange(kinds.shape[1]) - np.repeat(starts, np.diff([*starts.tolist(), kinds.shape[1]]))
    return np.asarray(place % 3 == 1)[member.reshape(-1)]
