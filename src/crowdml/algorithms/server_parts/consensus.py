"""consensus: the server's half of ADMM. Messages are increments (the paper's), or relative to a public version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from crowdml.algorithms.contract import ServerPart
from crowdml.algorithms.server_parts.step import Tail
from crowdml.core import Array, CheckIn, Coins, Ops, Report, Tree, record, tree_record, trees
from crowdml.privacy.sanitisers import Sanitiser


@tree_record
class ConsensusState:
    """The server's state.

    Attributes:
        parameters: The model.
        source: What it is made of: a running mean, or past versions in a ring.
        version: Commits so far.
        tail: The mean of versions, or `()`.
        window: Sum of messages since the last commit.
        heard: How many they are, or `()`.
    """

    parameters: Tree
    source: Tree
    version: Array
    tail: Tree
    window: Tree
    heard: Tree


@record
class _Consensus(ServerPart):
    """What both kinds have in common.

    Attributes:
        model: First parameters.
        sanitiser: Reads check-ins.
        regularised: `regularised(mean)`: equation (11).
        devices: Devices that take part.
        tail: The mean of versions.
        ops: Array operations.
    """

    model: Any
    sanitiser: Sanitiser
    regularised: Callable[[Tree], Tree]
    devices: int
    tail: Tail
    ops: Ops

    def report(self, server: ConsensusState) -> Report:
        """Show the model, or the mean of its last versions."""
        return Report(parameters=self.tail.model(server.tail, server.parameters))


@record
class Increments(_Consensus):
    """w̄ + λ̄ as a running sum of increments; equation (11) makes the model of it (algorithm 2)."""

    def init(self, coins: Coins) -> ConsensusState:
        """Begin with a mean of zero."""
        zero = self.model.zeros()
        return ConsensusState(
            parameters=self.model.init(coins),
            source=zero,
            version=self.ops.xp.int32(0),
            tail=self.tail.empty(zero),
            window=zero,
            heard=(),
        )

    def absorb(self, server: ConsensusState, row: Tree, check_in: CheckIn, staleness: Array) -> tuple[Tree, Tree]:
        """Add an increment."""
        update, _ = self.sanitiser.read(check_in, lambda: None)
        return replace(server, window=trees.map(lambda total, leaf: total + leaf, server.window, update)), row

    def commit(self, server: ConsensusState) -> tuple[Tree, Tree]:
        """Take the mean over all devices, also those that were not heard."""
        mean = trees.map(lambda old, new: old + new / self.devices, server.source, server.window)
        new, version = self.regularised(mean), server.version + self.ops.xp.int32(1)
        tail = self.tail.add(server.tail, new, version)
        return ConsensusState(
            parameters=new, source=mean, version=version, tail=tail, window=self.model.zeros(), heard=()
        ), {}


@record
class Relative(_Consensus):
    """Vectors relative to the version that a device began with; those not heard are where the model is.

    Attributes:
        kept: Past versions that are kept.
    """

    kept: int

    def init(self, coins: Coins) -> ConsensusState:
        """Begin with the first parameters in every place of the ring."""
        xp, first = self.ops.xp, self.model.init(coins)
        return ConsensusState(
            parameters=first,
            source=trees.map(lambda leaf: xp.stack([leaf] * self.kept), first),
            version=xp.int32(0),
            tail=self.tail.empty(first),
            window=self.model.zeros(),
            heard=xp.float32(0),
        )

    def absorb(self, server: ConsensusState, row: Tree, check_in: CheckIn, staleness: Array) -> tuple[Tree, Tree]:
        """Add a message to the version that its device began with.

        Members of a secure sum may have begun with different versions: then their mean stands for each.
        """
        xp = self.ops.xp
        began = (server.version - xp.atleast_1d(staleness)) % self.kept
        read = trees.map(lambda leaf: xp.mean(xp.take(leaf, began, axis=0), axis=0), server.source)
        message, weight = self.sanitiser.read(check_in, lambda: None)
        # A sum of several says how many they are.
        weight = weight.astype(xp.float32)
        window = trees.map(lambda total, leaf, base: total + leaf + weight * base, server.window, message, read)
        return replace(server, window=window, heard=server.heard + weight), row

    def commit(self, server: ConsensusState) -> tuple[Tree, Tree]:
        """Move towards what was heard, by the share of the crowd that it is."""
        xp, share = self.ops.xp, server.heard / self.devices
        mean = trees.map(lambda total: total / xp.maximum(server.heard, xp.float32(1)), server.window)
        # Those who were not heard are taken to be where the model is: then what they would say needs no memory.
        new = trees.map(lambda old, heard: old + share * (heard - old), server.parameters, self.regularised(mean))
        version = server.version + xp.int32(1)
        past = trees.map(lambda ring, leaf: _put(ring, version % self.kept, leaf, xp), server.source, new)
        return ConsensusState(
            parameters=new,
            source=past,
            version=version,
            tail=self.tail.add(server.tail, new, version),
            window=self.model.zeros(),
            heard=xp.float32(0),
        ), {}


def _put(ring: Array, slot: Array, leaf: Array, xp: Any) -> Array:
    here = (xp.arange(len(ring)) == slot).reshape(-1, *[1] * leaf.ndim)
    return xp.where(here, leaf[None], ring)
