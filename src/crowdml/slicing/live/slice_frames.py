"""Frames: what members send each other through the relay, and the 36 bytes before it that the relay may read.

    version kind numbers stage │ group turn attempt batch │ micro micros rows from to piece │ sequence
       u8    u8    u8     u8   │  u32  u32    u32    u32  │  u16   u16   u16  u16  u16  u16 │   u32

The header is in clear and vouched for by the seal of what follows. The relay looks at sender, fence and length; bytes
pass unchanged.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crowdml.core.errors import MalformedMessage

_LAYOUT = struct.Struct("<BBBBIIIIHHHHHHI")
HEADER_BYTES = _LAYOUT.size
TAG_BYTES = 16
VERSION = 1
FORWARD, BACKWARD, TIED, DEPOSIT, UPLOAD, DOWNLOAD, CHUNK = 1, 2, 3, 4, 5, 6, 7
KINDS = {
    FORWARD: "forward",
    BACKWARD: "backward",
    TIED: "tied",
    DEPOSIT: "deposit",
    UPLOAD: "upload",
    DOWNLOAD: "download",
    CHUNK: "chunk",
}
BETWEEN_MEMBERS = (FORWARD, BACKWARD, TIED)
FORMATS = 3
"""How many ways there are to write numbers."""
SERVER = 0
"""Stands for the server where a member is named; members are numbered from 1."""
_INCARNATION_BITS = 16


class Header(NamedTuple):
    """The header of a frame.

    Attributes:
        version: Of this layout.
        kind: What the frame is.
        numbers: How its numbers are written.
        stage: Stage of the net.
        group: Number of the group.
        turn: Turn of the group since it was dealt.
        attempt: Attempt at that turn; never used twice.
        batch: Batches of the turn before this one; of a deposit, those that are in it.
        micro: Number of the micro-batch; of a deposit, whether it ends the turn; of a chunk, its number.
        micros: Micro-batches of this batch; of a chunk, how many there are.
        rows: Rows of the whole batch.
        sender: Member that sends.
        receiver: Member that receives.
        piece: Piece of the sender, counted from 1; the dominator's is 0.
        sequence: How many frames went from sender to receiver before, in this attempt.
    """

    version: int
    kind: int
    numbers: int
    stage: int
    group: int
    turn: int
    attempt: int
    batch: int
    micro: int
    micros: int
    rows: int
    sender: int
    receiver: int
    piece: int
    sequence: int

    def pack(self) -> bytes:
        """Write the header."""
        return _LAYOUT.pack(*self)

    @property
    def fence(self) -> tuple[int, int]:
        """Turn and attempt: whatever belongs to another is dropped."""
        return self.turn, self.attempt


def plain_header(kind: int, group: int, fence: tuple[int, int], ends: tuple[int, int], owner: int) -> Header:
    """Write the header of a frame about a whole piece; `ends` are its sender and its receiver."""
    return Header(VERSION, kind, 0, 0, group, *fence, 0, 0, 0, 0, *ends, owner + 1, 0)


def read_header(frame: bytes | bytearray | memoryview) -> Header:
    """Read the header of a frame; raise `MalformedMessage` for what cannot be one.

    >>> read_header(b"no")
    Traceback (most recent call last):
    ...
    crowdml.core.errors.MalformedMessage: a frame of 2 bytes is shorter than its header of 36
    """
    if len(frame) < HEADER_BYTES:
        raise MalformedMessage(f"a frame of {len(frame)} bytes is shorter than its header of {HEADER_BYTES}")
    header = Header._make(_LAYOUT.unpack_from(frame))
    if header.version != VERSION:
        raise MalformedMessage(f"a frame of version {header.version}; {VERSION} is spoken here")
    if header.kind not in KINDS:
        raise MalformedMessage(f"there is no kind {header.kind} of frames")
    if header.numbers >= FORMATS:
        raise MalformedMessage(f"there is no way {header.numbers} to write numbers")
    if header.kind in BETWEEN_MEMBERS and not (
        0 <= header.micro < header.micros <= header.rows and header.sender != header.receiver and header.receiver
    ):
        raise MalformedMessage(
            f"micro-batch {header.micro} of {header.micros} with {header.rows} rows, from member {header.sender} to "
            f"{header.receiver}, is none"
        )
    return header


def attempt_number(incarnation: int, attempt: int) -> int:
    """Number an attempt so that no start of the server ever gives the same number again.

    >>> attempt_number(2, 3)
    131075
    """
    if not 0 <= attempt < 1 << _INCARNATION_BITS or not 0 <= incarnation < 1 << _INCARNATION_BITS:
        raise ValueError(f"attempt {attempt} of incarnation {incarnation}: each is below {1 << _INCARNATION_BITS}")
    return (incarnation << _INCARNATION_BITS) + attempt
