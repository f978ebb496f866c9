"""What a robust rule is: it makes one update of several check-ins, some of which may lie.

A rule sees the window of a version as a matrix, one line per check-in, and a weight for each line; lines of weight 0
are empty. Rules are pure functions over `ops`, so that simulation and live server share them.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import ClassVar

from crowdml.core import Array, Ops, Settings

Rule = Callable[[Array, Array, Array], Array]
"""`rule(updates, weights, root)`: one update of shape (size,), from updates of shape (check-ins, size), weights of
shape (check-ins,), and what the public rows say, of shape (size,); that is empty where a rule does not ask for it."""


class RuleSettings(Settings):
    """The interface of all rules. A leaf class is final."""

    kind: str
    needs_root: ClassVar[bool] = False
    """Whether it asks for public rows."""

    classical: ClassVar[bool] = False
    """Whether it takes what most devices say for true, and so fails where honest devices differ much."""

    @abc.abstractmethod
    def build(self, ops: Ops) -> Rule:
        """Make the rule."""


def weighted_mean(updates: Array, weights: Array, ops: Ops) -> Array:
    """Return Σ weight·update / Σ weight; zero where nothing has weight."""
    xp = ops.xp
    total = xp.sum(weights)
    share = weights / xp.where(total > 0, total, xp.float32(1))
    return ops.dot(share[None], updates)[0]


def lengths(updates: Array, ops: Ops) -> Array:
    """Return the L2 norm of each line."""
    return ops.xp.sqrt(ops.xp.sum(updates * updates, axis=1))


def median(values: Array, present: Array, ops: Ops) -> Array:
    """Return the median along the first axis of those lines that are present."""
    xp = ops.xp
    ordered, count = in_order(values, present, ops)
    return (ordered[xp.maximum(count - 1, 0) // 2] + ordered[count // 2]) * xp.float32(0.5)


def in_order(values: Array, present: Array, ops: Ops) -> tuple[Array, Array]:
    """Sort along the first axis, empty lines last, and count the lines that are present."""
    xp = ops.xp
    there = present.reshape(-1, *[1] * (values.ndim - 1))
    return xp.sort(xp.where(there, values, xp.float32(xp.inf)), axis=0), xp.sum(present)


def shortened(updates: Array, bound: Array, ops: Ops) -> Array:
    """Bring lines that are longer than the bound down to it."""
    xp = ops.xp
    factors = xp.minimum(xp.float32(1), bound / xp.maximum(lengths(updates, ops), xp.float32(1e-18)))
    return updates * factors[:, None]
