"""Shared rounds: a single trial in several processes, each of which does the work of some devices of every round.

Every process has the server's state. In a round each works for its part of the devices, sends what they check in to all
others, and absorbs all check-ins in their order: so all have the same next version. That needs rounds whose devices
start from the version there is and remember nothing; a round is as long as its longest part, and 3 MB through a socket.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from crowdml.core import Array
from crowdml.simulation.engine.data_tables import DataTables
from crowdml.simulation.engine.lane import Lane
from crowdml.simulation.engine.run_records import Events, Replicas, Shape
from crowdml.simulation.workers import frames
from crowdml.task import Task


class SharedLane(Lane):
    """One member's part of a single replica.

    Args:
        task: The task.
        tables: Rows and targets.
        replicas: Hyper-parameters and seed of the one replica.
        events: One chunk, for its shape.
        shape: What else a program is compiled for.
        member: Which of the processes this is.
        peers: Sockets to all others, in their order.
    """

    def __init__(
        self,
        task: Task,
        tables: DataTables,
        replicas: Replicas,
        events: Events,
        shape: Shape,
        member: int,
        peers: Sequence[socket.socket],
    ) -> None:
        super().__init__(task, tables, replicas, events, shape)
        self.shape, self.member, self.peers = shape, member, list(peers)

    def run(self, events: Events, counts: Array, phase: int) -> tuple[dict[str, Any], bool]:
        """Run a chunk; the first member measures."""
        size, part = self.shape.per_commit, self.shape.part
        for begin in range(0, int(counts[0]), size):
            # The last part may be shorter; then its last devices work twice, and one of the two counts.
            places = begin + np.minimum(np.arange(part) + self.member * part, size - 1)
            ours = jax.tree.map(lambda leaf, at=places: leaf[:, at], events)
            mine = self.program.contribute(self.replicas, self.carry, ours, phase)
            everybody = self._exchange(jax.tree.map(np.asarray, mine))
            check_ins = jax.tree.map(lambda *parts: np.concatenate(parts)[:size], *everybody)
            staleness = np.asarray(events.staleness)[0, begin : begin + size]
            self.carry = self.program.fold(self.replicas, self.carry, check_ins, staleness, phase)
        if self.member:
            return {}, False
        return self._measured(), False

    def _exchange(self, mine: Any) -> list[Any]:
        """Send our part to everybody and receive theirs, at once: no side waits for the other to read."""
        leaves, structure = jax.tree.flatten(mine)

        def tell() -> None:
            with contextlib.suppress(ConnectionError):  # whoever is gone is missed where we receive
                for peer in self.peers:
                    frames.send(peer, {}, leaves)

        sending = threading.Thread(target=tell)
        sending.start()
        theirs = [jax.tree.unflatten(structure, frames.receive(peer).tree) for peer in self.peers]
        sending.join()
        return [*theirs[: self.member], mine, *theirs[self.member :]]
