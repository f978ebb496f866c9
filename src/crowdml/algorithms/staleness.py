"""Staleness rules: what happens to a check-in that started from an old version.

accept   use it like any other
drop     use it only if it started from the current version (Crowd-ML library 2016)
weight   use it with factor (1 + staleness)^(-1/2)

Whatever the rule, one older than `max-staleness` is not used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from crowdml.core import Array, Ops

Stale = Literal["accept", "drop", "weight"]


def accepts(rule: Stale, max_staleness: int) -> Callable[[int], bool]:
    """Return whether a check-in of this staleness is used at all. Public integers only: drivers decide by it."""
    limit = 0 if rule == "drop" else max_staleness
    return lambda staleness: staleness <= limit


def factor(rule: Stale, staleness: Array, ops: Ops) -> Array:
    """Return the weight of a check-in that is used."""
    if rule != "weight":
        return ops.xp.float32(1)
    return (1 + ops.xp.float32(staleness)) ** ops.xp.float32(-0.5)
