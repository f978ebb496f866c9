"""A member's machine of one sum: no clock, no network, no files.

    hello ─► meet ─► settle … ─► share ─► mask ─► consent ─► reveal

`stage` is the one whose message the member gives next, or works on: meet and settle belong to the order.

It hides its vector twice. The masks that it shares with its neighbours cancel in the sum; if it is lost after the
others have masked, its neighbours' shares give its fresh key back, and with it those masks. Its own mask is taken off
by shares too, but only if its vector is in the sum. A neighbour gives away one kind of share of it or the other, never
both, and for one set of survivors only, which so many members have seen that nobody can be shown another: so a vector
that comes late, or is left out, stays hidden (`checks`).

Whatever goes wrong raises, and the member takes part no more: to others it has dropped out.
"""

from __future__ import annotations

import hmac
import os

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crowdml.core import BadInput
from crowdml.core.errors import NotAuthorised, TermsViolated
from crowdml.core.keys import SigningKey
from crowdml.secure_aggregation import checks, shamir
from crowdml.secure_aggregation.commitments import LAYERS, TAG_BYTES, Chain, digest, mark, seed_of, tag
from crowdml.secure_aggregation.graph import circle, neighbours_of
from crowdml.secure_aggregation.masked_vectors import Masks, own_mask_key, pack
from crowdml.secure_aggregation.member_keys import AgreementKey, PairKeys, Peers, pair_keys
from crowdml.secure_aggregation.roster import BroadcastHash, Roster
from crowdml.secure_aggregation.shamir import SECRET_BYTES, SHARE_BYTES, Entropy
from crowdml.secure_aggregation.stages import CONSENT, DONE, HELLO, MASKED, ORDER, REVEAL, SHARES, WrongMail
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
    write_flags,
)
from crowdml.secure_aggregation.sum_terms import SumTerms

Integers = npt.NDArray[np.int64]
_NONCE = bytes(12)


class SumDevice:
    """One member in one attempt at a sum.

    Args:
        terms: What is summed.
        version: Version of the task that the sum is for.
        attempt: Number of the attempt at it.
        slot: The member's slot.
        identity: Its signing key.
        peers: What it remembers of others; the same for all sums of a task.
        broadcast: What it worked on.
        entropy: Random bytes; given ones are for tests.
    """

    def __init__(
        self,
        terms: SumTerms,
        version: int,
        attempt: int,
        slot: int,
        identity: SigningKey,
        peers: Peers,
        broadcast: BroadcastHash,
        entropy: Entropy = os.urandom,
    ) -> None:
        self.terms, self._version, self._attempt, self._slot = terms, version, attempt, slot
        self._peers, self._entropy, self._broadcast = peers, entropy, broadcast
        self._identity = identity.public
        self._fresh, self._chain = AgreementKey(entropy(SECRET_BYTES)), Chain(entropy)
        self._layer = 0
        self.stage = HELLO
        self._roster: Roster | None = None
        self._view: bytes | None = None

    def hello(self) -> Hello:
        """Introduce this member."""
        self._enter(HELLO)
        self.stage = ORDER[0]
        return Hello(
            fresh=self._fresh.public, tip=self._chain.tip, broadcast=self._broadcast.hash, card=self._peers.card
        )

    def meet(self, roster: Roster) -> bytes:
        """Look at the roster once and for all; return the first link of this member's part in the order."""
        self._enter(ORDER[0], first=self._roster is None)
        checks.require_roster(roster, self.terms, self._version, self._attempt)
        checks.require_broadcast(roster, self.terms, self._broadcast)
        mine = (self._slot, self._fresh.public, self._chain.tip, self._identity)
        if mine not in zip(
            roster.slots, roster.fresh, roster.tips, [card.identity for card in roster.cards], strict=True
        ):
            raise NotAuthorised("this member does not stand in the roster with its own keys")
        self._roster, self.stage = roster, ORDER[0]
        return self._chain.link(0)

    def settle(self, links: Items) -> bytes | None:
        """Look at everybody's links: None if all have opened theirs, else this member's next link, for the others."""
        roster = self._met
        self._enter(ORDER[self._layer])
        checks.require_length(len(links), len(roster.slots))
        kept = [at for at, link in enumerate(links) if link is not None]
        if len(kept) == len(links):
            checks.require_links(roster, links, self._layer)
            self._stand(roster, [link or b"" for link in links])
            self.stage = SHARES
            return None
        checks.require_enough(len(kept), self.terms)
        self._roster, self._layer = roster.only(kept), self._layer + 1
        if self._slot not in self._roster.slots:
            raise NotAuthorised("this member has opened its part in the order, and is left out all the same")
        checks.require_link_left(self._layer, LAYERS)
        self.stage = ORDER[self._layer]
        return self._chain.link(self._layer)

    def share(self) -> Shares:
        """Return shares of the own mask and of the fresh key, sealed and marked for each neighbour."""
        self._enter(SHARES)
        self.stage = MASKED
        self._own_mask = self._entropy(SECRET_BYTES)
        points = np.array(self._neighbours, np.uint64) + np.uint64(1)
        shares = shamir.split((self._own_mask, self._fresh.secret), points, self._graph.threshold, self._entropy)
        parcels = [self._parcel(at, shamir.to_bytes(pair)) for at, pair in enumerate(shares)]
        return Shares(commitment=digest(b"own mask", self._context, self._own_mask), parcels=tuple(parcels))

    def mask(self, mail: Mail, vector: Integers, noise: Integers | None = None) -> bytes:
        """Return the masked vector. It is checked against the terms; noise beside it may wrap, which is harmless.

        After it, for each neighbour, a tag over who has shared: so that it can tell that no mask is missing.
        """
        self._enter(MASKED)
        self._require_vector(vector)
        checks.require_length(len(mail.sharers), self.members)
        checks.require_mail(mail, self.terms, self._graph, self._me, self._neighbours)
        self._held, self._sharers = self._open(mail.parcels), mail.sharers
        masks = Masks(self.terms.size, self.terms.bits)
        total = vector.astype(masks.word)
        if noise is not None:
            total += noise.astype(masks.word)
        masks.add(total, own_mask_key(self._own_mask, self._context))
        for at, held in enumerate(self._held):
            if held is None:
                continue
            if self._me < self._neighbours[at]:
                masks.add(total, self._keys[at].mask)
            else:
                masks.subtract(total, self._keys[at].mask)
        seen = write_flags(mail.sharers)
        tags = [tag(keys.agreement, self._me, other, seen) for keys, other in self._pairs()]
        self.stage = CONSENT
        return pack(total, self.terms.bits) + b"".join(tags)

    def consent(self, shown: Survivors) -> bytes:
        """Look at the survivors once and for all; return a tag for each of them, over all that this member saw."""
        if self.stage not in (CONSENT, REVEAL):
            raise TermsViolated(f"survivors at the stage {self.stage}: nothing of this member is masked")
        checks.require_length(len(shown.flags), self.members)
        view = digest(b"view", self._context, write_flags(self._sharers), write_flags(shown.flags))
        if self._view is not None and view != self._view:
            raise TermsViolated("the server asks for shares of a second set of survivors: that would unmask a member")
        if self._view is None:
            self._enter(CONSENT)
            self._require_survivors(shown)
            self._view, self._survivors, self.stage = view, shown.flags, REVEAL
        return b"".join(
            bytes(TAG_BYTES) if other == self._me else tag(self._vouching[other], self._me, other, view)
            for other in np.flatnonzero(shown.flags).tolist()
        )

    def reveal(self, consents: Consents) -> Items:
        """Return one share of each neighbour: of its own mask if it has survived, of its fresh key if it is lost.

        None of a survivor that was shown other sharers, or says nothing of them: the server may ask why.
        """
        if self.stage != REVEAL or self._view is None:
            raise TermsViolated(f"shares are asked for at the stage {self.stage}")
        checks.require_length(len(consents.flags), self.members)
        found = zip(np.flatnonzero(consents.flags).tolist(), cut_tags(consents.tags), strict=True)
        agreeing = 1 + sum(other != self._me and self._vouches(other, shown) for other, shown in found)
        checks.require_one_view(agreeing, self._graph)
        given: list[bytes | None] = []
        for other, held, same in zip(self._neighbours, self._held, self._same, strict=True):
            if held is None or (self._survivors[other] and not same):
                given.append(None)
            else:
                given.append(held[:SHARE_BYTES] if self._survivors[other] else held[SHARE_BYTES:])
        return tuple(given)

    @property
    def near(self) -> int:
        """How many neighbours this member has."""
        return len(self._neighbours)

    @property
    def members(self) -> int:
        """How many stand in the roster."""
        return len(self._met.slots)

    @property
    def _met(self) -> Roster:
        """The roster of those who are left, once this member has seen it."""
        if self._roster is None:
            raise TermsViolated(f"the roster was not shown yet, at the stage {self.stage}")
        return self._roster

    def _enter(self, stage: str, *, first: bool = True) -> None:
        """Take a step of a stage, which is taken once; the machine stays over unless the step says what follows."""
        if self.stage != stage or not first:
            raise TermsViolated(f"{stage} at the stage {self.stage}: every step is taken once")
        self.stage = DONE

    def _stand(self, roster: Roster, links: list[bytes]) -> None:
        """Take one's place in the circle, and agree on keys: with neighbours for masks, with all for vouching."""
        self._me, self._graph = roster.slots.index(self._slot), self.terms.graph(len(roster.slots))
        self._context = seed_of(roster.context(self.terms, self._layer), links)
        self._order = circle(digest(b"circle", self._context), self.members)
        self._neighbours: list[int] = neighbours_of(self._order, self._graph)[self._me].tolist()
        met = [
            None if at == self._me else self._peers.meet(slot, card)
            for at, (slot, card) in enumerate(zip(roster.slots, roster.cards, strict=True))
        ]
        self._vouching = [b"" if peer is None else peer.vouching for peer in met]
        self._keys: list[PairKeys] = []
        for other in self._neighbours:
            peer, fresh = met[other], self._fresh.agree(roster.fresh[other])
            assert peer is not None  # noqa: S101  nobody is its own neighbour
            low, high = min(other, self._me), max(other, self._me)
            self._keys.append(pair_keys(peer.agreed, fresh, self._context, low, high))

    def _pairs(self) -> list[tuple[PairKeys, int]]:
        return list(zip(self._keys, self._neighbours, strict=True))

    def _parcel(self, at: int, pair: bytes) -> bytes:
        """Seal two shares for a neighbour, and mark them."""
        other = self._neighbours[at]
        key = self._keys[at].upward if self._me < other else self._keys[at].downward
        marks = self._marks(self._me, other, pair)
        return AESGCM(key).encrypt(_NONCE, pair, None) + marks

    def _marks(self, dealer: int, holder: int, pair: bytes) -> bytes:
        halves = (pair[:SHARE_BYTES], pair[SHARE_BYTES:])
        return b"".join(mark(self._context, dealer, holder, kind, share) for kind, share in enumerate(halves))

    def _open(self, parcels: Items) -> list[bytes | None]:
        """Decrypt what neighbours have sealed, which also proves that their keys are theirs; compare it with its marks.

        That comes before anything is masked or charged: whoever deals wrong shares costs nobody anything.
        """
        held = [None if parcel is None else self._opened(at, parcel) for at, parcel in enumerate(parcels)]
        accused = tuple(parcel is not None and pair is None for parcel, pair in zip(parcels, held, strict=True))
        if any(accused):
            raise WrongMail(accused)
        return held

    def _opened(self, at: int, parcel: bytes) -> bytes | None:
        other = self._neighbours[at]
        key = self._keys[at].downward if self._me < other else self._keys[at].upward
        try:
            pair = AESGCM(key).decrypt(_NONCE, parcel[:SEALED_BYTES], None)
        except InvalidTag:
            return None
        right = hmac.compare_digest(parcel[SEALED_BYTES:], self._marks(other, self._me, pair))
        return pair if right and shamir.are_shares(pair) else None

    def _require_vector(self, vector: Integers) -> None:
        if vector.shape != (self.terms.size,) or vector.dtype != np.int64:
            raise BadInput(f"{self.terms.size} integers of 64 bits are summed, not {vector.dtype} {vector.shape}")
        largest = max(-int(vector.min()), int(vector.max()))
        if largest > self.terms.largest:
            raise BadInput(f"an integer of {largest}, where {self.terms.largest} is the largest that a sum can take")

    def _require_survivors(self, shown: Survivors) -> None:
        flags: Flags = shown.flags
        checks.require_survivors(flags, self._sharers, self.terms, self._me)
        seen = write_flags(self._sharers)
        expected = tuple(
            tag(keys.agreement, other, self._me, seen) if flags[other] else None for keys, other in self._pairs()
        )
        self._same = checks.saw_the_same(shown.tags, expected)
        checks.require_no_island(self._order, flags, self._graph, self._neighbours)

    def _vouches(self, other: int, shown: bytes) -> bool:
        """Tell whether a survivor says that it saw the same."""
        assert self._view is not None  # noqa: S101  the caller asked
        right = tag(self._vouching[other], other, self._me, self._view)
        return bool(self._survivors[other]) and hmac.compare_digest(shown, right)
