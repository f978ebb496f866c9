"""What a device remembers of one task: the algorithm's own state, versions it has seen, numbers of its samples.

A release may change the algorithm's state, but only once the server has used it. So the new state is stored beside the
release's key before the charge, and takes the old one's place with the receipt: a device that is killed in between
sends the same bytes again and ends up in the same state.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput

_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS salt (value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS states (key TEXT PRIMARY KEY, version INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS samples (digest BLOB, occurrence INTEGER, number INTEGER NOT NULL,
    PRIMARY KEY (digest, occurrence)) WITHOUT ROWID;
"""
_PRESENT = ""
"""Key of the state that counts."""


class Memory:
    """The memory of a device for one task, in an SQLite file.

    Args:
        path: The file.

    Attributes:
        salt: Secret for digests of samples, which stay when the samples are gone: without it they say nothing.
    """

    def __init__(self, path: Path | str) -> None:
        """Open the file."""
        self._db = sqlite3.connect(path, isolation_level=None, timeout=5.0)
        try:
            mode = self._db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            self._db.execute("PRAGMA synchronous = FULL")
            if (mode, self._db.execute("PRAGMA synchronous").fetchone()[0]) != ("wal", 2):
                raise BadInput(f"{path} cannot be written safely (journal {mode})")
            with self._transaction():
                for statement in _SCHEMA.strip().split(";\n"):
                    self._db.execute(statement)
                if self._db.execute("SELECT count(*) FROM salt").fetchone()[0] == 0:
                    self._db.execute("INSERT INTO salt VALUES (?)", (os.urandom(32),))
            self.salt = bytes(self._db.execute("SELECT value FROM salt").fetchone()[0])
            self._facts: dict[str, int] = dict(self._db.execute("SELECT name, value FROM facts"))
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    @property
    def version(self) -> int:
        """Newest version seen in this incarnation of the task; -1 at first."""
        return self._facts.get("version", -1)

    @property
    def contributed(self) -> int:
        """Version from which the last release that was used had started; -1 at first."""
        return self._facts.get("contributed", -1)

    @property
    def number(self) -> int:
        """Number on the newest receipt of this incarnation; 0 at first."""
        return self._facts.get("number", 0)

    def tries(self, version: int) -> int:
        """Return how many releases that started from a version were about to be charged."""
        return self._facts.get("tries", 0) if self._facts.get("tried", -1) == version else 0

    def state(self) -> bytes | None:
        """Return the algorithm's state as it was stored; None at first."""
        found = self._db.execute("SELECT body FROM states WHERE key = ?", (_PRESENT,)).fetchone()
        return None if found is None else bytes(found[0])

    def expect(self, key: str, version: int, state: bytes) -> None:
        """Store which state follows if the release of that key is used, before it is charged.

        Whatever else was expected is forgotten: it was never charged, or it is settled.
        """
        with self._transaction():
            self._db.execute("DELETE FROM states WHERE key != ?", (_PRESENT,))
            self._db.execute("INSERT INTO states VALUES (?, ?, ?)", (key, version, state))
            self._keep("tries", self.tries(version) + 1)
            self._keep("tried", version)
            self._keep("version", max(version, self.version))

    def used(self, key: str, number: int, version: int) -> None:
        """Take note of a receipt: from now on the state that was expected counts. Twice is as good as once.

        Args:
            key: Of the release.
            number: On the receipt.
            version: The newest the server is known to have.
        """
        with self._transaction():
            found = self._db.execute("SELECT version, body FROM states WHERE key = ?", (key,)).fetchone()
            if found is not None:
                self._db.execute("DELETE FROM states WHERE key IN (?, ?)", (key, _PRESENT))
                self._db.execute("INSERT INTO states VALUES (?, ?, ?)", (_PRESENT, *found))
                self._keep("contributed", found[0])
            self._keep("version", max(version, self.version))
            self._keep("number", max(number, self.number))

    def refused(self, key: str) -> None:
        """Forget the state that would have followed."""
        with self._transaction():
            self._db.execute("DELETE FROM states WHERE key = ?", (key,))

    def begin_again(self) -> None:
        """Forget which versions and receipts the server had: it was restored, or this device joined anew."""
        with self._transaction():
            for name in ("version", "contributed", "number"):
                self._db.execute("DELETE FROM facts WHERE name = ?", (name,))
                self._facts.pop(name, None)

    def numbers(self, digests: Sequence[bytes], free: int) -> npt.NDArray[np.int64]:
        """Number samples by content: equal rows by their occurrence, and always the same number for the same one.

        Args:
            digests: Of the rows, in their order.
            free: First number that no streamed row has.
        """
        known = {(digest, at): number for digest, at, number in self._db.execute("SELECT * FROM samples")}
        following = max([free, *(number + 1 for number in known.values())])
        seen: dict[bytes, int] = {}
        found, new = [], []
        for digest in digests:
            at = seen[digest] = seen.get(digest, -1) + 1
            number = known.get((digest, at))
            if number is None:
                number, following = following, following + 1
                new.append((digest, at, number))
            found.append(number)
        if new:
            with self._transaction():
                self._db.executemany("INSERT INTO samples VALUES (?, ?, ?)", new)
        return np.array(found, np.int64)

    def next_number(self) -> int:
        """Return the first number that no sample with a digest has."""
        found = self._db.execute("SELECT max(number) FROM samples").fetchone()[0]
        return 0 if found is None else int(found) + 1

    def _keep(self, name: str, value: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))
        self._facts[name] = value

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            # Whether it is on disk is not known; the file decides when it is read again.
            self._db.close()
            raise
