"""A second file beside the ledger that says how far the ledger had come: a cut end, or an old copy, shows.

A hash chain proves that nothing in it was changed, not that nothing is missing at its end. So the number of entries and
the hash of the last one are also written into a small file of their own, after each entry is stored. When the ledger is
opened it must still contain that entry. Whoever puts back an old copy of *both* files is not noticed here: the server's
mirror of the ledger, which has seen later releases, notices that.

The file has two places of 512 bytes, used in turn: count (8 bytes, little-endian), hash (32 bytes), SHA-256 over both.
A write that a power cut tears leaves the other place whole. It is not forced to disk each time: after a power cut it
may lag behind the ledger, which only makes it say less.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from crowdml.core import record

PLACE = 512
_SIZE = 8 + 32


@record
class Head:
    """Number of entries, and hash of the last one."""

    count: int
    hash: bytes


class HeadFile:
    """The file. It is made, and forced to disk, before the ledger's first entry."""

    def __init__(self, path: Path, first: bytes) -> None:
        """Open the file; make it where it is not there."""
        new = not path.exists()
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if new:
            self.write(Head(count=0, hash=first))
            os.fsync(self._handle)

    def read(self) -> Head | None:
        """Return what was written last; None where the file holds nothing whole."""
        found = [_decode(os.pread(self._handle, PLACE, place * PLACE)) for place in (0, 1)]
        return max((own for own in found if own is not None), key=lambda own: own.count, default=None)

    def write(self, head: Head) -> None:
        """Write into the place that does not hold the entry before."""
        content = head.count.to_bytes(8, "little") + head.hash
        raw = (content + hashlib.sha256(content).digest()).ljust(PLACE, b"\0")
        if os.pwrite(self._handle, raw, head.count % 2 * PLACE) != PLACE:
            raise OSError("the end of the ledger could not be noted")

    def close(self) -> None:
        """Let go of the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _decode(raw: bytes) -> Head | None:
    content, check = raw[:_SIZE], raw[_SIZE : _SIZE + 32]
    if len(check) < 32 or hashlib.sha256(content).digest() != check:
        return None
    return Head(count=int.from_bytes(content[:8], "little"), hash=content[8:])
