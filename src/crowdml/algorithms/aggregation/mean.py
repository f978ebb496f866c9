"""The mean of a window of check-ins, and what happens to those that started from an old version.

The mean is Σ factor·weight·update / Σ weight: weights are equal or proportional to the rows behind an update, and the
factor damps what started from an old version. A check-in carries weight·update and weight, so that the sum of several
is folded in like one. Where every check-in is its own commit nothing has to be summed up, and nothing is carried.

accept   use it like any other
drop     use it only if it started from the current version (Crowd-ML library 2016)
weight   use it with factor (1 + staleness)^(-1/2)
"""

from __future__ import annotations

from typing import Literal

from crowdml.core import Array, Ops, Tree, record, tree_record, trees

Stale = Literal["accept", "drop", "weight"]


def staleness_factor(rule: Stale, staleness: Array, ops: Ops) -> Array:
    """Return the weight of a check-in that is used."""
    if rule != "weight":
        return ops.xp.float32(1)
    return (1 + ops.xp.float32(staleness)) ** ops.xp.float32(-0.5)


@tree_record
class WeightedSum:
    """Σ factor·weight·update, and Σ weight."""

    total: Tree
    weight: Array


@record
class MeanWindow:
    """The window between two commits, as a sum.

    Attributes:
        stale: What happens to check-ins that started from an old version.
        alone: True where a commit follows every check-in.
        ops: Array operations.
        shown: What is shown of a mean: nothing.
    """

    stale: Stale
    alone: bool
    ops: Ops
    shown: Tree = ()

    def empty(self, parameters: Tree) -> Tree:
        """Begin a window; `()` where it never holds more than one update."""
        if self.alone:
            return ()
        return WeightedSum(total=trees.map(self.ops.xp.zeros_like, parameters), weight=self.ops.xp.float32(0))

    def add(self, window: Tree, update: Tree, weight: Array, age: Array) -> Tree:
        """Fold in one update that was already multiplied by its weight (alone it has none)."""
        if self.alone and self.stale != "weight":
            return update
        damping = staleness_factor(self.stale, age, self.ops)
        if self.alone:
            return trees.map(lambda leaf: leaf * damping, update)
        summed = trees.map(lambda total, leaf: total + leaf * damping, window.total, update)
        return WeightedSum(total=summed, weight=window.weight + self.ops.xp.float32(weight))

    def mean(self, window: Tree, parameters: Tree) -> tuple[Tree, Tree]:
        """Return the update that the window stands for, and what is to be shown of it: nothing."""
        if self.alone:
            return window, ()
        share = 1 / self.ops.xp.maximum(window.weight, self.ops.xp.float32(1))
        return trees.map(lambda total: total * share, window.total), ()
