"""From strokes of a finger to a row of 8 × 8 numbers, as scikit-learn's digits have them; the browser's twin.

Those digits were 32 × 32 black and white pictures, as tall as the picture and at most three quarters as wide; a
number is the count of black pixels in a square of 4 × 4. All of them have about the same amount of ink, so a short
stroke is drawn with a thick pen. A row is worked out from the points of the strokes alone, never from what a screen
shows, so that every phone makes the same row of the same strokes.

`web/sensing/digit.ts` does the same; `tests/vectors/sensing.json` holds both to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from crowdml.core.errors import BadInput
from crowdml.data.dataset import Floats

Stroke = Sequence[tuple[float, float]]

SIDE = 8
FINE = 32
WIDEST = 24.0
INK = 310.0
"""Black pixels of the average digit of the dataset."""
THINNEST, THICKEST = 1.7, 4.5
"""Radius of the pen, in pixels of the fine picture."""


def row_of_strokes(strokes: Sequence[Stroke]) -> Floats:
    """Turn strokes into a row of 64 numbers from 0 to 16.

    Args:
        strokes: Points (x, y) of each stroke, y downwards, in any unit.

    >>> row_of_strokes([[(5.0, 0.0), (5.0, 90.0)]]).reshape(8, 8)[4].tolist()
    [0.0, 0.0, 4.0, 16.0, 16.0, 4.0, 0.0, 0.0]
    """
    points = np.array([point for stroke in strokes for point in stroke], np.float64).reshape(-1, 2)
    if not len(points) or not np.isfinite(points).all():
        raise BadInput("a digit needs at least one stroke, of finite points")
    low, size = points.min(axis=0), points.max(axis=0) - points.min(axis=0)
    pen = _pen(strokes, size)
    box = FINE - 2 * pen
    tall = box / size[1] if size[1] > 0 else 0.0
    wide = min(tall or box / max(size[0], 1e-9), (WIDEST - 2 * pen) / size[0]) if size[0] > 0 else 0.0
    left, top = FINE / 2 - size[0] * wide / 2, FINE / 2 - size[1] * tall / 2
    placed = [[(left + (x - low[0]) * wide, top + (y - low[1]) * tall) for x, y in stroke] for stroke in strokes]
    picture = np.zeros((FINE, FINE), bool)
    for stroke in placed:
        for begin, end in itertools.pairwise(stroke) if len(stroke) > 1 else ((p, p) for p in stroke):
            picture |= _near(begin, end, pen)
    row: Floats = picture.reshape(SIDE, 4, SIDE, 4).sum(axis=(1, 3)).astype(np.float32).reshape(-1)
    return row


def _pen(strokes: Sequence[Stroke], size: np.ndarray) -> float:
    """Choose the radius that gives a digit, brought to its height, about the usual amount of ink."""
    longest = max(float(size[0]), float(size[1]))
    if longest <= 0:
        return THICKEST
    length = sum(
        float(np.sqrt((x - u) ** 2 + (y - v) ** 2))
        for stroke in strokes
        for (x, y), (u, v) in itertools.pairwise(stroke)
    )
    scaled = length / longest * (FINE - 4)
    return min(THICKEST, max(THINNEST, INK / (2 * max(scaled, 1.0))))


def _near(begin: tuple[float, float], end: tuple[float, float], radius: float) -> np.ndarray:
    """Tell of every pixel whether its centre is within a radius of a segment."""
    centre = np.arange(FINE) + 0.5
    dx, dy = end[0] - begin[0], end[1] - begin[1]
    squared = dx * dx + dy * dy
    px, py = centre[None, :] - begin[0], centre[:, None] - begin[1]
    along = np.clip((px * dx + py * dy) / squared, 0.0, 1.0) if squared > 0 else np.zeros((FINE, FINE))
    across, down = px - along * dx, py - along * dy
    return np.asarray(across * across + down * down <= radius * radius)
