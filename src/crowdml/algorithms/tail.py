"""Tail: the mean of all versions from one on. It is made of what is public, so it costs nothing."""

from __future__ import annotations

from dataclasses import replace

from crowdml.algorithms.contract import Algorithm
from crowdml.core import Array, Coins, Ops, record, trees
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


def averaged(algorithm: Algorithm, tail: Tail) -> Algorithm:
    """Make the tail the model of an algorithm that knows nothing of it; devices still begin with the last version."""
    if tail.begin is None:
        return algorithm
    totals, shown, one = algorithm.totals, algorithm.shown, tail.ops.xp.int32(1)

    def init(coins: Coins) -> Tree:
        server = algorithm.init(coins)
        return {"server": server, "version": tail.ops.xp.int32(0), "tail": tail.empty(algorithm.parameters(server))}

    def absorb(state: Tree, row: Tree, check_in: Tree, stale: Array) -> tuple[Tree, Tree]:
        server, row = algorithm.absorb(state["server"], row, check_in, stale)
        return state | {"server": server}, row

    def commit(state: Tree) -> tuple[Tree, Tree]:
        server, measured = algorithm.commit(state["server"])
        version = state["version"] + one
        mean = tail.add(state["tail"], algorithm.parameters(server), version)
        return {"server": server, "version": version, "tail": mean}, measured

    return replace(
        algorithm,
        init=init,
        check_out=lambda state: algorithm.check_out(state["server"]),
        absorb=absorb,
        commit=commit,
        parameters=lambda state: state["tail"]["mean"],
        totals=(lambda state: totals(state["server"])) if totals else None,
        shown=(lambda state: shown(state["server"])) if shown else None,
        succession=None,
    )
