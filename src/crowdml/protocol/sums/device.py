"""A member's machine of one masked sum: no clock, no network, no files.

    hello ─► share ─► mask ─► consent ─► reveal

It hides its vector twice. The masks that it shares with its neighbours cancel in the sum; if it is lost after the
others have masked, its neighbours' shares give its fresh key back, and with it those masks. Its own mask is taken off
by shares too, but only if its vector is in the sum. A neighbour gives away one kind of share of it or the other, never
both, and for one set of survivors only; so a vector that comes late, or is left out, stays hidden.

Whatever goes wrong raises, and the member takes part no more: to others it has dropped out.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crowdml.core import BadInput
from crowdml.core.errors import NotAuthorised, TermsViolated
from crowdml.protocol.keys import SigningKey
from crowdml.protocol.sums import shamir
from crowdml.protocol.sums.errors import SumAborted
from crowdml.protocol.sums.field import SECRET_BYTES, Entropy
from crowdml.protocol.sums.graph import circle, neighbours_of
from crowdml.protocol.sums.masks import Masks, own_mask_key
from crowdml.protocol.sums.messages import Flags, Hello, Introduction, Items, Roster, Shares, write_flags
from crowdml.protocol.sums.packing import pack
from crowdml.protocol.sums.peers import Peers
from crowdml.protocol.sums.secrets import AgreementKey, PairKeys, digest, pair_keys, tag
from crowdml.protocol.sums.shamir import SHARE_BYTES
from crowdml.protocol.sums.terms import SumTerms

Integers = npt.NDArray[np.int64]
_NONCE = bytes(12)


class SumDevice:
    """One member in one attempt at a sum.

    Args:
        terms: What is summed.
        version: Version of the task that the sum is for.
        attempt: Number of the attempt at it.
        slot: The member's own slot.
        identity: Its signing key.
        peers: What it remembers of others; the same for all sums of a task.
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
        entropy: Entropy = os.urandom,
    ) -> None:
        """Draw a fresh key."""
        self.terms, self._version, self._attempt, self._slot = terms, version, attempt, slot
        self._peers, self._entropy = peers, entropy
        self._own_identity = identity.public
        self._fresh = AgreementKey(entropy(SECRET_BYTES))
        self.stage = "hello"
        self._survivors: bytes | None = None

    def hello(self) -> Hello:
        """Introduce this member."""
        self._enter("hello", "share")
        return Hello(fresh=self._fresh.public, card=self._peers.own)

    def share(self, introduction: Introduction) -> Shares:
        """Meet the neighbours; return shares of the own mask and of the fresh key, sealed for each of them."""
        self._enter("share", "mask")
        roster = introduction.roster
        self._require_roster(roster)
        self._members, self._me = len(roster.slots), roster.slots.index(self._slot)
        self._graph = self.terms.graph(self._members)
        self._context = roster.context(self.terms.task)
        order = circle(digest(b"circle", self._context), self._members)
        self._neighbours: list[int] = neighbours_of(order, self._graph)[self._me].tolist()
        self._keys = self._agree(roster, introduction)
        self._own_mask = self._entropy(SECRET_BYTES)
        points = np.array(self._neighbours, np.uint64) + np.uint64(1)
        shares = shamir.split((self._own_mask, self._fresh.secret), points, self._graph.threshold, self._entropy)
        sealed = [
            AESGCM(self._outward(at)).encrypt(_NONCE, shamir.to_bytes(pair), None) for at, pair in enumerate(shares)
        ]
        return Shares(commitment=digest(b"own mask", self._context, self._own_mask), sealed=tuple(sealed))

    def mask(self, mail: Items, vector: Integers, noise: Integers | None = None) -> bytes:
        """Return the masked vector. It is checked against the terms; noise beside it may wrap, which is harmless."""
        self._enter("mask", "consent")
        self._require_vector(vector)
        self._held = self._open(mail)
        masks = Masks(self.terms)
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
        return pack(total, self.terms.bits)

    def consent(self, survivors: Flags) -> Items:
        """Look at the survivors once and for all; return a tag for each neighbour among them."""
        written = write_flags(survivors)
        if self._survivors is not None and written != self._survivors:
            raise TermsViolated("the server asks for shares of a second set of survivors: that would unmask a member")
        if self._survivors is None:
            self._enter("consent", "reveal")
            self._require_survivors(survivors)
            self._survivors, self._flags = written, survivors
        return tuple(
            tag(self._keys[at].agreement, self._me, written) if survivors[own] else None
            for at, own in enumerate(self._neighbours)
        )

    def reveal(self, consents: Items) -> Items:
        """Return one share of each neighbour: of its own mask if it has survived, of its fresh key if it is lost."""
        if self.stage != "reveal" or self._survivors is None:
            raise TermsViolated(f"shares are asked for at the stage {self.stage}")
        agreeing = sum(
            found is not None and bool(self._flags[own]) and found == self._tag_of(at, own)
            for at, (own, found) in enumerate(zip(self._neighbours, consents, strict=True))
        )
        if agreeing < self._graph.threshold:
            raise SumAborted(
                f"{agreeing} neighbours saw the same survivors, {self._graph.threshold} are needed: others were shown "
                "another set, or too few are left"
            )
        return tuple(
            None if held is None else held[:SHARE_BYTES] if self._flags[own] else held[SHARE_BYTES:]
            for own, held in zip(self._neighbours, self._held, strict=True)
        )

    @property
    def near(self) -> int:
        """How many neighbours this member has."""
        return len(self._neighbours)

    @property
    def members(self) -> int:
        """How many stand in the roster."""
        return self._members

    def _enter(self, stage: str, following: str) -> None:
        if self.stage != stage:
            raise TermsViolated(f"{stage} at the stage {self.stage}: every step is taken once")
        self.stage = following

    def _require_roster(self, roster: Roster) -> None:
        """Refuse a roster of another sum, without this member, or with a key that stands twice."""
        if (roster.version, roster.attempt) != (self._version, self._attempt):
            raise TermsViolated("the roster is that of another sum")
        ascending = all(a < b for a, b in zip(roster.slots, roster.slots[1:], strict=False))
        if not ascending or len(set(roster.fresh)) < len(roster.fresh):
            raise NotAuthorised("a member stands in the roster twice, or two have the same key")
        if (self._slot, self._fresh.public) not in zip(roster.slots, roster.fresh, strict=True):
            raise NotAuthorised("this member does not stand in the roster with its own key")
        if not self.terms.least <= len(roster.slots) <= self.terms.invited:
            raise SumAborted(f"{len(roster.slots)} members, where {self.terms.least} to {self.terms.invited} may be")

    def _agree(self, roster: Roster, introduction: Introduction) -> list[PairKeys]:
        """Agree on keys with every neighbour."""
        if len(introduction.cards) != len(self._neighbours):
            raise NotAuthorised("cards of other members than the neighbours")
        identities = {card.identity for card in introduction.cards}
        if len(identities) < len(introduction.cards) or self._own_identity in identities:
            raise NotAuthorised("two members have the same identity")
        keys = []
        for own, card in zip(self._neighbours, introduction.cards, strict=True):
            lasting, fresh = self._peers.meet(roster.slots[own], card), self._fresh.agree(roster.fresh[own])
            keys.append(pair_keys(lasting, fresh, self._context, min(own, self._me), max(own, self._me)))
        return keys

    def _outward(self, at: int) -> bytes:
        return self._keys[at].upward if self._me < self._neighbours[at] else self._keys[at].downward

    def _inward(self, at: int) -> bytes:
        return self._keys[at].downward if self._me < self._neighbours[at] else self._keys[at].upward

    def _open(self, mail: Items) -> list[bytes | None]:
        """Decrypt what neighbours have sealed, which also proves that their keys are theirs."""
        present = sum(sealed is not None for sealed in mail)
        if present < self._graph.threshold:
            raise SumAborted(f"{present} neighbours are left, {self._graph.threshold} are needed")
        try:
            return [
                None if sealed is None else AESGCM(self._inward(at)).decrypt(_NONCE, sealed, None)
                for at, sealed in enumerate(mail)
            ]
        except InvalidTag:
            raise NotAuthorised("a neighbour's shares are not sealed with its key") from None

    def _require_vector(self, vector: Integers) -> None:
        if vector.shape != (self.terms.size,) or vector.dtype != np.int64:
            raise BadInput(f"{self.terms.size} integers of 64 bits are summed, not {vector.dtype} {vector.shape}")
        largest = max(-int(vector.min()), int(vector.max()))
        if largest > self.terms.largest:
            raise BadInput(f"an integer of {largest}, where {self.terms.largest} is the largest that a sum can take")

    def _require_survivors(self, survivors: Flags) -> None:
        count, near = int(survivors.sum()), survivors[self._neighbours]
        if len(survivors) != self._members or not survivors[self._me]:
            raise TermsViolated("this member is not among the survivors: it has nothing to reveal")
        if count < self.terms.least:
            raise SumAborted(f"{count} survivors, {self.terms.least} are needed")
        if any(here and held is None for here, held in zip(near, self._held, strict=True)):
            raise TermsViolated("a survivor never shared its secrets with this member")
        if int(near.sum()) < self._graph.threshold:
            raise SumAborted("too few neighbours have survived")

    def _tag_of(self, at: int, sender: int) -> bytes:
        assert self._survivors is not None  # noqa: S101  the caller asked
        return tag(self._keys[at].agreement, sender, self._survivors)
