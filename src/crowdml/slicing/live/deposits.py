"""Deposits: pieces as their owners leave them with the server at a cut, sealed for the other members.

A piece is sealed once, under a key of its own, and that key is wrapped for every other member of the group. So any
dummy can take any piece, and the server can read none.

    header │ owner's key 32, salt 16, count u16 │ count × (receiver's key 32, wrapped key 48) │ sealed piece

A piece may be megabytes, and sums of the next batches must not wait behind it. So it goes in chunks, one whenever
nothing else is to be done, which the server puts together in their order; what a new attempt fences off is dropped on
either side.

    header of the deposit, with kind "chunk", number and count │ part of the deposit's bytes, its own header included
"""

from __future__ import annotations

import struct
from collections.abc import Collection

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crowdml.core.errors import MalformedMessage
from crowdml.slicing.live.member_cards import KEY_BYTES, MemberKeys
from crowdml.slicing.live.slice_frames import CHUNK, DEPOSIT, HEADER_BYTES, TAG_BYTES, Header, read_header
from crowdml.slicing.live.slice_plan import SlicePlan

_SALT_BYTES = 16
_COUNT = struct.Struct("<H")
_PREFIX = HEADER_BYTES + KEY_BYTES + _SALT_BYTES + _COUNT.size
_WRAP = KEY_BYTES + 32 + TAG_BYTES
_NONCE = bytes(12)
CHUNK_BYTES = 1 << 16


def deposit_bytes(plan: SlicePlan, owner: int, members: int) -> int:
    """Return how long the deposit of a piece is in a group of so many members."""
    return _PREFIX + (members - 1) * _WRAP + plan.piece_bytes(owner) + TAG_BYTES


def seal_deposit(keys: MemberKeys, header: Header, others: Collection[bytes], raw: bytes, entropy: bytes) -> bytes:
    """Seal a piece for others, named by the keys of their cards.

    Args:
        keys: The owner's.
        header: Of the frame.
        others: Keys of all other members of the group.
        raw: The piece.
        entropy: 48 random bytes, never used before: the piece's key, and a salt for those it is wrapped under.
    """
    key, salt, head = entropy[:32], entropy[32:], header.pack()
    prefix = head + keys.card.fresh + salt + _COUNT.pack(len(others))
    wraps = [other + keys.key(other, b"wrap" + prefix + other).encrypt(_NONCE, key, prefix) for other in sorted(others)]
    return b"".join((prefix, *wraps, AESGCM(key).encrypt(_NONCE, raw, prefix)))


def open_deposit(keys: MemberKeys, frame: bytes, sealer: bytes | None) -> bytes:
    """Open a deposit that was sealed for this member.

    Args:
        keys: The member's.
        frame: The deposit.
        sealer: Key of whoever had the piece: nobody else may have sealed it. None: anybody whom this member has met.
    """
    prefix, count = frame[:_PREFIX], require_deposit(frame)
    owner = owner_of(frame)
    if sealer is not None and owner != sealer:
        raise MalformedMessage("a deposit that somebody else has sealed than had the piece")
    for at in range(_PREFIX, _PREFIX + count * _WRAP, _WRAP):
        if frame[at : at + KEY_BYTES] != keys.card.fresh:
            continue
        try:
            wrapped = frame[at + KEY_BYTES : at + _WRAP]
            key = keys.key(owner, b"wrap" + prefix + keys.card.fresh).decrypt(_NONCE, wrapped, prefix)
            return AESGCM(key).decrypt(_NONCE, frame[_PREFIX + count * _WRAP :], prefix)
        except InvalidTag:
            raise MalformedMessage("a deposit that was altered") from None
    raise MalformedMessage("a deposit that was not sealed for this member")


def require_deposit(frame: bytes) -> int:
    """Raise unless the frame is long enough for what it says of itself; return for how many members it was sealed."""
    if len(frame) < _PREFIX + TAG_BYTES:
        raise MalformedMessage(f"a deposit of {len(frame)} bytes is too short to be one")
    (count,) = _COUNT.unpack_from(frame, _PREFIX - _COUNT.size)
    if len(frame) < _PREFIX + count * _WRAP + TAG_BYTES:
        raise MalformedMessage(f"a deposit for {count} members is longer than {len(frame)} bytes")
    return int(count)


def is_deposit(frame: bytes, plan: SlicePlan) -> bool:
    """Tell whether a frame has the form of a deposit of its piece; whether it can be opened is for members to say."""
    try:
        piece, members = read_header(frame).piece - 1, require_deposit(frame) + 1
    except MalformedMessage:
        return False
    return piece in plan.owners and len(frame) == deposit_bytes(plan, piece, members)


def require_sealed(frame: bytes, plan: SlicePlan, piece: int, owner: bytes, others: Collection[bytes]) -> None:
    """Raise unless a deposit has the length of its piece, and was sealed by its owner for all others of the group."""
    if len(frame) != deposit_bytes(plan, piece, len(others) + 1):
        raise MalformedMessage(f"a deposit of {len(frame)} bytes, which is not its length")
    if owner_of(frame) != owner or sealed_for(frame) != set(others):
        raise MalformedMessage("a deposit that is not sealed by this member for all others")


def owner_of(frame: bytes) -> bytes:
    """Return the key of the card of whoever sealed a deposit."""
    return frame[HEADER_BYTES : HEADER_BYTES + KEY_BYTES]


def sealed_for(frame: bytes) -> set[bytes]:
    """Return the keys of the cards of all who can open a deposit."""
    count = require_deposit(frame)
    return {frame[at : at + KEY_BYTES] for at in range(_PREFIX, _PREFIX + count * _WRAP, _WRAP)}


def in_chunks(deposit: bytes, size: int = CHUNK_BYTES) -> list[bytes]:
    """Cut a deposit up; a short one goes as it is.

    >>> in_chunks(b"short")
    [b'short']
    """
    if len(deposit) <= size:
        return [deposit]
    count, header = -(-len(deposit) // size), read_header(deposit)
    return [
        header._replace(kind=CHUNK, micro=number, micros=count).pack() + deposit[number * size : (number + 1) * size]
        for number in range(count)
    ]


class ChunkGatherer:
    """Puts the chunks of one member together.

    Args:
        largest: Bytes that no deposit exceeds.
    """

    def __init__(self, largest: int) -> None:
        self._largest, self._parts, self._bytes = largest, list[bytes](), 0
        self._of: tuple[int, ...] = ()

    def take(self, header: Header, frame: bytes) -> bytes | None:
        """Take a chunk; return the deposit with its last one. Raises MalformedMessage for what cannot be."""
        of = (*header[4:8], header.micros, *header[11:14])
        if header.micro == 0:
            self._of, self._parts, self._bytes = of, [], 0
        if of != self._of or header.micro != len(self._parts):
            raise MalformedMessage(f"chunk {header.micro} of {header.micros} after {len(self._parts)} of a deposit")
        self._parts.append(frame[HEADER_BYTES:])
        self._bytes += len(frame) - HEADER_BYTES
        if self._bytes > self._largest:
            raise MalformedMessage(f"chunks of more than {self._largest} bytes")
        if len(self._parts) < header.micros:
            return None
        whole, self._parts, self._of = b"".join(self._parts), [], ()
        inside = read_header(whole)
        if inside.kind != DEPOSIT or (*inside[4:8], *inside[11:14]) != (*of[:4], *of[5:]):
            raise MalformedMessage("chunks of something else than the deposit that they name")
        return whole
