"""A sum rehearsed in one process: all machines, no network, and a script that says who is lost at which stage.

For simulations, measurements and tests; and the shortest way to see how the machines fit together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import CrowdError
from crowdml.core.keys import SigningKey
from crowdml.secure_aggregation.commitments import digest, numbers
from crowdml.secure_aggregation.member_keys import Card, Peer, Peers
from crowdml.secure_aggregation.roster import BroadcastHash
from crowdml.secure_aggregation.stages import CONSENT, HELLO, MASKED, REVEAL, SHARES, STEPS, WrongMail
from crowdml.secure_aggregation.sum_device import SumDevice
from crowdml.secure_aggregation.sum_server import SumServer
from crowdml.secure_aggregation.sum_terms import Sum, SumTerms

NEVER = len(STEPS)
Vectors = Mapping[int, npt.NDArray[np.int64]]


class Members:
    """Keys of devices that have joined a task, made when they are first needed.

    Args:
        task: Name of the task.
    """

    def __init__(self, task: str) -> None:
        self.task = task
        self.cards: dict[int, Card] = {}
        self._joined: dict[int, tuple[SigningKey, Peers]] = {}

    def of(self, slot: int) -> tuple[SigningKey, Peers]:
        """Return a device's identity and what it remembers of others."""
        if slot not in self._joined:
            identity = SigningKey.make()
            self._joined[slot] = identity, Peers(identity, self.task)
        return self._joined[slot]

    def acquaint(self, slot: int) -> None:
        """Let a member know everybody, with stand-ins for what lasting keys agree on: n² agreements take minutes."""
        self.of(slot)[1]._known = Acquaintances(self, slot)


class Acquaintances(dict[int, Peer]):
    """What a member would know of others had it met them before, made when it is asked for."""

    def __init__(self, members: Members, slot: int) -> None:
        self._members, self._slot = members, slot

    def get(self, slot: int, default: Peer | None = None) -> Peer:  # type: ignore[override]
        """Return a peer whose secrets the other has, too."""
        low, high = min(slot, self._slot), max(slot, self._slot)
        agreed = digest(b"rehearsal", self._members.task.encode(), numbers(low, high))
        return Peer(card=self._members.of(slot)[1].card, agreed=agreed, vouching=agreed[::-1])


class Rehearsal:
    """One attempt at a sum.

        Rehearsal(terms, Members("task"), slots=[1, 2, 3], lost={3: 2}).run(vectors)

    Args:
        terms: What is summed.
        members: Everybody's keys.
        slots: Who is invited.
        lost: The step at which a member falls silent, as a number in `stages.STEPS`; whoever is not named stays.
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
        self.terms, self.slots, self.lost = terms, list(slots), dict(lost or {})
        self.server = SumServer(terms, version, attempt, members.cards)
        self._members = members
        shown = BroadcastHash.of(version, b"")
        self.devices = {slot: SumDevice(terms, version, attempt, slot, *members.of(slot), shown) for slot in slots}
        self.bodies: dict[int, bytes] = {}

    def run(self, vectors: Vectors) -> Sum:
        """Go through all stages; `SumAborted` where too few are left."""
        self.greet()
        self.settle()
        self.exchange()
        self.upload(vectors)
        self.agree()
        return self.finish()

    def greet(self) -> None:
        """Let members say hello."""
        self._each(
            HELLO, lambda slot, device: self.server.hello(slot, device.hello(), self._members.of(slot)[0].public)
        )
        self.server.close_hellos()

    def settle(self) -> None:
        """Let members open their parts in the order, until everybody who is left has done so."""
        links, layer, settled = dict[int, bytes | None](), 0, False

        def meet(slot: int, device: SumDevice) -> None:
            links[slot] = device.meet(self.server.roster)

        def open_next(slot: int, device: SumDevice) -> None:
            links[slot] = device.settle(self.server.links(layer))

        self._each("order", meet)
        while not settled:
            for slot, link in links.items():
                if link is not None and slot in self.server.roster.slots:
                    self.server.order(slot, layer, link)
            settled = self.server.close_order()
            links = {}
            self._each("order", open_next)
            layer += 1

    def exchange(self) -> None:
        """Let members share their secrets."""
        self._each(SHARES, lambda slot, device: self.server.shares(slot, device.share()))
        self.server.close_shares()

    def upload(self, vectors: Vectors) -> None:
        """Let members mask their vectors."""

        def act(slot: int, device: SumDevice) -> None:
            try:
                self.bodies[slot] = device.mask(self.server.mail(slot), vectors[slot])
            except WrongMail as error:
                self.server.blame(slot, error.accused)
                raise
            self.server.masked(slot, self.bodies[slot])

        self._each(MASKED, act)
        self.server.close_masked()

    def agree(self) -> None:
        """Let members see who has survived."""

        def act(slot: int, device: SumDevice) -> None:
            self.server.consent(slot, device.consent(self.server.shown_survivors(slot)))

        self._each(CONSENT, act)
        self.server.close_consents()

    def finish(self) -> Sum:
        """Let members reveal shares, and take the masks off."""
        self._each(REVEAL, lambda slot, device: self.server.reveal(slot, device.reveal(self.server.consents(slot))))
        return self.server.finish()

    def _each(self, step: str, act: Callable[[int, SumDevice], None]) -> None:
        """Let everybody act who is still there; whoever's machine gives up is lost from there on."""
        number = STEPS.index(step)
        for slot in [slot for slot in self.slots if self.lost.get(slot, NEVER) > number]:
            try:
                act(slot, self.devices[slot])
            except CrowdError:
                self.lost[slot] = number
