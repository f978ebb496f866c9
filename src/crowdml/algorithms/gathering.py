"""Gathering: a window that keeps every check-in by itself until a version is made of them.

Where an average asks who sent what (robust rules, learned weights) a sum is not enough. The window is a matrix with one
line per check-in, filled from the top, and their weights; a line of weight 0 is empty. It has the same three functions
as the window of sums in `averaging`, so that the server's half does not see the difference.
"""

from __future__ import annotations

from collections.abc import Callable

from crowdml.algorithms import staleness
from crowdml.algorithms.attacks import Attack
from crowdml.core import Array, Ops, record, trees
from crowdml.core.ops import Tree

Combine = Callable[[Array, Array, Array], tuple[Array, Tree]]
"""`combine(updates, weights, parameters)`: one update, and what is to be shown of how it came about."""


@record
class Gathering:
    """The window between two commits, line by line.

    Attributes:
        together: Lines: check-ins per commit at most.
        stale: What happens to check-ins that started from an old version.
        combine: Makes one update of all lines.
        shown: What is to be shown before the first commit; `()` if nothing ever is.
        attack: What devices that lie do to the window, in simulation.
        ops: Array operations.
        alone: Never: there is something to compare.
    """

    together: int
    stale: staleness.Stale
    combine: Combine
    shown: Tree
    attack: Attack | None
    ops: Ops
    alone: bool = False

    def empty(self, parameters: Tree) -> Tree:
        """Begin a window."""
        xp, size = self.ops.xp, sum(leaf.size for leaf in trees.leaves(parameters))
        window = {
            "updates": xp.zeros((self.together, size), dtype=xp.float32),
            "weights": xp.zeros(self.together, dtype=xp.float32),
            "filled": xp.int32(0),
        }
        return window | ({"lies": xp.zeros(self.together, dtype=bool)} if self.attack else {})

    def add(self, window: Tree, update: Tree, weight: Array, age: Array, forged: Tree | None = None) -> Tree:
        """Fill the next line with an update that was already multiplied by its weight.

        Args:
            window: The window.
            update: The update times its weight.
            weight: The weight.
            age: How many versions old it is.
            forged: Whether the sender lies, and what it sends instead; in simulation only.
        """
        xp = self.ops.xp
        weight = xp.float32(weight)
        factor = staleness.factor(self.stale, age, self.ops) / xp.maximum(weight, xp.float32(1))
        line = trees.joined(update, self.ops) * factor
        here = xp.arange(self.together) == window["filled"]
        if forged is not None and "noise" in forged:
            line = xp.where(forged["lies"], forged["noise"], line)
        after = {
            "updates": xp.where(here[:, None], line[None], window["updates"]),
            "weights": xp.where(here, weight, window["weights"]),
            "filled": window["filled"] + xp.int32(1),
        }
        if self.attack:
            lies = xp.bool_(False) if forged is None else forged["lies"]
            after["lies"] = xp.where(here, lies, window["lies"])
        return after

    def mean(self, window: Tree, parameters: Tree) -> tuple[Tree, Tree]:
        """Return the update that the window stands for, and what is to be shown of it."""
        updates, weights, at = window["updates"], window["weights"], trees.joined(parameters, self.ops)
        if self.attack and self.attack.rewrite:
            honest = (weights > 0) & ~window["lies"]
            updates = self.attack.rewrite(
                updates, honest, window["lies"], lambda tried: self.combine(tried, weights, at)[0]
            )
        update, shown = self.combine(updates, weights, at)
        # NumPy widens where whole numbers meet float32, and the state's layout is fixed.
        return trees.cut(update.astype(self.ops.xp.float32), parameters), shown
