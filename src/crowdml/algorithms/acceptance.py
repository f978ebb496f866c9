"""Acceptance: what an honest device could have sent. Whatever lies beyond is refused before it touches a task.

Integers in sound mode are sums of bounded integers with noise: the limit is what an honest check-in exceeds with
probability 1e-9 at most, at the lowest ε that owners may choose. Numbers that travel in clear are bounded by what a
device can hold. Floats only have to be so small that squares cannot overflow.
"""

from __future__ import annotations

import math

import numpy as np

from crowdml.algorithms.contract import Algorithm
from crowdml.core import record, trees
from crowdml.core.errors import MalformedMessage
from crowdml.core.ops import Array, Tree
from crowdml.privacy import Plan

FALSE_ALARM = 1e-9
LARGEST_FLOAT = 1e15
LARGEST_ROWS = 1 << 24
"""Rows that a device may claim where the task sets no limit: float32 counts them exactly."""


@record
class Range:
    """Smallest and largest value of one part of a check-in."""

    low: float
    high: float


class Acceptance:
    """Checks the values of check-ins of one task.

    Args:
        algorithm: The algorithm.
        plan: Bound and noise.
        example: A check-in, for its parts.
    """

    def __init__(self, algorithm: Algorithm, plan: Plan, example: Tree) -> None:
        """Work out the range of every part."""
        numbers = trees.size(trees.map(np.asarray, example))
        rows = LARGEST_ROWS if algorithm.rounds else algorithm.buffer
        self._ranges = [
            (path, _range(path, np.asarray(leaf), plan, rows, numbers)) for path, leaf in trees.paths(example)
        ]

    def require(self, content: Tree) -> None:
        """Raise `MalformedMessage` for a value beyond its range."""
        for (path, allowed), leaf in zip(self._ranges, trees.leaves(content), strict=True):
            least, most = (leaf.min(), leaf.max()) if leaf.ndim else (leaf.item(),) * 2
            if least < allowed.low or most > allowed.high:
                raise MalformedMessage(f"{path} holds a value that no honest device sends")


def _range(path: str, leaf: Array, plan: Plan, rows: int, numbers: int) -> Range:
    if leaf.dtype.kind == "f":
        return Range(low=-LARGEST_FLOAT, high=LARGEST_FLOAT)
    if path in ("samples", "weight", "counts/rows", "counts/counted"):
        return Range(low=0, high=rows)
    if path in ("counts/errors", "counts/labels"):
        noise = plan.statistics
        scale = (noise.error_scale if path.endswith("errors") else noise.label_scale) if noise else 0.0
        tail = math.ceil(_laplace_tail(scale, numbers)) if scale else 0
        return Range(low=-tail, high=rows + tail)
    if plan.sound is None:
        return Range(low=-(2**31), high=2**31 - 1)
    return _grid_range(plan, rows, numbers)


def _grid_range(plan: Plan, rows: int, numbers: int) -> Range:
    assert plan.sound is not None  # noqa: S101  asked before
    mechanism = plan.sound.update
    many = rows if mechanism.grid.per == "example" else 1
    tail = _laplace_tail(mechanism.scale, numbers) if mechanism.law.pure else _gaussian_tail(mechanism.scale, numbers)
    limit = mechanism.grid.limit
    reach = many * (limit if mechanism.grid.order == 1 else math.isqrt(limit)) + math.ceil(tail)
    return Range(low=-reach, high=reach)


def _laplace_tail(scale: float, numbers: int) -> float:
    """Return what none of so many draws exceeds, but for the false alarms."""
    return scale * math.log(2 * numbers / FALSE_ALARM) + 1


def _gaussian_tail(deviation: float, numbers: int) -> float:
    return deviation * math.sqrt(2 * math.log(2 * numbers / FALSE_ALARM)) + 1
