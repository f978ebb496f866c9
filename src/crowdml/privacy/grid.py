"""The grid: bounded vectors become integers, and the integers are checked.

A vector of norm at most C is scaled so that C becomes L levels, and every coordinate is rounded up or down at random,
so that its mean stays what it was. Rounding can make a vector longer; so the *integers* are checked:

- L2: ‖k‖² ≤ L² + L + ⌊d/4⌋. Rounding adds Σf(1 - f) ≤ d/4 to ‖x‖² in the mean, with a deviation near L at most.
- L1: ‖k‖₁ ≤ L + ⌈√d⌉. Rounding leaves ‖x‖₁ in the mean, with a deviation of at most √d/2.

A vector that is too long is rounded again, up to ten times; then it is cut toward zero; and if it is still too long,
which only a vector can be that was not bounded before, it becomes zero. Coordinates that are not numbers become zero.

A *fine* grid (L2 only) has so many levels that the limit ‖k‖ ≤ L + √d + 1 costs next to nothing. No bounded vector is
ever too long for it, so the coins used do not depend on the vector, and rounding is a function of each coordinate that
never moves two numbers apart by more than one level: close vectors stay close, ‖k - k'‖ ≤ ‖x - x'‖ + √d.

Guarantee: whatever floating-point arithmetic did before, every vector of integers that leaves `round_checked` obeys
the limit. So replacing one of them (one example, or one whole release) changes a sum of them by at most twice the
limit's norm, and that is the sensitivity which noise and ledger use. The coins of a vector are its own: for any values
of all other coins the two sums are that close, so every divergence that is quasi-convex keeps its bound on average.
"""

from __future__ import annotations

import math
from typing import Literal

from crowdml.core import Array, GridCoins, Ops, record

Per = Literal["example", "release"]

TRIES = 10


@record
class Grid:
    """A bound on integers.

    Attributes:
        order: The norm, 1 or 2.
        size: Coordinates of a vector.
        radius: No vector is longer than this before it is rounded.
        levels: Levels that make up the radius, L.
        limit: Largest ‖k‖₁, or largest ‖k‖² for order 2.
        per: What is bounded: each example's vector, or the release as a whole.
        apart: Square of the largest distance between two vectors that obey the limit, in levels, where less than twice
            its norm is proven; None elsewhere.
    """

    order: int
    size: int
    radius: float
    levels: int
    limit: int
    per: Per
    apart: int | None = None

    @property
    def step(self) -> float:
        """Length of one level: the server multiplies by it."""
        return self.radius / self.levels

    @property
    def sensitivity_squared(self) -> int:
        """Square of the largest change of a sum when one vector is replaced, in levels."""
        if self.apart is not None:
            return self.apart
        return 4 * (self.limit if self.order == 2 else self.limit**2)

    @property
    def sensitivity(self) -> float:
        """Largest change of a sum when one vector is replaced, in levels, rounded up."""
        return 2.0 * self.limit if self.order == 1 else math.nextafter(math.sqrt(self.sensitivity_squared), math.inf)


FINEST = 1 << 15
"""Levels of a fine grid at most, so that squares still add up in 32 bits."""


def make_fine_grid(size: int, radius: float) -> Grid:
    """Make a grid for whole messages on which close vectors stay close; √d is at most a percent of L up to d = 100,000.

    >>> make_fine_grid(640, 1.0).levels
    8192
    """
    root = math.isqrt(size - 1) + 1
    levels = 64
    while levels < min(256 * root, FINEST):
        levels *= 2
    return Grid(order=2, size=size, radius=radius, levels=levels, limit=(levels + root + 1) ** 2, per="release")


def make_grid(order: int, size: int, radius: float, per: Per) -> Grid:
    """Choose the levels: fine enough that the headroom costs a percent or two, a power of two.

    >>> make_grid(2, 640, 1.0, "example").levels, make_grid(1, 640, 1.0, "example").levels
    (128, 2048)
    """
    root = math.isqrt(size - 1) + 1
    levels = 64
    while levels < (3.3 * math.sqrt(size) if order == 2 else 64 * math.sqrt(size)):
        levels *= 2
    limit = levels + root if order == 1 else levels**2 + levels + size // 4
    return Grid(order=order, size=size, radius=radius, levels=levels, limit=limit, per=per)


def to_levels(grid: Grid, vectors: Array, ops: Ops) -> Array:
    """Scale vectors of shape (count, size) to levels and clip each to the radius; floats still, of the same type."""
    xp = ops.xp
    # In single precision the factor itself would be off, and by half for a radius of 1e49.
    x = vectors * xp.asarray(grid.levels / grid.radius, dtype=vectors.dtype)
    x = xp.where(xp.isfinite(x), x, xp.float32(0))
    norms = xp.sum(xp.abs(x), axis=1) if grid.order == 1 else xp.sqrt(xp.sum(x * x, axis=1))
    return x * (xp.float32(grid.levels) / xp.maximum(norms, xp.float32(grid.levels)))[:, None]


def round_checked(grid: Grid, x: Array, coins: GridCoins, stage: str, ops: Ops) -> Array:
    """Round vectors of shape (count, size) to integers that obey the limit, int32."""
    xp = ops.xp
    x = xp.clip(xp.where(xp.isfinite(x), x, xp.float32(0)), -float(grid.levels), float(grid.levels))

    def again(state: tuple[Array, Array]) -> tuple[Array, Array]:
        number, k = state
        fresh = _rounded(x, coins.retry(number).uniform(stage, x.shape), xp)
        return number + xp.int32(1), xp.where(_over(grid, k, xp)[:, None], fresh, k)

    def unfinished(state: tuple[Array, Array]) -> Array:
        number, k = state
        return (number < TRIES) & xp.any(_over(grid, k, xp))

    first = _rounded(x, coins.uniform(stage, x.shape), xp)
    _, k = ops.repeat(unfinished, again, (xp.int32(1), first))
    cut = xp.trunc(x).astype(xp.int32)
    k = xp.where(_over(grid, k, xp)[:, None], cut, k)
    return xp.where(_over(grid, k, xp)[:, None], xp.int32(0), k)


def _rounded(x: Array, uniform: Array, xp: Array) -> Array:
    """Round up with the probability of the fraction."""
    down = xp.floor(x)
    return down.astype(xp.int32) + (uniform < x - down).astype(xp.int32)


def _over(grid: Grid, k: Array, xp: Array) -> Array:
    """Tell which vectors of integers are too long. NumPy adds up in 64 bits."""
    return (xp.sum(xp.abs(k), axis=1) if grid.order == 1 else xp.sum(k * k, axis=1)) > grid.limit
