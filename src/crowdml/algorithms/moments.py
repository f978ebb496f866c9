"""Moments of rows: what a device sends of them, and the matrix that a server makes of their sum."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from crowdml.core import Array, Batch, Ops, record
from crowdml.privacy.grid import Grid


@record
class Moments:
    """Squares of rows, and rows times labels ±1 where they are wanted, as one vector (`privacy.moments`).

    Attributes:
        features: Numbers in a row, d.
        labels: Whether rows times labels stand behind the squares.
        ops: Array operations.
    """

    features: int
    labels: bool
    ops: Ops

    @property
    def size(self) -> int:
        """Numbers in the vector."""
        return self.features * (self.features + 1) // 2 + (self.features if self.labels else 0)

    def plain(self, rows: Array, batch: Batch) -> Array:
        """Sum the vectors of all rows as they are."""
        xp = self.ops.xp
        kept = rows * batch.mask[:, None]
        first, second, factor = self._pairs()
        squares = self.ops.t_dot(kept, rows)[first, second] * factor
        if not self.labels:
            return squares
        return xp.concatenate([squares, self.ops.dot(self._signs(batch)[None] * batch.mask, rows)[0]])

    def on_grid(self, rows: Array, batch: Batch, grid: Grid) -> Array:
        """Sum checked integers over all rows, each of them shortened to length 1 where it is longer; int32."""
        xp = self.ops.xp
        rows = rows / xp.maximum(xp.sqrt(xp.sum(rows * rows, axis=1)), xp.float32(1))[:, None]
        first, second, factor = self._pairs()
        vectors = rows[:, first] * rows[:, second] * factor
        if self.labels:
            vectors = xp.concatenate([vectors, rows * self._signs(batch)[:, None]], axis=1)
        levels = vectors * xp.float32(1 / grid.step)
        levels = xp.where(xp.isfinite(levels), xp.clip(levels, -float(grid.levels), float(grid.levels)), xp.float32(0))
        k = xp.rint(levels).astype(xp.int32)
        # A sum of squares in single precision is off by less than what the limit leaves.
        long = xp.sum(k.astype(xp.float32) ** 2, axis=1) > xp.float32(grid.limit)
        keep = (batch.mask > 0) & ~long
        return xp.sum(xp.where(keep[:, None], k, xp.int32(0)), axis=0, dtype=xp.int32)

    def matrix(self, vector: Array) -> Array:
        """Put the squares back into a symmetric matrix."""
        first, second, factor = self._pairs()
        places = np.zeros((self.features, self.features), np.int32)
        places[first, second] = places[second, first] = np.arange(len(first))
        return (vector[: len(first)] / factor)[places]

    def cross(self, vector: Array) -> Array:
        """Return rows times labels."""
        return vector[-self.features :]

    def _pairs(self) -> tuple[Array, Array, Array]:
        first, second = np.triu_indices(self.features)
        return first, second, np.where(first == second, 1.0, math.sqrt(2.0)).astype(np.float32)

    def _signs(self, batch: Batch) -> Array:
        # A label that is none must not make a row's products longer than the bound assumes.
        return 2 * self.ops.xp.clip(batch.labels, 0, 1).astype(self.ops.xp.float32) - 1


def above_zero(ops: Ops) -> Callable[[Array], Array]:
    """Return the function that brings a symmetric matrix to the nearest one without negative eigenvalues."""
    xp = ops.xp

    def raised(matrix: Array) -> Array:
        values, vectors = xp.linalg.eigh(matrix)
        return ops.dot_t(vectors * xp.maximum(values, xp.float32(0)), vectors)

    return raised
