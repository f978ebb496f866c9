"""Deposits in chunks: a piece is megabytes, and sums of the next batches must not wait behind it.

A member sends a chunk whenever nothing else is to be done. The server puts the chunks of one deposit together, in their
order; what a new attempt fences off is dropped on either side.

    header of the deposit, with kind "chunk", number and count │ part of the deposit's bytes, its own header included
"""

from __future__ import annotations

from crowdml.core.errors import MalformedMessage
from crowdml.slicing.live.slice_frames import CHUNK, DEPOSIT, HEADER_BYTES, Header, read_header

CHUNK_BYTES = 1 << 16


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
