"""What is a sample: the same row is the same sample, and keeps its number, whichever way it comes in.

A row is known by its content, as 32-bit numbers with its label; or by its id, where the task names a column of ids:
then whatever else stands in the row may change. Equal rows of one table are told apart by their occurrence, since the
table says that there are so many. A stream says no such thing: whoever feeds it twice feeds the same rows, so there an
equal row is the same sample again.

Uses are counted by number, so whoever loses the numbers begins to count anew. Therefore a running hash over them, the
*numbering*, goes into the ledger with every charge. Numbers are on disk before the charge that uses them: a device that
is killed in between has numbers which the ledger does not know of, and that is no harm. Fewer than the ledger knows of,
or others, are a loss.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt

from crowdml.core import record
from crowdml.data.rows.row_tables import Table
from crowdml.privacy.ledger.spending import Numbering, UsesState

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS salt (value BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS samples (digest BLOB, occurrence INTEGER, number INTEGER NOT NULL, "
    "PRIMARY KEY (digest, occurrence)) WITHOUT ROWID",
)
_PURPOSE = b"crowdml samples 1\0"
Key = tuple[bytes, int]
"""Digest of a row, and which of several equal ones it is."""
Numbers = npt.NDArray[np.int64]


@record
class RowsChanged:
    """How a table differs from the one of last time.

    Attributes:
        rows: Rows in it.
        new: Of these, how many have never been seen.
        used: Rows of last time that were used in a release.
        gone: Of these, how many are no longer there.
    """

    rows: int
    new: int
    used: int
    gone: int

    @property
    def is_doubtful(self) -> bool:
        """Whether these may be the same samples written differently: most rows are new, and a tenth or more gone.

        >>> RowsChanged(rows=100, new=100, used=80, gone=80).is_doubtful
        True
        >>> RowsChanged(rows=300, new=200, used=80, gone=0).is_doubtful
        False
        """
        return 2 * self.new > self.rows and self.gone > 0 and 10 * self.gone >= self.used


class SampleNumbers:
    """Numbers of the samples of one task, in the file of what the device remembers.

    Args:
        db: The file, open.
        transaction: Begins a transaction, and ends it.

    Attributes:
        numbering: The hash over all numbers that were given.
        following: The first number that no sample with a digest has.
    """

    def __init__(self, db: sqlite3.Connection, transaction: Callable[[], AbstractContextManager[None]]) -> None:
        """Read what is there; make it where it is not."""
        self._db, self._transaction = db, transaction
        with transaction():
            for statement in SCHEMA:
                db.execute(statement)
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'latest'").fetchone():
                db.execute("CREATE TABLE latest (number INTEGER PRIMARY KEY)")
                # For a file from before there was this table.
                db.execute("INSERT INTO latest SELECT number FROM samples")
            if db.execute("SELECT count(*) FROM salt").fetchone()[0] == 0:
                db.execute("INSERT INTO salt VALUES (?)", (os.urandom(32),))
        # Digests stay when the samples are gone: without this secret they say nothing.
        self._salt = bytes(db.execute("SELECT value FROM salt").fetchone()[0])
        self.numbering = self._first(None)
        self.following: int = db.execute("SELECT coalesce(max(number) + 1, 0) FROM samples").fetchone()[0]

    def digests(self, table: Table) -> list[bytes]:
        """Name every row: by its id, or by its numbers and its label."""
        if table.ids is not None:
            return [self._digest(name.encode(), b"crowdml id") for name in table.ids]
        kind = "<f4" if table.targets.dtype.kind == "f" else "<i4"
        rows, targets = (table.rows + np.float32(0)).astype("<f4"), table.targets.astype(kind)
        return [self._digest(row.tobytes() + target.tobytes()) for row, target in zip(rows, targets, strict=True)]

    def of_table(self, digests: Sequence[bytes], free: int = 0) -> Numbers:
        """Number the rows of a table; equal ones by their occurrence.

        Args:
            digests: Of the rows, in their order.
            free: First number that no row without a digest has.
        """
        return self._numbered(_occurrences(digests), free)

    def of_stream(self, digests: Sequence[bytes], free: int = 0) -> Numbers:
        """Number rows that pass; equal ones are one sample."""
        return self._numbered([(digest, 0) for digest in digests], free)

    def compare_next_with(self, numbers: Numbers) -> None:
        """Store which table the next one is compared with: for one that a release is made of, never a mere try."""
        rows = sorted(numbers.tolist())
        if rows != [number for (number,) in self._db.execute("SELECT number FROM latest ORDER BY number")]:
            with self._transaction():
                self._db.execute("DELETE FROM latest")
                self._db.executemany("INSERT INTO latest VALUES (?)", ((number,) for number in rows))

    def change(self, digests: Sequence[bytes], uses: UsesState) -> RowsChanged:
        """Compare a table with the one of last time; nothing is stored."""
        found = [self._find(key) for key in _occurrences(digests)]
        known = {number for number in found if number is not None}
        before = np.array([number for (number,) in self._db.execute("SELECT number FROM latest")], np.int64)
        used = before[uses.each(before) > 0].tolist()
        gone = sum(number not in known for number in used)
        return RowsChanged(rows=len(digests), new=found.count(None), used=len(used), gone=gone)

    def holds(self, known: Numbering | None, uses: UsesState) -> bool:
        """Tell whether these are the numbers that the ledger has counted with, and perhaps more.

        Args:
            known: What the ledger has; None where its charges name no numbering.
            uses: What the ledger has counted; every number in it must be one of a sample that is known here.
        """
        if known is not None:
            return self._first(known.count) == known
        charged = np.flatnonzero(uses.counts()).tolist()
        return set(charged) <= {number for (number,) in self._db.execute("SELECT number FROM samples")}

    def _numbered(self, keys: Sequence[Key], free: int) -> Numbers:
        following, numbers, new = max(self.following, free), list[int](), dict[Key, int]()
        for key in keys:
            number = self._find(key)
            if number is None:
                number = new.setdefault(key, following)
                following += number == following
            numbers.append(number)
        if new:
            self._store([(*key, number) for key, number in new.items()])
        return np.array(numbers, np.int64)

    def _store(self, new: list[tuple[bytes, int, int]]) -> None:
        hash_ = bytes.fromhex(self.numbering.hash)
        for each in new:
            hash_ = _next_hash(hash_, *each)
        with self._transaction():
            self._db.executemany("INSERT INTO samples VALUES (?, ?, ?)", new)
        self.numbering = Numbering(count=self.numbering.count + len(new), hash=hash_.hex())
        self.following = max(self.following, *(number + 1 for *_, number in new))

    def _find(self, key: Key) -> int | None:
        found = self._db.execute("SELECT number FROM samples WHERE digest = ? AND occurrence = ?", key).fetchone()
        return None if found is None else int(found[0])

    def _first(self, count: int | None) -> Numbering:
        """Hash the first so many numbers; None: all."""
        hash_, length = hashlib.sha256(_PURPOSE + self._salt).digest(), 0
        query = "SELECT digest, occurrence, number FROM samples ORDER BY number LIMIT ?"
        for digest, occurrence, number in self._db.execute(query, (-1 if count is None else count,)):
            hash_, length = _next_hash(hash_, digest, occurrence, number), length + 1
        return Numbering(count=length, hash=hash_.hex())

    def _digest(self, content: bytes, person: bytes = b"") -> bytes:
        return hashlib.blake2b(content, key=self._salt, digest_size=16, person=person).digest()


def _occurrences(digests: Sequence[bytes]) -> list[Key]:
    seen: dict[bytes, int] = {}
    keys = []
    for digest in digests:
        seen[digest] = seen.get(digest, -1) + 1
        keys.append((digest, seen[digest]))
    return keys


def _next_hash(before: bytes, digest: bytes, occurrence: int, number: int) -> bytes:
    return hashlib.sha256(before + digest + occurrence.to_bytes(8, "little") + number.to_bytes(8, "little")).digest()
