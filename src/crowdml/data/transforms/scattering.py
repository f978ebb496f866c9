"""Scattering: what fixed wavelets find in a picture, in two layers (Bruna and Mallat 2013). Nothing is learnt.

A wavelet answers to edges of one direction and one width; the size of its answer, averaged over a part of the picture,
is a feature. What the average loses, wider wavelets find again in the sizes of the answers of narrow ones. With eight
directions and two widths a picture has 1 + 16 + 64 maps for each colour. Features of one kind are then brought to mean
0 and variance 1 within the picture itself, so that no constant has to be learnt from anybody's rows.

Wavelets are Morlet's with a round window: a product of one function across and one down, so that filtering is two
matrix products. Pictures are mirrored at their borders. A model that leaves crowdml takes the wavelets along as
convolutions.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from crowdml.core.errors import BadInput
from crowdml.core.graphs import Graph, Value
from crowdml.core.records import record
from crowdml.data.dataset import Floats, Rows
from crowdml.data.transforms.transform import Bounds, Fitted, FixedTransform, require_columns

DIRECTIONS = 8
PATHS = 1 + 2 * DIRECTIONS + DIRECTIONS**2
REACH = (3, 6)
"""Pixels to either side of a wavelet's centre, for the narrow and the wide one."""
FLOOR = 1e-3
"""Added to the variance of a group of features (of a picture with values 0 to 1), so that a blank one stays blank."""
PICTURES_AT_ONCE = 32


@record
class Bank:
    """Wavelets of one width as functions across (or, transposed, down) a picture.

    Attributes:
        waves: exp(-t²/2σ²)·exp(iωt) for the frequency of each direction across, shape (directions, 2·reach + 1).
        turned: The same for the frequency down.
        window: exp(-t²/2σ²), shape (2·reach + 1,).
        offset: What of the window is taken away, so that a constant has no answer; one number per direction.
    """

    waves: npt.NDArray[np.complex128]
    turned: npt.NDArray[np.complex128]
    window: npt.NDArray[np.float64]
    offset: npt.NDArray[np.float64]

    @functools.cached_property
    def kernels(self) -> npt.NDArray[np.complex128]:
        """The wavelets themselves, shape (directions, down, across)."""
        waves = self.turned[:, :, None] * self.waves[:, None, :]
        return waves - self.offset[:, None, None] * self.window[:, None] * self.window


@functools.lru_cache(maxsize=2)
def bank(width: int) -> Bank:
    """Make the wavelets of one width: 0 is narrow, 1 is wide."""
    sigma, pace, reach = 0.8 * 2**width, 0.75 * np.pi / 2**width, REACH[width]
    t = np.arange(-reach, reach + 1)
    window = np.exp(-(t**2) / (2 * sigma**2))
    window = window / window.sum()
    angles = np.pi * np.arange(DIRECTIONS) / DIRECTIONS
    waves = window * np.exp(1j * pace * np.cos(angles)[:, None] * t)
    turned = window * np.exp(1j * pace * np.sin(angles)[:, None] * t)
    offset = (waves.sum(axis=1) * turned.sum(axis=1)).real
    return Bank(waves=waves, turned=turned, window=window, offset=offset)


class Scattering(FixedTransform):
    """Replace pictures by what wavelets find in them.

    Rows are pictures with values 0 to 255, in the order height, width, colour. A row of `grid² x 81 x colours` numbers
    results.

    >>> picture = np.zeros((1, 28 * 28), np.uint8)
    >>> Scattering(size=28, colours=1, grid=7).fit(picture).apply(picture).shape
    (1, 3969)
    """

    kind: Literal["scattering"] = "scattering"
    costly = True
    size: int = Field(32, ge=16, le=256, multiple_of=4, description="Height and width of the picture.")
    colours: Literal[1, 3] = Field(3, description="1 for grey, 3 for red, green and blue.")
    grid: int = Field(4, ge=1, le=64, description="Parts to a side over which answers are averaged; divides size / 2.")

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Fitted:
        """Refuse a grid that does not fit before anything is computed."""
        self._require_grid()
        return Fitted(apply=self.apply, arrays={})

    def bounds(self, before: Bounds) -> Bounds:
        """Promise the width, and the length that follows from a variance of at most 1."""
        features = self.grid**2 * PATHS * self.colours
        return Bounds(features=features, l2=float(np.sqrt(features)) * 1.001)

    def write(self, graph: Graph, rows: Value, arrays: Mapping[str, npt.NDArray[Any]]) -> Value:
        """Write the wavelets as convolutions."""
        return _write_scattering(graph, rows, self.size, self.colours, self.grid)

    def _require_grid(self) -> None:
        if self.size // 2 % self.grid:
            raise BadInput(
                f"{self.grid} parts do not fit into {self.size // 2} places",
                where="data.transform",
                hint="a grid that divides half the size",
            )

    def apply(self, rows: Rows) -> Floats:
        """Filter a few pictures at a time."""
        require_columns("scattering", rows, self.size * self.size * self.colours)
        result = np.empty((len(rows), self.grid**2 * PATHS * self.colours), np.float32)
        for start in range(0, len(rows), PICTURES_AT_ONCE):
            some = rows[start : start + PICTURES_AT_ONCE].astype(np.float32) / np.float32(255)
            pictures = some.reshape(-1, self.size, self.size, self.colours).transpose(0, 3, 1, 2)
            flat = np.ascontiguousarray(pictures).reshape(-1, self.size, self.size)
            result[start : start + len(some)] = _features(flat, self.grid).reshape(len(some), -1)
        return result


def _features(maps: Floats, grid: int) -> Floats:
    """Return the features of maps of shape (count, size, size): shape (count, 81, grid, grid)."""
    narrow, wide = _sizes(maps, 0), _sizes(maps, 1)
    count, directions, size, _ = narrow.shape
    second = _sizes(narrow.reshape(-1, size, size), 1).reshape(count, -1, size // 2, size // 2)
    groups = [_pool(maps[:, None], grid), _pool(narrow, grid), _pool(wide, grid)]
    groups += [_pool(part, grid) for part in np.split(second, directions, axis=1)]
    return np.concatenate([_normalised(group) for group in groups], axis=1)


def _sizes(maps: Floats, width: int) -> Floats:
    """Return the sizes of the answers of all wavelets of one width, shape (count, directions, places, places)."""
    across, down, blur = _matrices(maps.shape[1], width)
    count, size, places = len(maps), maps.shape[1], blur.shape[1]
    first = (maps.reshape(-1, size) @ across).reshape(count, size, -1).transpose(0, 2, 1)
    first = np.ascontiguousarray(first).reshape(count, DIRECTIONS + 1, 2, places, size)
    found = np.empty((count, DIRECTIONS, places, places), np.float32)
    soft = first[:, DIRECTIONS, 0] @ blur
    for direction, offset in enumerate(bank(width).offset.astype(np.float32)):
        both = first[:, direction].reshape(-1, size) @ down[direction]
        real, imaginary = both.reshape(count, 2, places, 2, places).transpose(1, 3, 0, 2, 4)
        # (a + ib)(c + id), with the products of both parts of one side with both of the other.
        one = real[0] - imaginary[1] - offset * soft
        other = real[1] + imaginary[0]
        found[:, direction] = np.sqrt(one * one + other * other).transpose(0, 2, 1)
    return found


@functools.lru_cache(maxsize=8)
def _matrices(size: int, width: int) -> tuple[Floats, Floats, Floats]:
    """Return filters as matrices over a line: all across (with the blur as the last), each down, and the blur.

    Wide wavelets stand at every second place. The line is mirrored at its ends.
    """
    wavelets, step = bank(width), 1 + width
    lines = np.concatenate([wavelets.waves, wavelets.window[None].astype(np.complex128)])
    across = np.stack([part for line in lines for part in (_line(line.real, size, step), _line(line.imag, size, step))])
    down = [
        np.concatenate([_line(line.real, size, step), _line(line.imag, size, step)], axis=1) for line in wavelets.turned
    ]
    flat = across.transpose(1, 0, 2).reshape(size, -1)
    blur = _line(wavelets.window, size, step)
    return flat.astype(np.float32), np.stack(down).astype(np.float32), blur.astype(np.float32)


def _line(kernel: npt.NDArray[np.float64], size: int, step: int) -> npt.NDArray[np.float64]:
    """Return a filter as a matrix, shape (size, places)."""
    reach = len(kernel) // 2
    made = np.zeros((size, size // step))
    for place in range(size // step):
        for tap, weight in enumerate(kernel):
            at = abs(place * step + tap - reach)
            made[2 * (size - 1) - at if at >= size else at, place] += weight
    return made


def _pool(maps: Floats, grid: int) -> Floats:
    count, channels, places, _ = maps.shape
    part = places // grid
    return np.asarray(maps.reshape(count, channels, grid, part, grid, part).mean(axis=(3, 5)))


def _normalised(group: Floats) -> Floats:
    """Bring one kind of features of one picture to mean 0 and variance 1."""
    centred = group - group.mean(axis=(1, 2, 3), keepdims=True)
    variance = np.square(centred).mean(axis=(1, 2, 3), keepdims=True)
    return np.asarray(centred / np.sqrt(variance + np.float32(FLOOR**2)))


def _write_scattering(graph: Graph, rows: Value, size: int, colours: int, grid: int) -> Value:
    """Write the whole transform; every colour of a picture is a picture of its own until the end."""
    maps = graph.add("Reshape", rows, graph.constant((-1, size, size, colours)))
    maps = graph.add("Transpose", maps, perm=(0, 3, 1, 2))
    maps = graph.add("Reshape", maps, graph.constant((-1, 1, size, size)))
    maps = graph.add("Div", maps, graph.constant(np.float32(255)))
    narrow, wide = _write_sizes(graph, maps, 0), _write_sizes(graph, maps, 1)
    second = _write_sizes(graph, graph.add("Reshape", narrow, graph.constant((-1, 1, size, size))), 1)
    places = size // 2
    groups = [_write_group(graph, maps, size // grid), _write_group(graph, narrow, size // grid)]
    groups.append(_write_group(graph, wide, places // grid))
    # One group of features for each direction of the narrow wavelet.
    pooled = _write_group(graph, second, places // grid)
    groups.append(graph.add("Reshape", pooled, graph.constant((-1, DIRECTIONS**2, grid, grid))))
    joined = graph.add("Concat", *groups, axis=1)
    return graph.add("Reshape", joined, graph.constant((-1, colours * PATHS * grid * grid)))


def _write_sizes(graph: Graph, maps: Value, width: int) -> Value:
    reach, kernels = REACH[width], bank(width).kernels
    pads = graph.constant((0, 0, reach, reach, 0, 0, reach, reach))
    mirrored = graph.add("Pad", maps, pads, mode="reflect")
    squares = []
    for part in (kernels.real, kernels.imag):
        weights = graph.constant(np.ascontiguousarray(part[:, None], np.float32))
        answer = graph.add("Conv", mirrored, weights, strides=(1 + width, 1 + width))
        squares.append(graph.add("Mul", answer, answer))
    return graph.add("Sqrt", graph.add("Add", *squares))


def _write_group(graph: Graph, maps: Value, part: int) -> Value:
    """Average over parts, then mean 0 and variance 1 for each picture."""
    pooled = graph.add("AveragePool", maps, kernel_shape=(part, part), strides=(part, part))
    centred = graph.add("Sub", pooled, graph.add("ReduceMean", pooled, axes=(1, 2, 3), keepdims=1))
    variance = graph.add("ReduceMean", graph.add("Mul", centred, centred), axes=(1, 2, 3), keepdims=1)
    floor = graph.constant(np.float32(FLOOR**2))
    return graph.add("Div", centred, graph.add("Sqrt", graph.add("Add", variance, floor)))
