"""From a phone's accelerometer to rows: the arithmetic of the browser device, in Python.

A phone reports its acceleration some 60 times a second, at times that waver. Taking every third value, or a value
between two of them, would fold what happens faster than 10 Hz into the 20 Hz signal. So the magnitude is first brought
to an even 60 Hz, then low-passed, and only then is every third value kept. Windows of 64 values become the magnitudes
of their Fourier bins, as `activity_windows` makes them of recordings.

`web/sensing/motion.ts` does the same, value by value as they come; `tests/vectors/sensing.json` holds both to it.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import BadInput
from crowdml.data.dataset import Floats
from crowdml.data.transforms.whole_rows import magnitudes

Doubles = npt.NDArray[np.float64]

FINE_HZ = 60.0
STEP = 3
BINS = 64
REACH = 12
CUT_HZ = 8.0
GAP_S = 0.5
"""Longer silence than this, as of a page that was hidden, begins a new recording."""


def low_pass() -> Doubles:
    """Return the weights of the low-pass filter: a sinc that cuts at 8 Hz, under a Hamming window.

    >>> weights = low_pass()
    >>> len(weights), round(float(weights.sum()), 12)
    (25, 1.0)
    """
    at = np.arange(-REACH, REACH + 1)
    width = 2 * CUT_HZ / FINE_HZ
    weights: Doubles = width * np.sinc(width * at) * (0.54 + 0.46 * np.cos(math.pi * at / REACH))
    weights /= weights.sum()
    return weights


def even_samples(seconds: Doubles, magnitude: Doubles) -> Doubles:
    """Bring one recording without gaps to an even 20 samples a second.

    Args:
        seconds: When each value was measured, ascending.
        magnitude: The length of the acceleration, in m/s².

    Returns:
        The first value is that of the first time; before it the recording counts as constant.

    >>> steady = even_samples(np.arange(61) / 60, np.full(61, 9.81))
    >>> len(steady), round(float(steady[-1]), 9)
    (17, 9.81)
    """
    if len(seconds) < 2 or len(seconds) != len(magnitude):
        return np.zeros(0)
    if (np.diff(seconds) < 0).any() or not (np.isfinite(seconds).all() and np.isfinite(magnitude).all()):
        raise BadInput("times of a recording must be finite and ascend, and its values must be finite")
    count = int((seconds[-1] - seconds[0]) * FINE_HZ + 1e-9) + 1
    fine = np.interp(seconds[0] + np.arange(count) / FINE_HZ, seconds, magnitude)
    padded = np.concatenate([np.full(REACH, fine[0]), fine])
    smooth = np.convolve(padded, low_pass(), mode="valid") if len(padded) > 2 * REACH else np.zeros(0)
    return np.asarray(smooth[::STEP])


def rows_of_motion(seconds: Doubles, acceleration: npt.NDArray[np.floating]) -> Floats:
    """Turn a recording into rows: one for each window of 3.2 s, without overlap, shape (windows, 64).

    Args:
        seconds: When each value was measured.
        acceleration: The three axes with gravity, in m/s², shape (values, 3).

    >>> upright = np.tile([0.0, 0.0, 9.81], (300, 1))
    >>> rows = rows_of_motion(np.arange(300) / 60, upright)
    >>> rows.shape, round(float(rows[0, 0] / 64), 3)
    ((1, 64), 9.81)
    """
    magnitude = np.sqrt(np.square(acceleration, dtype=np.float64).sum(axis=1))
    cuts = [0, *(np.flatnonzero(np.diff(seconds) > GAP_S) + 1).tolist(), len(seconds)]
    parts = [even_samples(seconds[a:b], magnitude[a:b]) for a, b in itertools.pairwise(cuts)]
    windows = [part[: len(part) // BINS * BINS].reshape(-1, BINS) for part in parts]
    return magnitudes(np.concatenate(windows))
