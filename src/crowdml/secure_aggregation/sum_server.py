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

from crowdml.core.errors import MalformedMessage, NotAuthorised
from crowdml.secure_aggregation.commitments import LAYERS, MARK_BYTES, TAG_BYTES, digest, is_link, mark, seed_of
from crowdml.secure_aggregation.graph import circle, neighbours_of, places_among
from crowdml.secure_aggregation.masked_vectors import centred, unpack, word_type
from crowdml.secure_aggregation.member_keys import AgreementKey, Card, require_canonical
from crowdml.secure_aggregation.recovery import Recovery, Secret
from crowdml.secure_aggregation.roster import BroadcastHash, Roster
from crowdml.secure_aggregation.shamir import are_shares
from crowdml.secure_aggregation.stages import (
    CONSENT,
    DONE,
    HELLO,
    MASKED,
    ORDER,
    REVEAL,
    SHARES,
    LateMessage,
    SumAborted,
)
from crowdml.secure_aggregation.sum_messages import (
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
from crowdml.secure_aggregation.sum_terms import Sum, SumTerms


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
        self.terms, self.version, self.attempt, self.stage = terms, version, attempt, HELLO
        self._known = {} if known is None else known
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
        if self._again(HELLO, self._hellos, slot, message):
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
            raise MalformedMessage(f"this device worked on another model than version {begun} is, or of another task")
        self._hellos[slot], self._started[slot] = message, begun
        self._keys |= keys

    def close_hellos(self) -> Roster:
        """Fix the roster."""
        self._leave(HELLO, ORDER[0], len(self._hellos))
        slots = sorted(self._hellos)
        versions = sorted({self._started[slot] for slot in slots})
        self.roster = Roster(
            version=self.version,
            attempt=self.attempt,
            broadcasts=tuple(BroadcastHash(version=begun, hash=self._broadcasts[begun]) for begun in versions),
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
        self._keep(ORDER[layer], self._links, slot, link)

    def close_order(self) -> bool:
        """Fix the graph if everybody has opened; else let the silent leave, and the others open once more."""
        slots = self.roster.slots
        self._opened.append(tuple(self._links.get(slot) for slot in slots))
        kept = [at for at, slot in enumerate(slots) if slot in self._links]
        settled = len(kept) == len(slots)
        following = SHARES if settled or self._layer + 1 == LAYERS else ORDER[self._layer + 1]
        self._leave(ORDER[self._layer], following, len(kept))
        if not settled:
            self.roster, self._layer = self.roster.only(kept), self._layer + 1
            self._links = {}
            if self._layer == LAYERS:
                self.stage = DONE
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
        self._keep(SHARES, self._shares, slot, message)

    def close_shares(self) -> None:
        """Fix who has shared; whoever has not is out, and nobody masks with it."""
        self._leave(SHARES, MASKED, len(self._shares))
        self.sharers = self._flags(self._shares)

    def mail(self, slot: int) -> Mail:
        """Return who has shared, and what neighbours have sealed for a member."""
        me = self._position(slot, self._shares)
        slots = self.roster.slots
        found = tuple(
            self._shares[slots[at]].parcels[place] if self.sharers[at] else None
            for at, place in zip(self._near[me], self._place[me], strict=True)
        )
        return Mail(sharers=self.sharers, parcels=found)

    def blame(self, slot: int, accused: Sequence[bool]) -> None:
        """Note that a member finds neighbours' mail wrong; it is lost, but has given nothing away."""
        me = self._position(slot, self._shares)
        if self.stage != MASKED or slot in self._bodies:
            raise LateMessage(f"{MASKED} is closed, or this member has masked already")
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
        if self._again(MASKED, self._bodies, slot, name):
            return
        if slot in self.blames:
            raise LateMessage("this member has said that it does not mask")
        self._total += unpack(raw[:size], self.terms.size, self.terms.bits)
        self._bodies[slot], self._tags[slot] = name, cut_tags(raw[size:])

    def close_masked(self) -> Flags:
        """Fix the survivors."""
        self._leave(MASKED, CONSENT, len(self._bodies))
        self.survivors = self._flags(self._bodies)
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
        self._keep(CONSENT, self._consents, slot, tags)

    def close_consents(self) -> None:
        """Fix who has consented."""
        self._leave(CONSENT, REVEAL, None)
        self._consenting = self._flags(self._consents)
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
        given = list(zip(self._near[me], shares, strict=True))
        if any(share is not None and not self.sharers[at] for at, share in given):
            raise MalformedMessage("a share of a member that shared nothing")
        if not are_shares(b"".join(share for share in shares if share is not None)):
            raise MalformedMessage("a share that no polynomial has")
        accused = tuple(self.roster.slots[at] for at, share in given if share is None and self.sharers[at])
        if self._keep(REVEAL, self._reveals, slot, shares) and accused:
            self.blames[slot] = accused

    def finish(self) -> Sum:
        """Recover masks from shares and take them off. Whoever is to blame if it fails is in `guilty`."""
        self._leave(REVEAL, DONE, None)
        recovery = Recovery(self.terms, self.graph, self._context, self.roster.fresh)
        commitments = {self._at[slot]: message.commitment for slot, message in self._shares.items()}
        alive = [self._collected(at) for at in np.flatnonzero(self.sharers & self.survivors).tolist()]
        lost = [self._collected(at) for at in np.flatnonzero(self.sharers & ~self.survivors).tolist()]
        try:
            recovery.remove_own_masks(self._total, alive, commitments)
            recovery.remove_pair_masks(self._total, lost)
        finally:
            self.guilty |= {self.roster.slots[at] for at in recovery.guilty}
        total = centred(self._total, self.terms.bits)
        return Sum(total=total, survivors=tuple(slot for slot in self.roster.slots if slot in self._bodies))

    def waiting(self) -> Collection[int]:
        """Name the members whose messages the present stage waits for."""
        if self.stage in (HELLO, DONE):
            return []
        asked: dict[str, tuple[Collection[int], Collection[int]]] = {
            **dict.fromkeys(ORDER, (self.roster.slots, self._links)),
            SHARES: (self.roster.slots, self._shares),
            MASKED: (self._shares, self._bodies.keys() | self.blames.keys()),
            CONSENT: (self._bodies, self._consents),
            REVEAL: (self._consents, self._reveals),
        }
        members, have = asked[self.stage]
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
        if slot not in self._hellos or self.stage == HELLO or slot not in self.roster.slots:
            raise NotAuthorised("this device does not take part in the sum, or not any more")
        return self.roster.slots.index(slot)

    def _position(self, slot: int, among: Collection[int] | None = None) -> int:
        """Return a member's number, or refuse a device that is none, or none any more."""
        if self.stage == HELLO or self.stage in ORDER:
            raise LateMessage(f"the sum is at the stage {self.stage}")
        if slot not in self._at or (among is not None and slot not in among):
            raise NotAuthorised("this device does not take part in the sum, or not any more")
        return self._at[slot]

    def _again(self, stage: str, held: dict[int, Any], slot: int, message: Any) -> bool:
        """Tell whether a message was taken before; a second one that differs is refused, and one that is late."""
        if slot in held:
            if held[slot] != message:
                if stage == HELLO and self.stage == HELLO:
                    # A device that was started again does so, and may be a member of the next sum.
                    del held[slot]
                    self._banned.add(slot)
                    raise NotAuthorised("another hello message than before: this sum goes on without this device")
                raise MalformedMessage(f"another {stage} message than before")
            return True
        if self.stage != stage:
            raise LateMessage(f"{stage} is closed")
        return False

    def _keep(self, stage: str, held: dict[int, Any], slot: int, message: Any) -> bool:
        """Take a message unless it was taken before; tell whether it is new."""
        new = not self._again(stage, held, slot, message)
        if new:
            held[slot] = message
        return new

    def _flags(self, held: Collection[int]) -> Flags:
        """Say of each member whether it is among these."""
        return np.array([slot in held for slot in self.roster.slots])

    def _leave(self, stage: str, following: str, left: int | None) -> None:
        if self.stage != stage:
            raise SumAborted(f"{stage} cannot be closed at the stage {self.stage}")
        if left is not None and left < self.terms.least:
            self.stage = DONE
            raise SumAborted(f"{left} members are left after {stage}, {self.terms.least} are needed")
        self.stage = following


def _is_stolen(card: Card, known: Card) -> bool:
    """Tell whether a card names the lasting key of another: rosters show them, and a signature proves no possession."""
    return card.lasting == known.lasting and card.identity != known.identity
