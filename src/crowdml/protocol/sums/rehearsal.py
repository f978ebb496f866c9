"""A sum rehearsed in one process: all machines, no network, and a script that says who is lost at which stage.

For simulations, measurements and tests; and the shortest way to see how the machines fit together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import CrowdError
from crowdml.protocol.keys import SigningKey
from crowdml.protocol.sums.device import SumDevice
from crowdml.protocol.sums.peers import Peers
from crowdml.protocol.sums.secrets import Card
from crowdml.protocol.sums.server import Sum, SumServer
from crowdml.protocol.sums.terms import SumTerms

STAGES = ("hello", "shares", "masked", "consent", "reveal")
NEVER = len(STAGES)
Vectors = Mapping[int, npt.NDArray[np.int64]]


class Members:
    """Keys of devices that have joined a task, made when they are first needed.

    Args:
        task: Name of the task.
    """

    def __init__(self, task: str) -> None:
        """Nobody has joined."""
        self.task = task
        self.cards: dict[int, Card] = {}
        self._joined: dict[int, tuple[SigningKey, Peers]] = {}

    def of(self, slot: int) -> tuple[SigningKey, Peers]:
        """Return a device's identity and what it remembers of others."""
        if slot not in self._joined:
            identity = SigningKey.make()
            self._joined[slot] = identity, Peers(identity, self.task)
        return self._joined[slot]


class Rehearsal:
    """One attempt at a sum.

        Rehearsal(terms, Members("task"), slots=[1, 2, 3], lost={3: 2}).run(vectors)

    Args:
        terms: What is summed.
        members: Everybody's keys.
        slots: Who is invited.
        lost: The stage at which a member falls silent, as a number in `STAGES`; whoever is not named stays.
        version: Version of the task.
        attempt: Number of the attempt.
    """

    def __init__(
        self,
        terms: SumTerms,
        members: Members,
        slots: Sequence[int],
        lost: Mapping[int, int] | None = None,
        version: int = 0,
        attempt: int = 1,
    ) -> None:
        """Let every machine begin."""
        self.terms, self.slots, self.lost = terms, list(slots), dict(lost or {})
        self.server = SumServer(terms, version, attempt, members.cards)
        self._members = members
        self.devices = {slot: SumDevice(terms, version, attempt, slot, *members.of(slot)) for slot in slots}
        self.bodies: dict[int, bytes] = {}

    def run(self, vectors: Vectors) -> Sum:
        """Go through all stages; `SumAborted` where too few are left."""
        self.greet()
        self.exchange()
        self.upload(vectors)
        self.agree()
        return self.finish()

    def greet(self) -> None:
        """Let members say hello."""
        self._each("hello", lambda slot, own: self.server.hello(slot, own.hello(), self._members.of(slot)[0].public))
        self.server.close_hellos()

    def exchange(self) -> None:
        """Let members share their secrets."""
        self._each("shares", lambda slot, own: self.server.shares(slot, own.share(self.server.introduction(slot))))
        self.server.close_shares()

    def upload(self, vectors: Vectors) -> None:
        """Let members mask their vectors."""

        def act(slot: int, own: SumDevice) -> None:
            self.bodies[slot] = own.mask(self.server.mail(slot), vectors[slot])
            self.server.masked(slot, self.bodies[slot])

        self._each("masked", act)
        self.server.close_masked()

    def agree(self) -> None:
        """Let members see who has survived."""
        survivors = self.server.survivors
        self._each("consent", lambda slot, own: self.server.consent(slot, own.consent(survivors)))
        self.server.close_consents()

    def finish(self) -> Sum:
        """Let members reveal shares, and take the masks off."""
        self._each("reveal", lambda slot, own: self.server.reveal(slot, own.reveal(self.server.consents(slot))))
        return self.server.finish()

    def _each(self, stage: str, act: Callable[[int, SumDevice], None]) -> None:
        """Let everybody act who is still there; whoever's machine gives up is lost from there on."""
        number = STAGES.index(stage)
        for slot in [slot for slot in self.slots if self.lost.get(slot, NEVER) > number]:
            try:
                act(slot, self.devices[slot])
            except CrowdError:
                self.lost[slot] = number
