"""The server's machine of one sum: no clock, no network, no files.

It carries messages between members and learns the sum, nothing else. Each stage takes messages until the driver closes
it; what comes later is refused. The same message twice is taken once. A member that breaks the rules is refused and
counts as lost; with too few left the sum is given up.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import record
from crowdml.core.errors import MalformedMessage, NotAuthorised
from crowdml.protocol.sums.errors import LateMessage, SumAborted
from crowdml.protocol.sums.graph import circle, neighbours_of, places_among
from crowdml.protocol.sums.hashing import MARK_BYTES, TAG_BYTES, digest, mark
from crowdml.protocol.sums.messages import (
    ORDER,
    SEALED_BYTES,
    Consents,
    Flags,
    Hello,
    Items,
    Mail,
    Shares,
    Survivors,
    cut_tags,
)
from crowdml.protocol.sums.order import LAYERS, is_link, seed_of
from crowdml.protocol.sums.packing import unpack, word_type
from crowdml.protocol.sums.recovery import Recovery, Secret
from crowdml.protocol.sums.roster import Broadcast, Roster
from crowdml.protocol.sums.secrets import AgreementKey, Card, require_canonical
from crowdml.protocol.sums.shamir import are_shares
from crowdml.protocol.sums.terms import SumTerms


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
        broadcasts: Hashes of what was sent, by version; whichever is missing is what the first member says.

    Attributes:
        guilty: Slots of members that are proven to have dealt or revealed wrong shares.
        blames: By slot, whom a member accuses of wrong mail or tags; either of the two is corrupt.
    """

    def __init__(
        self,
        terms: SumTerms,
        version: int,
        attempt: int,
        known: dict[int, Card] | None = None,
        broadcasts: dict[int, bytes] | None = None,
    ) -> None:
        """Wait for members."""
        self.terms, self.version, self.attempt, self.stage = terms, version, attempt, "hello"
        self._known: dict[int, Card] = {} if known is None else known
        self._broadcasts = dict(broadcasts or {})
        self._test = AgreementKey(os.urandom(32))
        self._hellos: dict[int, Hello] = {}
        self._started: dict[int, int] = {}
        self._banned: set[int] = set()
        self._keys: set[bytes] = set()
        self._layer, self._links = 0, dict[int, bytes]()
        self._opened: list[Items] = []
        self._shares: dict[int, Shares] = {}
        self._bodies: dict[int, int] = {}
        self._tags: dict[int, list[bytes]] = {}
        self._consents: dict[int, bytes] = {}
        self._reveals: dict[int, Items] = {}
        self._total = np.zeros(terms.size, word_type(terms.bits))
        self.guilty: set[int] = set()
        self.blames: dict[int, tuple[int, ...]] = {}

    # hello: fresh keys and cards

    def hello(self, slot: int, message: Hello, identity: bytes | None = None, started: int | None = None) -> None:
        """Take a member in, if it shows the identity that it joined with and a key that is like no other."""
        if self._again("hello", self._hellos, slot, message):
            return
        if slot in self._banned or (identity is not None and message.card.identity != identity):
            raise NotAuthorised("the card is not that of the device that joined")
        require_canonical(message.fresh)
        require_canonical(message.card.lasting)
        keys = {message.fresh, message.tip, message.card.identity, message.card.lasting}
        if not self._keys.isdisjoint(keys):
            raise MalformedMessage("another member has the same key")
        self._test.agree(message.fresh)
        self._test.agree(message.card.lasting)
        known = self._known.get(slot)
        if known != message.card:
            if known is not None and known.identity == message.card.identity:
                raise NotAuthorised("the card is not the one that others have pinned")
            message.card.require(self.terms.task)
            if any(_is_stolen(message.card, card) for card in self._known.values()):
                raise NotAuthorised("the lasting key is another device's, which has shown it before")
            self._known[slot] = message.card
        if len(self._hellos) >= self.terms.invited:
            raise LateMessage(f"there are {self.terms.invited} members already")
        begun = self.version if started is None else started
        if self._broadcasts.setdefault(begun, message.broadcast) != message.broadcast:
            raise MalformedMessage(f"this device worked on another model than version {begun} is, or another sheet")
        self._hellos[slot], self._started[slot] = message, begun
        self._keys |= keys

    def close_hellos(self) -> Roster:
        """Fix the roster."""
        self._leave("hello", ORDER[0], len(self._hellos))
        slots = sorted(self._hellos)
        versions = sorted({self._started[slot] for slot in slots})
        self.roster = Roster(
            version=self.version,
            attempt=self.attempt,
            broadcasts=tuple(Broadcast(version=own, hash=self._broadcasts[own]) for own in versions),
            slots=tuple(slots),
            fresh=tuple(self._hellos[slot].fresh for slot in slots),
            tips=tuple(self._hellos[slot].tip for slot in slots),
            cards=tuple(self._hellos[slot].card for slot in slots),
        )
        self.shown = self.roster.to_bytes()
        return self.roster

    # order: everybody's part in it

    def order(self, slot: int, layer: int, link: bytes) -> None:
        """Take a member's link of a layer."""
        at = self._number(slot)
        if layer < self._layer and self._opened:
            raise LateMessage(f"{ORDER[layer]} is closed")
        if not is_link(link, layer, self.roster.tips[at]):
            raise MalformedMessage("not the link that this member had committed itself to")
        if not self._again(ORDER[layer], self._links, slot, link):
            self._links[slot] = link

    def close_order(self) -> bool:
        """Fix the graph if everybody has opened; else let the silent leave, and the others open once more."""
        slots = self.roster.slots
        self._opened.append(tuple(self._links.get(slot) for slot in slots))
        kept = [at for at, slot in enumerate(slots) if slot in self._links]
        settled = len(kept) == len(slots)
        following = "shares" if settled or self._layer + 1 == LAYERS else ORDER[self._layer + 1]
        self._leave(ORDER[self._layer], following, len(kept))
        if not settled:
            self.roster, self._layer = self.roster.only(kept), self._layer + 1
            self._links = {}
            if self._layer == LAYERS:
                self.stage = "done"
                raise SumAborted(f"after {LAYERS} tries somebody still does not open its part in the order")
            return False
        self._stand()
        return True

    def _stand(self) -> None:
        slots = self.roster.slots
        links = [self._links[slot] for slot in slots]
        self._context = seed_of(self.roster.context(self.terms, self._layer), links)
        self._at = {slot: at for at, slot in enumerate(slots)}
        self.graph = self.terms.graph(len(slots))
        near = neighbours_of(circle(digest(b"circle", self._context), len(slots)), self.graph)
        self._near: list[list[int]] = near.tolist()
        self._place: list[list[int]] = places_among(near).tolist()

    def links(self, layer: int) -> Items:
        """Return everybody's links of a layer that is closed."""
        return self._opened[layer]

    # shares: sealed for neighbours

    def shares(self, slot: int, message: Shares) -> None:
        """Take a member's sealed shares."""
        self._position(slot)
        if not self._again("shares", self._shares, slot, message):
            self._shares[slot] = message

    def close_shares(self) -> None:
        """Fix who has shared; whoever has not is out, and nobody masks with it."""
        self._leave("shares", "masked", len(self._shares))
        self.sharers = np.array([slot in self._shares for slot in self.roster.slots])

    def mail(self, slot: int) -> Mail:
        """Return who has shared, and what neighbours have sealed for a member."""
        me = self._position(slot, self._shares)
        found: list[bytes | None] = []
        for at, place in zip(self._near[me], self._place[me], strict=True):
            sender = self._shares.get(self.roster.slots[at])
            found.append(sender.parcels[place] if sender else None)
        return Mail(sharers=self.sharers, parcels=tuple(found))

    def blame(self, slot: int, accused: Sequence[bool]) -> None:
        """Note that a member finds neighbours' mail wrong; it is lost, but has given nothing away."""
        me = self._position(slot, self._shares)
        if self.stage != "masked" or slot in self._bodies:
            raise LateMessage("masked is closed, or this member has masked already")
        slots = self.roster.slots
        self.blames[slot] = tuple(
            slots[at] for at, wrong in zip(self._near[me], accused, strict=True) if wrong and self.sharers[at]
        )

    # masked: the vectors

    def masked(self, slot: int, raw: bytes) -> None:
        """Add a masked vector to the total."""
        self._position(slot, self._shares)
        size = self.terms.body_bytes
        if len(raw) != size + self.graph.neighbours * TAG_BYTES:
            raise MalformedMessage(f"{len(raw)} bytes, where a vector takes {size} and each neighbour {TAG_BYTES}")
        name = zlib.crc32(raw)  # only tells a resend from a mistake: whichever is second is not added
        if self._again("masked", self._bodies, slot, name):
            return
        if slot in self.blames:
            raise LateMessage("this member has said that it does not mask")
        values = unpack(raw[:size], self.terms.size, self.terms.bits)
        self._total += values
        self._bodies[slot], self._tags[slot] = name, cut_tags(raw[size:])

    def close_masked(self) -> Flags:
        """Fix the survivors."""
        self._leave("masked", "consent", len(self._bodies))
        self.survivors = np.array([slot in self._bodies for slot in self.roster.slots])
        return self.survivors

    def shown_survivors(self, slot: int) -> Survivors:
        """Return who has survived, and what surviving neighbours say of the sharers."""
        me = self._position(slot, self._bodies)
        tags = [
            self._tags[self.roster.slots[at]][place] if self.survivors[at] else None
            for at, place in zip(self._near[me], self._place[me], strict=True)
        ]
        return Survivors(flags=self.survivors, tags=tuple(tags))

    # consent: everybody has seen the same

    def consent(self, slot: int, tags: bytes) -> None:
        """Take a member's tags for all survivors."""
        self._position(slot, self._bodies)
        if len(tags) != len(self._bodies) * TAG_BYTES:
            raise MalformedMessage("not a tag for each survivor")
        if not self._again("consent", self._consents, slot, tags):
            self._consents[slot] = tags

    def close_consents(self) -> None:
        """Fix who has consented."""
        self._leave("consent", "reveal", None)
        self._consenting = np.array([slot in self._consents for slot in self.roster.slots])
        rows = b"".join(self._consents[slot] for slot in self.roster.slots if slot in self._consents)
        self._vouching = np.frombuffer(rows, np.uint8).reshape(len(self._consents), len(self._bodies), TAG_BYTES)
        self._among = {slot: at for at, slot in enumerate(slot for slot in self.roster.slots if slot in self._bodies)}

    def consents(self, slot: int) -> Consents:
        """Return what everybody says to a member of what it saw."""
        self._position(slot, self._consents)
        return Consents(flags=self._consenting, tags=self._vouching[:, self._among[slot]].tobytes())

    # reveal: shares, one kind per member

    def reveal(self, slot: int, shares: Items) -> None:
        """Take one share for each neighbour that has shared; of nobody else, and not of the member itself.

        A survivor of which none is given is accused: it did not say which sharers it saw, or the other lies.
        """
        me = self._position(slot, self._consents)
        accused = []
        for at, share in zip(self._near[me], shares, strict=True):
            if share is not None and not self.sharers[at]:
                raise MalformedMessage("a share of a member that shared nothing")
            if share is None and self.sharers[at]:
                accused.append(self.roster.slots[at])
        if not are_shares(b"".join(share for share in shares if share is not None)):
            raise MalformedMessage("a share that no polynomial has")
        if not self._again("reveal", self._reveals, slot, shares):
            self._reveals[slot] = shares
            if accused:
                self.blames[slot] = tuple(accused)

    def finish(self) -> Sum:
        """Recover masks from shares and take them off. Whoever is to blame if it fails is in `guilty`."""
        self._leave("reveal", "done", None)
        recovery = Recovery(self.terms, self.graph, self._context, self.roster.fresh)
        alive, lost = list[Secret](), list[Secret]()
        commitments = {self._at[slot]: message.commitment for slot, message in self._shares.items()}
        for at in np.flatnonzero(self.sharers).tolist():
            (alive if self.survivors[at] else lost).append(self._collected(at))
        try:
            recovery.remove_own(self._total, alive, commitments)
            recovery.remove_pairs(self._total, lost)
        finally:
            self.guilty |= {self.roster.slots[at] for at in recovery.guilty}
        modulus = 1 << self.terms.bits
        total = (self._total & self._total.dtype.type(modulus - 1)).astype(np.int64)
        total[total >= modulus >> 1] -= modulus
        return Sum(total=total, survivors=tuple(slot for slot in self.roster.slots if slot in self._bodies))

    def waiting(self) -> Collection[int]:
        """Name the members whose messages the present stage waits for."""
        if self.stage in ORDER:
            return [slot for slot in self.roster.slots if slot not in self._links]
        asked: dict[str, tuple[Collection[int], Collection[int]]] = {
            "masked": (self._shares, self._bodies.keys() | self.blames.keys()),
            "consent": (self._bodies, self._consents),
            "reveal": (self._consents, self._reveals),
        }
        if self.stage == "shares":
            return [slot for slot in self.roster.slots if slot not in self._shares]
        members, have = asked.get(self.stage, ((), ()))
        return [slot for slot in members if slot not in have]

    def members(self) -> int:
        """Count who has said hello."""
        return len(self._hellos)

    def slots(self) -> Collection[int]:
        """Name who has said hello."""
        return self._hellos.keys()

    def _collected(self, at: int) -> Secret:
        """Collect the shares that neighbours have revealed of a member, and drop those that do not fit their mark."""
        kind, dealt = int(not self.survivors[at]), self._shares[self.roster.slots[at]]
        holders, shares = [], []
        begin = SEALED_BYTES + kind * MARK_BYTES
        for to, (holder, place) in enumerate(zip(self._near[at], self._place[at], strict=True)):
            items = self._reveals.get(self.roster.slots[holder])
            share = items[place] if items else None
            if share is None:
                continue
            if mark(self._context, at, holder, kind, share) != dealt.parcels[to][begin : begin + MARK_BYTES]:
                self.guilty.add(self.roster.slots[holder])
                continue
            holders.append(holder)
            shares.append(share)
        near = [other for other in self._near[at] if self.survivors[other]]
        return Secret(at=at, holders=holders, shares=shares, near=near)

    def _number(self, slot: int) -> int:
        if slot not in self._hellos or self.stage == "hello" or slot not in self.roster.slots:
            raise NotAuthorised("this device does not take part in the sum, or not any more")
        return self.roster.slots.index(slot)

    def _position(self, slot: int, among: Collection[int] | None = None) -> int:
        """Return a member's number, or refuse a device that is none, or none any more."""
        if self.stage == "hello" or self.stage in ORDER:
            raise LateMessage(f"the sum is at the stage {self.stage}")
        if slot not in self._at or (among is not None and slot not in among):
            raise NotAuthorised("this device does not take part in the sum, or not any more")
        return self._at[slot]

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


def _is_stolen(card: Card, known: Card) -> bool:
    """Tell whether a card names the lasting key of another: rosters show them, and a signature proves no possession."""
    return card.lasting == known.lasting and card.identity != known.identity
