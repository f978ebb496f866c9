"""Averaging: how the server makes one update of several check-ins.

The mean is Σ factor·weight·update / Σ weight: weights are equal or proportional to the rows behind an update, and the
factor damps what started from an old version. A check-in carries weight·update and weight, so that the sum of several
is folded in like one. Where every check-in is its own commit nothing has to be summed up, and nothing is carried.
"""

from __future__ import annotations

from crowdml.algorithms import staleness
from crowdml.core import Array, Ops, record, trees
from crowdml.core.ops import Tree


@record
class Averaging:
    """The window between two commits.

    Attributes:
        stale: What happens to check-ins that started from an old version.
        alone: True where a commit follows every check-in.
        ops: Array operations.
        shown: What is shown of an average: nothing.
    """

    stale: staleness.Stale
    alone: bool
    ops: Ops
    shown: Tree = ()

    def empty(self, parameters: Tree) -> Tree:
        """Begin a window; `()` where it never holds more than one update."""
        if self.alone:
            return ()
        return {"sum": trees.map(self.ops.xp.zeros_like, parameters), "weight": self.ops.xp.float32(0)}

    def add(self, window: Tree, update: Tree, weight: Array, age: Array) -> Tree:
        """Fold in one update that was already multiplied by its weight (alone it has none)."""
        if self.alone and self.stale != "weight":
            return update
        factor = staleness.factor(self.stale, age, self.ops)
        if self.alone:
            return trees.map(lambda leaf: leaf * factor, update)
        summed = trees.map(lambda total, leaf: total + leaf * factor, window["sum"], update)
        return {"sum": summed, "weight": window["weight"] + self.ops.xp.float32(weight)}

    def mean(self, window: Tree, parameters: Tree) -> tuple[Tree, Tree]:
        """Return the update that the window stands for, and what is to be shown of it: nothing."""
        if self.alone:
            return window, ()
        share = 1 / self.ops.xp.maximum(window["weight"], self.ops.xp.float32(1))
        return trees.map(lambda total: total * share, window["sum"]), ()
