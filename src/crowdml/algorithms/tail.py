"""Tail: the mean of all versions from one on. It is made of what is public, so it costs nothing."""

from __future__ import annotations

from crowdml.core import Array, Ops, record, trees
from crowdml.core.ops import Tree


@record
class Tail:
    """A mean that a server keeps beside its parameters.

    Attributes:
        begin: First version that enters; None where the last version is the model.
        ops: Array operations.
    """

    begin: int | None
    ops: Ops

    def empty(self, like: Tree) -> Tree:
        """Begin; `()` where nothing is to be remembered."""
        return () if self.begin is None else {"mean": like, "count": self.ops.xp.float32(0)}

    def add(self, tail: Tree, parameters: Tree, version: Array) -> Tree:
        """Take in a version; until the first one that enters, the mean is the last one."""
        if self.begin is None:
            return tail
        count = tail["count"] + (version >= self.begin).astype(self.ops.xp.float32)
        share = 1 / self.ops.xp.maximum(count, self.ops.xp.float32(1))
        return {"mean": trees.map(lambda old, new: old + (new - old) * share, tail["mean"], parameters), "count": count}
