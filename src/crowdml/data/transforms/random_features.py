"""Random features: a fixed, public way to see more in a picture than its pixels.

Random filters at three patch sizes look at every second place of the picture; what exceeds a threshold, in either
sign, is averaged over the four quarters of the picture. Each filter works together with its mirror image, so a
picture and its mirror image give the same row. Nothing is learnt: the filters come from a fixed seed, weighted
by spatial frequency as pictures of the world in general ask for, so the result says nothing about anybody's rows.

A model that leaves crowdml takes the same filters along as convolutions.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from pydantic import Field

from crowdml.core.errors import BadInput
from crowdml.core.graphs import Graph, Value
from crowdml.data.dataset import Floats, Rows
from crowdml.data.transforms.transform import Bounds, FixedTransform, require_columns

SEED = 2015
PATCHES = (4, 6, 10)
STRIDE = 2
THRESHOLD = 1.0
CONTRAST_FLOOR = 100.0
"""Variance below which a patch (of values 0 to 255) counts as flat, so that noise is not blown up."""
IMAGES_AT_ONCE = 16
"""Keeps what is in flight (patches and answers) within the processor's cache."""
SCALES = {4: 1.37, 6: 1.55, 10: 1.84}
"""Typical size of an answer for each patch size, measured once on photographs; a constant like the seed."""
QUARTERS = 4
SIGNS = 2


class RandomFeatures(FixedTransform):
    """Replace pictures by what fixed random filters find in them.

    Rows are pictures with values 0 to 255, in the order height, width, colour. A row of `12 x filters` numbers
    results, none of them negative.

    >>> picture = np.zeros((1, 32 * 32 * 3), np.uint8)
    >>> RandomFeatures(filters=8).fit(picture).apply(picture).shape
    (1, 96)
    """

    kind: Literal["random-features"] = "random-features"
    costly = True
    size: int = Field(32, ge=16, le=256, description="Height and width of the picture.")
    colours: Literal[1, 3] = Field(3, description="1 for grey, 3 for red, green and blue.")
    filters: int = Field(160, ge=2, le=1024, multiple_of=2, description="Filters per patch size, mirrors included.")

    def bounds(self, before: Bounds) -> Bounds:
        """Promise nothing but the width."""
        return Bounds(features=self._width())

    def write(self, graph: Graph, rows: Value, arrays: Mapping[str, npt.NDArray[Any]]) -> Value:
        """Write the filters as convolutions."""
        pictures = graph.add("Reshape", rows, graph.constant((-1, self.size, self.size, self.colours)))
        pictures = graph.add("Transpose", pictures, perm=(0, 3, 1, 2))
        parts = [_write_answers(graph, pictures, self.size, self.colours, self.filters, patch) for patch in PATCHES]
        return graph.add("Concat", *parts, axis=1)

    def _width(self) -> int:
        return len(PATCHES) * QUARTERS * SIGNS * self.filters // 2

    def apply(self, rows: Rows) -> Floats:
        """Filter a few pictures at a time."""
        require_columns("random-features", rows, self.size * self.size * self.colours)
        result = np.empty((len(rows), self._width()), np.float32)
        for start in range(0, len(rows), IMAGES_AT_ONCE):
            some = rows[start : start + IMAGES_AT_ONCE].astype(np.float32)
            pictures = some.reshape(-1, self.size, self.size, self.colours)
            parts = [_answers(pictures, bank(patch, self.colours, self.filters), patch) for patch in PATCHES]
            result[start : start + len(some)] = np.concatenate(parts, axis=1)
        return result


@functools.lru_cache(maxsize=8)
def bank(patch: int, colours: int, filters: int) -> Floats:
    """Make the filters of one patch size, shape (patch * patch * colours, filters), mirrors in the second half."""
    waves = _cosines(patch)
    gains = _gains(patch, colours)
    weights = np.random.RandomState(SEED + patch).standard_normal((filters // 2, colours, patch, patch))
    weights /= np.sqrt(np.square(weights).sum(axis=(1, 2, 3), keepdims=True))
    halves = np.einsum("fcij,iy,jx,cr->fyxr", weights * gains, waves, waves, _colour_axes(colours))
    both = np.concatenate([halves, halves[:, :, ::-1]])
    return np.ascontiguousarray(both.reshape(filters, -1).T, dtype=np.float32)


def _cosines(patch: int) -> npt.NDArray[np.float64]:
    """Return the orthonormal cosine waves, one per row, from slow to fast."""
    place, speed = np.arange(patch) + 0.5, np.arange(patch)[:, None]
    waves: npt.NDArray[np.float64] = np.cos(np.pi * speed * place / patch) * np.sqrt(2 / patch)
    waves[0] /= np.sqrt(2)
    return waves


def _gains(patch: int, colours: int) -> npt.NDArray[np.float64]:
    """Weigh frequencies: pictures hold less at high ones and less in colour, so these are lifted.

    Brightness as such (frequency zero of the grey axis) gets no weight: the same thing in the shade is the same.
    """
    speed = np.arange(patch)
    grey = np.sqrt(np.hypot(speed[:, None], speed))
    coloured = 3.0 * grey
    coloured[0, 0] = 1.8
    gains = np.stack([grey, coloured, coloured][:colours])
    # A filter's answer to a patch of contrast one then has a size near one for every patch size.
    return np.asarray(gains / SCALES[patch])


def _colour_axes(colours: int) -> npt.NDArray[np.float64]:
    if colours == 1:
        return np.ones((1, 1))
    axes = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 0.0], [1.0, 1.0, -2.0]])
    return np.asarray(axes / np.sqrt(np.square(axes).sum(axis=1, keepdims=True)))


def _answers(pictures: Floats, filters: Floats, patch: int) -> Floats:
    """Filter, threshold in both signs, average over quarters, fold mirrors together, take the root."""
    found = sliding_window_view(pictures, (patch, patch), axis=(1, 2))[:, ::STRIDE, ::STRIDE]
    count, places = found.shape[0], found.shape[1]
    if places < 2:
        raise BadInput(f"random-features: pictures are too small for patches of {patch}")
    patches = found.transpose(0, 1, 2, 4, 5, 3).reshape(count * places * places, -1)
    # Filters have no answer to a constant, so dividing by the deviation is all that is left of normalising.
    mean = patches.mean(axis=1)
    square = np.einsum("ij,ij->i", patches, patches) / patches.shape[1]
    contrast = np.sqrt(np.maximum(square - mean * mean, 0) + CONTRAST_FLOOR)
    answers = (patches @ filters) / contrast[:, None]
    answers = answers.reshape(count, places, places, -1)
    above = _quarters(np.maximum(answers - THRESHOLD, 0))
    below = _quarters(np.maximum(-answers - THRESHOLD, 0))
    return np.asarray(np.sqrt(np.concatenate([_fold(above), _fold(below)], axis=1)))


def _quarters(answers: Floats) -> Floats:
    """Average over the quarters, shape (count, 2, 2, filters); a middle line belongs to both halves."""
    places = answers.shape[1]
    half = (places + 1) // 2
    halves = (slice(0, half), slice(places - half, places))
    return np.stack(
        [np.stack([answers[:, rows, columns].mean(axis=(1, 2)) for columns in halves], axis=1) for rows in halves],
        axis=1,
    )


def _fold(quarters: Floats) -> Floats:
    """Add each filter's answer on one side to its mirror's answer on the other side."""
    count, _, _, filters = quarters.shape
    folded = quarters[..., : filters // 2] + quarters[:, :, ::-1, filters // 2 :]
    return folded.reshape(count, -1)


def _write_answers(graph: Graph, pictures: Value, size: int, colours: int, filters: int, patch: int) -> Value:
    """Write what filters of one patch size find; pictures have shape (any, colours, size, size)."""
    weights = bank(patch, colours, filters).T.reshape(filters, patch, patch, colours).transpose(0, 3, 1, 2)
    even = np.full((1, colours, patch, patch), 1 / (colours * patch * patch), np.float32)
    mean = _write_filters(graph, pictures, even)
    square = _write_filters(graph, graph.add("Mul", pictures, pictures), even)
    variance = graph.add("Relu", graph.add("Sub", square, graph.add("Mul", mean, mean)))
    contrast = graph.add("Sqrt", graph.add("Add", variance, graph.constant(np.float32(CONTRAST_FLOOR))))
    answers = graph.add("Div", _write_filters(graph, pictures, weights), contrast)
    threshold = graph.constant(np.float32(THRESHOLD))
    above = graph.add("Relu", graph.add("Sub", answers, threshold))
    below = graph.add("Relu", graph.add("Sub", graph.add("Neg", answers), threshold))
    places = (size - patch) // STRIDE + 1
    folded = (_write_fold(graph, side, places, filters) for side in (above, below))
    return graph.add("Sqrt", graph.add("Concat", *folded, axis=1))


def _write_filters(graph: Graph, pictures: Value, weights: Any) -> Value:
    return graph.add("Conv", pictures, graph.constant(np.ascontiguousarray(weights)), strides=(STRIDE, STRIDE))


def _write_fold(graph: Graph, answers: Value, places: int, filters: int) -> Value:
    """Average over quarters, and add each filter's answer to its mirror's on the other side."""
    half = (places + 1) // 2
    halves = ((0, half), (places - half, places))
    parts = []
    for rows in halves:
        for columns, mirrored in (halves, halves[::-1]):
            quarter = _quarter(graph, answers, (0, filters // 2), rows, columns)
            mirror = _quarter(graph, answers, (filters // 2, filters), rows, mirrored)
            parts.append(graph.add("Add", quarter, mirror))
    return graph.add("Concat", *parts, axis=1)


def _quarter(graph: Graph, answers: Value, *ranges: tuple[int, int]) -> Value:
    """Average some filters' answers over a quarter, shape (any, filters)."""
    starts, ends = (graph.constant(borders) for borders in zip(*ranges, strict=True))
    part = graph.add("Slice", answers, starts, ends, graph.constant((1, 2, 3)))
    return graph.add("ReduceMean", part, axes=(2, 3), keepdims=0)
