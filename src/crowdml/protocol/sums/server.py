"""The server's machine of one masked sum: no clock, no network, no files.

It carries messages between members and learns the sum, nothing else. Each stage takes messages until the driver closes
it; what comes later is refused. The same message twice is taken once. A member that breaks the rules is refused and
counts as lost; with too few left the sum is given up.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import record
from crowdml.core.errors import MalformedMessage, NotAuthorised
from crowdml.protocol.sums.errors import LateMessage, SumAborted
from crowdml.protocol.sums.graph import circle, neighbours_of, places_among
from crowdml.protocol.sums.messages import Flags, Hello, Introduction, Items, Roster, Shares, write_card
from crowdml.protocol.sums.packing import unpack, word_type
from crowdml.protocol.sums.recovery import Lost, Recovery
from crowdml.protocol.sums.secrets import AgreementKey, Card, digest
from crowdml.protocol.sums.shamir import are_shares
from crowdml.protocol.sums.terms import SumTerms

STAGES = ("hello", "shares", "masked", "consent", "reveal", "done")


@record
class Sum:
    """What came out.

    Attributes:
        total: The sum, modulo 2^bits, taken between -2^(bits-1) and 2^(bits-1).
        survivors: Slots of those whose vectors are in it.
    """

    total: npt.NDArray[np.int64]
    survivors: tuple[int, ...]


class SumServer:
    """One attempt at a sum.

    Args:
        terms: What is summed.
        version: Version of the task that it is for.
        attempt: Number of the attempt.
        known: Cards that were checked before, by slot; lasts for all sums of a task.
        throwaway: A key to test others with.
    """

    def __init__(
        self,
        terms: SumTerms,
        version: int,
        attempt: int,
        known: dict[int, Card] | None = None,
        throwaway: AgreementKey | None = None,
    ) -> None:
        """Wait for members."""
        self.terms, self.version, self.attempt, self.stage = terms, version, attempt, STAGES[0]
        self._known: dict[int, Card] = {} if known is None else known
        self._test = throwaway or AgreementKey(os.urandom(32))
        self._hellos: dict[int, Hello] = {}
        self._banned: set[int] = set()
        self._keys: set[bytes] = set()
        self._shares: dict[int, Shares] = {}
        self._bodies: dict[int, int] = {}
        self._consents: dict[int, Items] = {}
        self._reveals: dict[int, Items] = {}
        self._total = np.zeros(terms.size, word_type(terms.bits))

    # hello: fresh keys and cards

    def hello(self, slot: int, message: Hello, identity: bytes | None = None) -> None:
        """Take a member in, if it shows the identity that it joined with and a key that is like no other."""
        if self._again("hello", self._hellos, slot, message):
            return
        if slot in self._banned or (identity is not None and message.card.identity != identity):
            raise NotAuthorised("the card is not that of the device that joined")
        if not self._keys.isdisjoint((message.fresh, message.card.identity)):
            raise MalformedMessage("another member has the same key")
        self._test.agree(message.fresh)
        self._test.agree(message.card.lasting)
        if self._known.get(slot) != message.card:
            message.card.require(self.terms.task)
            self._known[slot] = message.card
        if len(self._hellos) >= self.terms.invited:
            raise LateMessage(f"there are {self.terms.invited} members already")
        self._hellos[slot] = message
        self._keys |= {message.fresh, message.card.identity}

    def close_hellos(self) -> Roster:
        """Fix the roster and the graph."""
        self._leave("hello", "shares", len(self._hellos))
        slots = sorted(self._hellos)
        self.roster = Roster(
            version=self.version,
            attempt=self.attempt,
            slots=tuple(slots),
            fresh=tuple(self._hellos[slot].fresh for slot in slots),
        )
        self._context = self.roster.context(self.terms.task)
        self._at = {slot: at for at, slot in enumerate(slots)}
        self.graph = self.terms.graph(len(slots))
        near = neighbours_of(circle(digest(b"circle", self._context), len(slots)), self.graph)
        self._near: list[list[int]] = near.tolist()
        self._place: list[list[int]] = places_among(near).tolist()
        self._written = self.roster.to_bytes()
        return self.roster

    def introduction(self, slot: int) -> Introduction:
        """Introduce a member to its neighbours."""
        near = self._near[self._position(slot)]
        return Introduction(roster=self.roster, cards=tuple(self._hellos[self.roster.slots[at]].card for at in near))

    def introduction_bytes(self, slot: int) -> bytes:
        """Write what introduces a member; the roster is the same for all."""
        near = self._near[self._position(slot)]
        return self._written + b"".join(write_card(self._hellos[self.roster.slots[at]].card) for at in near)

    # shares: sealed for neighbours

    def shares(self, slot: int, message: Shares) -> None:
        """Take a member's sealed shares."""
        self._position(slot)
        if not self._again("shares", self._shares, slot, message):
            self._shares[slot] = message

    def close_shares(self) -> None:
        """Fix who has shared; whoever has not is out, and nobody masks with it."""
        self._leave("shares", "masked", len(self._shares))

    def mail(self, slot: int) -> Items:
        """Return what neighbours have sealed for a member."""
        me = self._position(slot, self._shares)
        found: list[bytes | None] = []
        for at, place in zip(self._near[me], self._place[me], strict=True):
            sender = self._shares.get(self.roster.slots[at])
            found.append(sender.sealed[place] if sender else None)
        return tuple(found)

    # masked: the vectors

    def masked(self, slot: int, body: bytes) -> None:
        """Add a masked vector to the total."""
        self._position(slot, self._shares)
        name = zlib.crc32(body)  # only tells a resend from a mistake: whichever is second is not added
        if self._again("masked", self._bodies, slot, name):
            return
        values = unpack(body, self.terms.size, self.terms.bits)
        self._total += values
        self._bodies[slot] = name

    def close_masked(self) -> Flags:
        """Fix the survivors."""
        self._leave("masked", "consent", len(self._bodies))
        self.survivors = np.array([slot in self._bodies for slot in self.roster.slots])
        return self.survivors

    # consent: everybody has seen the same survivors

    def consent(self, slot: int, tags: Items) -> None:
        """Take a member's tags for its neighbours."""
        self._position(slot, self._bodies)
        if not self._again("consent", self._consents, slot, tags):
            self._consents[slot] = tags

    def close_consents(self) -> None:
        """Fix who has consented."""
        self._leave("consent", "reveal", None)

    def consents(self, slot: int) -> Items:
        """Return what neighbours say of the survivors."""
        me = self._position(slot, self._consents)
        found: list[bytes | None] = []
        for at, place in zip(self._near[me], self._place[me], strict=True):
            tags = self._consents.get(self.roster.slots[at])
            found.append(tags[place] if tags else None)
        return tuple(found)

    # reveal: shares, one kind per member

    def reveal(self, slot: int, shares: Items) -> None:
        """Take one share for each neighbour that has shared; of nobody else, and not of the member itself."""
        me = self._position(slot, self._consents)
        for at, share in zip(self._near[me], shares, strict=True):
            if (share is not None) != (self.roster.slots[at] in self._shares):
                raise MalformedMessage("a share of a member that shared nothing, or none of one that did")
        if not are_shares(b"".join(share for share in shares if share is not None)):
            raise MalformedMessage("a share that no polynomial has")
        if not self._again("reveal", self._reveals, slot, shares):
            self._reveals[slot] = shares

    def finish(self) -> Sum:
        """Recover masks from shares and take them off."""
        self._leave("reveal", "done", None)
        recovery = Recovery(self.terms, self.graph, self._context, self.roster.fresh)
        alive, lost, survivors = list[Lost](), list[Lost](), self.survivors
        commitments = {self._at[slot]: own.commitment for slot, own in self._shares.items()}
        for at in (self._at[slot] for slot in self._shares):
            holders, shares = self._collected(at)
            entry = Lost(
                at=at, holders=holders, shares=shares, near=[other for other in self._near[at] if survivors[other]]
            )
            (alive if survivors[at] else lost).append(entry)
        recovery.remove_own(self._total, alive, commitments)
        recovery.remove_pairs(self._total, lost)
        modulus = 1 << self.terms.bits
        total = (self._total & self._total.dtype.type(modulus - 1)).astype(np.int64)
        total[total >= modulus >> 1] -= modulus
        return Sum(total=total, survivors=tuple(slot for slot in self.roster.slots if slot in self._bodies))

    def waiting(self) -> Collection[int]:
        """Name the members whose messages the present stage waits for."""
        asked: dict[str, tuple[Collection[int], Collection[int]]] = {
            "shares": (self._hellos, self._shares),
            "masked": (self._shares, self._bodies),
            "consent": (self._bodies, self._consents),
            "reveal": (self._consents, self._reveals),
        }
        members, have = asked.get(self.stage, ((), ()))
        return [slot for slot in members if slot not in have]

    def members(self) -> int:
        """Count who has said hello."""
        return len(self._hellos)

    def slots(self) -> Collection[int]:
        """Name who has said hello."""
        return self._hellos.keys()

    def _collected(self, at: int) -> tuple[list[int], list[bytes]]:
        """Collect the shares that neighbours have revealed of a member."""
        holders, shares = [], []
        for holder, place in zip(self._near[at], self._place[at], strict=True):
            items = self._reveals.get(self.roster.slots[holder])
            share = items[place] if items else None
            if share is not None:
                holders.append(holder)
                shares.append(share)
        return holders, shares

    def _position(self, slot: int, among: Collection[int] | None = None) -> int:
        """Return a member's number, or refuse a device that is none, or none any more."""
        if slot not in self._hellos or (among is not None and slot not in among):
            raise NotAuthorised("this device does not take part in the sum, or not any more")
        return self._at[slot] if self.stage != "hello" else -1

    def _again(self, stage: str, held: dict[int, Any], slot: int, message: Any) -> bool:
        """Tell whether a message was taken before; a second one that differs is refused, and one that is late."""
        if slot in held:
            if held[slot] != message:
                if stage == "hello" and self.stage == "hello":
                    del held[slot]
                    self._banned.add(slot)
                raise MalformedMessage(f"another {stage} message than before")
            return True
        if self.stage != stage:
            raise LateMessage(f"{stage} is closed")
        return False

    def _leave(self, stage: str, following: str, left: int | None) -> None:
        if self.stage != stage:
            raise SumAborted(f"{stage} cannot be closed at the stage {self.stage}")
        if left is not None and left < self.terms.least:
            self.stage = "done"
            raise SumAborted(f"{left} members are left after {stage}, {self.terms.least} are needed")
        self.stage = following
