"""moments: a device sends squares of its rows, summed; and the matrix that a server makes of their sum."""

from __future__ import annotations

import math

import numpy as np

from crowdml.algorithms.contract import DevicePart
from crowdml.algorithms.device_parts.local_solver import with_constant
from crowdml.core import Array, BadInput, Batch, Broadcast, Coins, Ops, Release, Target, Tree, record
from crowdml.privacy.noise.grid import MOMENT_LEVELS, Grid
from crowdml.privacy.sanitisers import Sanitiser


@record
class Moments:
    """Squares of rows, and rows times targets where they are wanted, as one vector (`privacy.noise.grid`).

    Attributes:
        features: Numbers in a row, d.
        target: What rows are mapped to, where rows times targets stand behind the squares; None where they do not.
        ops: Array operations.
    """

    features: int
    target: Target | None
    ops: Ops

    @property
    def size(self) -> int:
        """Numbers in the vector."""
        return self.features * (self.features + 1) // 2 + (self.features if self.target else 0)

    def matrix(self, vector: Array) -> Array:
        """Put the squares back into a symmetric matrix."""
        first, second, factor = self.pairs()
        places = np.zeros((self.features, self.features), np.int32)
        places[first, second] = places[second, first] = np.arange(len(first))
        return (vector[: len(first)] / factor)[places]

    def cross(self, vector: Array) -> Array:
        """Return rows times targets."""
        return vector[-self.features :]

    def pairs(self) -> tuple[Array, Array, Array]:
        """Return first and second number of each product, and the factor on it that keeps lengths."""
        first, second = np.triu_indices(self.features)
        return first, second, np.where(first == second, 1.0, math.sqrt(2.0)).astype(np.float32)


def above_zero(matrix: Array, ops: Ops) -> Array:
    """Bring a symmetric matrix to the nearest one without negative eigenvalues."""
    values, vectors = ops.xp.linalg.eigh(matrix)
    return ops.dot_t(vectors * ops.xp.maximum(values, ops.xp.float32(0)), vectors)


@record
class Squares:
    """The statistic of a batch: products of rows' numbers with each other, summed.

    Attributes:
        moments: Which products.
        rows: The rows, with a constant where the model has a bias.
        batch: Their targets and mask.
    """

    moments: Moments
    rows: Array
    batch: Batch

    def plain(self) -> Array:
        """Sum the vectors of all rows as they are."""
        ops, mask = self.moments.ops, self.batch.mask
        first, second, factor = self.moments.pairs()
        squares = ops.t_dot(self.rows * mask[:, None], self.rows)[first, second] * factor
        if self.moments.target is None:
            return squares
        return ops.xp.concatenate([squares, ops.dot(self._signs(self.moments.target)[None] * mask, self.rows)[0]])

    def on_grid(self, grid: Grid) -> Array:
        """Sum checked integers over all rows, each cut to length 1 (proof: `privacy.noise.grid`).

        A number is cut with its row, which then counts less and asks for the same model: with a constant all rows are
        cut. A label is not: it says on which side a row lies, and that is so however long it is.
        """
        xp, mask, long = self.moments.ops.xp, self.batch.mask, self.moments.ops.long
        if (most := np.iinfo(long).max // MOMENT_LEVELS) < len(mask):
            raise BadInput(
                f"squares of {len(mask)} rows of one device do not fit into the 32 bits of a simulation's sums",
                where="algorithm.max-rows",
                hint=f"max-rows = {most}, or more devices; a live device sums in 64 bits",
            )
        length = xp.maximum(xp.sqrt(xp.sum(self.rows * self.rows, axis=1)), xp.float32(1))[:, None]
        rows = self.rows / length
        first, second, factor = self.moments.pairs()
        vectors = rows[:, first] * rows[:, second] * factor
        if self.moments.target is not None:
            signs = self._signs(self.moments.target)[:, None]
            targets = signs if self.moments.target.has_accuracy else signs / length
            vectors = xp.concatenate([vectors, rows * targets], axis=1)
        levels = vectors * xp.float32(1 / grid.step)
        levels = xp.where(xp.isfinite(levels), xp.clip(levels, -float(grid.levels), float(grid.levels)), xp.float32(0))
        k = xp.rint(levels).astype(xp.int32)
        # A sum of squares in single precision is off by less than what the limit leaves.
        over = xp.sum(k.astype(xp.float32) ** 2, axis=1) > xp.float32(grid.limit)
        keep = (mask > 0) & ~over
        return xp.sum(xp.where(keep[:, None], k, xp.int32(0)), axis=0, dtype=long)

    def _signs(self, target: Target) -> Array:
        # A target that is none must not make a row's products longer than the bound assumes.
        return target.signed(self.batch.targets, self.moments.ops)


@record
class SendMoments(DevicePart):
    """Sends squares of rows.

    Attributes:
        moments: Which products.
        sanitiser: Bounds them.
        biased: Whether the model has a bias.
    """

    moments: Moments
    sanitiser: Sanitiser
    biased: bool

    def step(self, broadcast: Broadcast, work: Tree, batch: Batch, coins: Coins) -> tuple[Release, Tree]:
        """Sum squares of all rows."""
        ops = self.moments.ops
        rows = batch.count(ops.xp)
        squares = Squares(moments=self.moments, rows=with_constant(batch.rows, self.biased, ops), batch=batch)
        return Release(update=self.sanitiser.bound_statistic(squares, rows), rows=rows), work
