"""Minimising on the server: Adam on all rows at once, for a few numbers or for a whole model."""

from __future__ import annotations

from collections.abc import Callable

from crowdml.core import Array, Ops

FIRST, SECOND = 0.9, 0.999


def minimise(gradient: Callable[[Array], Array], start: Array, steps: int, rate: float, ops: Ops) -> Array:
    """Take Adam's steps (Kingma and Ba, 2015) from `start`; `gradient(point)` has the point's shape."""
    xp = ops.xp

    def step(carry: tuple[Array, Array, Array], count: Array) -> tuple[Array, Array, Array]:
        point, mean, square = carry
        slope = gradient(point)
        mean = xp.float32(FIRST) * mean + xp.float32(1 - FIRST) * slope
        square = xp.float32(SECOND) * square + xp.float32(1 - SECOND) * slope * slope
        first = mean / (1 - xp.float32(FIRST) ** count)
        second = square / (1 - xp.float32(SECOND) ** count)
        return point - xp.float32(rate) * first / (xp.sqrt(second) + xp.float32(1e-8)), mean, square

    counts = xp.arange(1, steps + 1).astype(xp.float32)
    return ops.fold(step, (start, xp.zeros_like(start), xp.zeros_like(start)), counts)[0]
