"""Cards of members, and the keys under which two of them speak.

A card is a fresh X25519 key, whose secret lives in memory only. Where members are named, the device's identity of this
task has signed it, and peers pin that identity: a number that shows another one later is refused. Where members are
hidden, as in the paper, there are fresh keys alone, and a server that puts its own in between reads everything.

A key for each direction comes from HKDF over what both agree on, bound to the signed task and to everything that the
server told them of this attempt. Members that were told different things cannot talk. A frame's nonce is its sequence
number, and an attempt's number is never used twice, so no nonce is used twice under a key.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from crowdml.core import record
from crowdml.core.errors import MalformedMessage, NotAuthorised
from crowdml.core.keys import SigningKey, verify
from crowdml.slicing.live.slice_frames import HEADER_BYTES, Header

KEY_BYTES = 32
_CARD = b"crowdml slices card 1\0"
_SALT = b"crowdml slices 1"
_NONCE = struct.Struct("<QI")


@record
class Card:
    """What introduces a member to its group.

    Attributes:
        fresh: An X25519 key of this run of the device.
        identity: The device's Ed25519 key of this task; empty where members are hidden.
        signature: By the one, of the other; empty where members are hidden.
    """

    fresh: bytes
    identity: bytes = b""
    signature: bytes = b""

    def require(self, task_hash: str, named: bool) -> None:
        """Raise unless this is a card as the task asks for."""
        if len(self.fresh) != KEY_BYTES:
            raise MalformedMessage(f"a member's key has {KEY_BYTES} bytes, not {len(self.fresh)}")
        if named:
            verify(self.identity, self.signature, _CARD + task_hash.encode() + b"\0" + self.fresh)
        elif self.identity or self.signature:
            raise MalformedMessage("members of this task are hidden: a card has no identity")


class MemberKeys:
    """A member's secret of this run, and what it knows of the others.

    Args:
        task_hash: Hash of the signed task.
        secret: 32 random bytes.
        identity: The device's key of this task; None where members are hidden.
    """

    def __init__(self, task_hash: str, secret: bytes, identity: SigningKey | None) -> None:
        self._task_hash, self._named = task_hash, identity is not None
        self._key = X25519PrivateKey.from_private_bytes(secret)
        fresh = self._key.public_key().public_bytes_raw()
        self.card = Card(fresh=fresh)
        if identity is not None:
            signed = identity.sign(_CARD + task_hash.encode() + b"\0" + fresh)
            self.card = Card(fresh=fresh, identity=identity.public, signature=signed)
        self._pinned: dict[int, bytes] = {}
        self._agreed: dict[bytes, bytes] = {}
        self._checked: set[Card] = set()

    def meet(self, cards: Mapping[int, Card], me: int) -> None:
        """Check the cards of a group, pin identities, and agree on a secret with each."""
        mine = cards.get(me)
        if mine != self.card:
            raise NotAuthorised(f"the server shows another card of member {me} than this device gave")
        if len({card.fresh for card in cards.values()}) < len(cards):
            raise NotAuthorised("two members of the group show the same key")
        for number, card in cards.items():
            if number == me:
                continue
            # The whole card: a known key under another identity has a signature of its own to show.
            if card not in self._checked:
                card.require(self._task_hash, self._named)
                self._agreed[card.fresh] = self._agree(card.fresh)
                self._checked.add(card)
            if self._named and self._pinned.setdefault(number, card.identity) != card.identity:
                raise NotAuthorised(f"member {number} shows another identity than before")
        if self._named and len({card.identity for card in cards.values()}) < len(cards):
            raise NotAuthorised("two members of the group show the same identity")

    def forget_peers(self) -> None:
        """Begin with another group, in which numbers stand for others."""
        self._pinned, self._agreed, self._checked = {}, {}, set()

    def key(self, fresh: bytes, info: bytes) -> AESGCM:
        """Derive a key that only this member and the holder of a card know."""
        if fresh not in self._agreed:
            raise NotAuthorised("a member that was never introduced")
        info += hashlib.sha256(self._task_hash.encode()).digest()
        return AESGCM(HKDF(hashes.SHA256(), 32, _SALT, info).derive(self._agreed[fresh]))

    def _agree(self, fresh: bytes) -> bytes:
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(fresh))
        except ValueError:
            raise MalformedMessage("an X25519 key of low order, or none at all") from None


class Channels:
    """The keys of one attempt: one for each peer and direction, made when first used.

    Args:
        keys: The member's.
        me: Its number.
        cards: Of the whole group.
        context: Hash of everything that the server told of this attempt.
    """

    def __init__(self, keys: MemberKeys, me: int, cards: Mapping[int, Card], context: bytes) -> None:
        self._keys, self._me, self._cards, self._context = keys, me, cards, context
        self._ciphers: dict[tuple[int, int], AESGCM] = {}
        self._sequences: dict[tuple[int, int], int] = {}

    def _cipher(self, sender: int, receiver: int) -> AESGCM:
        found = self._ciphers.get((sender, receiver))
        if found is None:
            peer = self._cards.get(receiver if sender == self._me else sender)
            if peer is None:
                raise MalformedMessage(f"member {sender} or {receiver} is not in this group")
            info = b"frame" + self._context + struct.pack("<HH", sender, receiver)
            found = self._ciphers[sender, receiver] = self._keys.key(peer.fresh, info)
        return found

    def seal(self, header: Header, body: bytes | memoryview) -> bytes:
        """Write a frame; its sequence number is put in here."""
        way = header.sender, header.receiver
        sequence = self._sequences.get(way, 0)
        self._sequences[way] = sequence + 1
        head = header._replace(sequence=sequence).pack()
        return head + self._cipher(*way).encrypt(_NONCE.pack(0, sequence), body, head)

    def open(self, header: Header, frame: bytes) -> bytes:
        """Open a frame that is the next one of its sender; raise `MalformedMessage` for any other."""
        way = header.sender, header.receiver
        expected = self._sequences.get(way, 0)
        if header.sequence != expected:
            kind = "was here before" if header.sequence < expected else "comes too early"
            raise MalformedMessage(f"frame {header.sequence} of member {header.sender} {kind}: {expected} is next")
        try:
            body = self._cipher(*way).decrypt(
                _NONCE.pack(0, header.sequence), frame[HEADER_BYTES:], frame[:HEADER_BYTES]
            )
        except InvalidTag:
            raise MalformedMessage(f"frame {header.sequence} of member {header.sender} was altered") from None
        self._sequences[way] = expected + 1
        return body


def context_of(parts: Iterable[bytes]) -> bytes:
    """Hash what members must agree on before they can talk."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(struct.pack("<I", len(part)) + part)
    return hashed.digest()
