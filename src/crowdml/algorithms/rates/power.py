"""Rates that depend on the count alone: c, c/t and c/√t."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from crowdml.algorithms.rates.contract import Rate, RateSettings
from crowdml.core import Array, Ops, trees
from crowdml.core.ops import Tree


def by_count(factor: Callable[[Array], Array]) -> Rate:
    """Make a rate that multiplies the update by `factor(count)` and remembers nothing."""

    def step(memory: Tree, update: Tree, count: Array) -> tuple[Tree, Tree]:
        eta = factor(count)
        return trees.map(lambda leaf: leaf * eta, update), memory

    return Rate(init=lambda parameters: (), step=step, factor=factor)


class PowerSettings(RateSettings):
    """Rates that never exceed c, since counts start at 1."""

    @property
    def steepest(self) -> float | None:
        """Return c."""
        return self.c


class Constant(PowerSettings):
    """η = c."""

    kind: Literal["constant"] = "constant"

    def build(self, c: Array, ops: Ops) -> Rate:
        """Make the rate."""
        return by_count(lambda count: c)


class Inverse(PowerSettings):
    """η = c / t."""

    kind: Literal["inverse"] = "inverse"

    def build(self, c: Array, ops: Ops) -> Rate:
        """Make the rate."""
        return by_count(lambda count: c / ops.xp.float32(count))


class InverseSqrt(PowerSettings):
    """η = c / √t (Crowd-ML 2015, equation 5)."""

    kind: Literal["inverse-sqrt"] = "inverse-sqrt"

    def build(self, c: Array, ops: Ops) -> Rate:
        """Make the rate."""
        return by_count(lambda count: c / ops.xp.sqrt(ops.xp.float32(count)))
