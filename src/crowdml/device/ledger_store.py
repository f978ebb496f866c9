"""The ledger on disk: an SQLite file of one device, safe against a crash at any moment.

A charge and the final bytes of its check-in are stored in one transaction, and only then handed out for sending. So
whatever was sent was charged before, a crash can at worst leave a charge without a send, and a resend after a crash has
the very same bytes. `synchronous=FULL` is asserted: with less, a power cut can lose what was promised to be stored.

After an error nobody knows what is on disk: a failed write or fsync ends the object, and its charge was not sent. On
opening, what the log holds is moved into the file and forced to disk, so that later entries never rest on bytes that an
earlier fsync failed to store.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput, record
from crowdml.core.errors import TermsViolated
from crowdml.device.ledger_head import Head, HeadFile
from crowdml.privacy.ledger import START, Cap, Entry, LedgerChain, Terms
from crowdml.privacy.promise import Promise
from crowdml.privacy.uses import Numbering, packed

SCHEMA = """
CREATE TABLE IF NOT EXISTS entries
  (number INTEGER PRIMARY KEY, raw BLOB NOT NULL, samples BLOB NOT NULL, hash BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS unsettled (key TEXT PRIMARY KEY, task TEXT NOT NULL, body BLOB NOT NULL);
"""


@record
class Unsettled:
    """A check-in that was charged and of which nobody knows yet whether it arrived."""

    key: str
    task: str
    body: bytes


class Ledger:
    """A device's ledger.

    >>> import tempfile
    >>> from crowdml.privacy import Event, Filter
    >>> terms = Terms(unit="device", filter=Filter(kind="pure", epsilon=2.0, delta=0.0), uses=2,
    ...               event=Event.of_pure(1.0))
    >>> with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.sqlite") as ledger:
    ...     ledger.accept("digits", "sheet-hash", terms)
    ...     body = ledger.charge("digits", "key", b"final bytes", version=0)
    ...     ledger.spent("digits")
    Promise(epsilon=1.0, delta=0.0)

    Args:
        path: The file; made if it is not there.
        cap: The owner's limit over all tasks.
    """

    def __init__(self, path: Path | str, cap: Cap = Cap()) -> None:  # noqa: B008  a frozen record
        """Open, lock and verify the whole chain."""
        self.path = Path(path)
        new = not self.path.exists()
        self._db = sqlite3.connect(self.path, isolation_level=None, timeout=5.0)
        self._head: HeadFile | None = None
        try:
            self._prepare(new)
            self.chain = LedgerChain(cap)
            self._load()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Ledger:
        """Use in a `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        self._db.close()
        if self._head is not None:
            self._head.close()

    def accept(self, task: str, sheet: str, terms: Terms) -> None:
        """Accept a task's terms, or raise `TermsViolated`. The same sheet again changes nothing."""
        if self.chain.agrees(task, sheet, terms):
            return
        self._write(self.chain.accept(task, sheet, terms), b"", None)

    def renew(self, task: str, sheet: str, terms: Terms) -> None:
        """Go on under the new sheet of a restored task, with the same terms and everything that was spent."""
        if not self.chain.agrees(task, sheet, terms):
            self._write(self.chain.renew(task, sheet, terms), b"", None)

    def charge(
        self,
        task: str,
        key: str,
        body: bytes,
        *,
        samples: npt.NDArray[Any] | None = None,
        version: int,
        uses: int = 1,
        numbering: Numbering | None = None,
    ) -> bytes:
        """Charge one release and keep its final bytes; return the bytes to send. A resend costs nothing.

        Raises:
            BudgetExhausted: The terms do not cover it.
            TermsViolated: Other bytes were charged under this key, or the task was never accepted.
        """
        numbers = np.zeros(0, np.int64) if samples is None else np.asarray(samples)
        entry = self.chain.charge(task, key, body, numbers, version, uses, numbering)
        if entry is not None:
            self._write(entry, packed(numbers), Unsettled(key=key, task=task, body=body))
        return body

    def lost(self, task: str) -> None:
        """Count every sample with the uses of the most used one: which has which number is no longer known."""
        self._write(self.chain.lost(task), b"", None)

    def settle(self, key: str) -> None:
        """Forget the bytes of a check-in that was acknowledged or refused for good; its charge stays."""
        try:
            self._db.execute("DELETE FROM unsettled WHERE key = ?", (key,))
        except BaseException:
            self.close()
            raise

    def unsettled(self) -> list[Unsettled]:
        """List what must be sent again, byte for byte, oldest first."""
        rows = self._db.execute("SELECT key, task, body FROM unsettled ORDER BY rowid").fetchall()
        return [Unsettled(key=key, task=task, body=body) for key, task, body in rows]

    def close_task(self, task: str, *, public: bool = False) -> None:
        """End a task. It goes on counting with its whole promise, unless its end was public.

        Args:
            task: The task.
            public: Whether its end follows from public history alone: announced to all devices, or reached by the
                number of releases in the terms. Only then may it count with less: see `crowdml.privacy.freeing`.
        """
        self._write(self.chain.close(task, public=public), b"", None)

    def spent(self, task: str) -> Promise:
        """Return ε spent by the unit that is worst off."""
        return self.chain.spent(task)

    def entries(self) -> list[bytes]:
        """Return all entries as they were written."""
        return [raw for (raw,) in self._db.execute("SELECT raw FROM entries ORDER BY number")]

    def _prepare(self, new: bool) -> None:
        mode = self._db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        self._db.execute("PRAGMA synchronous = FULL")
        level = self._db.execute("PRAGMA synchronous").fetchone()[0]
        if (mode, level) != ("wal", 2):
            raise BadInput(f"{self.path} cannot be written safely (journal {mode}, synchronous {level})")
        self._db.execute("BEGIN IMMEDIATE")
        for statement in SCHEMA.strip().split(";\n"):
            self._db.execute(statement)
        self._db.execute("COMMIT")
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if new:
            _sync_folder(self.path.parent)

    def _load(self) -> None:
        """Replay all entries and compare with the hashes that stand beside them, and with the file of the head."""
        replay, digest = self.chain.replay, START
        known = self._known()
        for raw, numbers, digest in self._db.execute("SELECT raw, samples, hash FROM entries ORDER BY number"):
            replay(raw, numbers)
            if self.chain.head != digest:
                raise TermsViolated(f"{self.path}: entry {self.chain.length - 1} is not the one that was written")
            if self.chain.length == known.count and digest != known.hash:
                raise TermsViolated(f"{self.path}: entry {known.count - 1} is of another ledger than before")
        if self.chain.length < known.count:
            raise TermsViolated(
                f"{self.path}: {self.chain.length} entries are there, {known.count} were written; the end was cut off, "
                "or an old copy was put back"
            )
        if self.chain.length > known.count:
            self._note()

    def _known(self) -> Head:
        """Return how far the ledger had come."""
        path = self.path.with_name(self.path.name + "-head")
        begun = self._db.execute("SELECT 1 FROM entries LIMIT 1").fetchone() is not None
        if begun and not path.exists():
            raise TermsViolated(f"{path} is missing: nobody can tell whether the ledger beside it is whole")
        made = not path.exists()
        self._head = HeadFile(path, START)
        if made:
            _sync_folder(path.parent)
        known = self._head.read()
        if known is None and begun:
            raise TermsViolated(f"{path} is damaged: nobody can tell whether the ledger beside it is whole")
        return known or Head(count=0, hash=START)

    def _note(self) -> None:
        """Note how far the ledger has come."""
        if self._head is not None:
            self._head.write(Head(count=self.chain.length, hash=self.chain.head))

    def _write(self, entry: Entry, numbers: bytes, sent: Unsettled | None) -> None:
        """Store an entry, and the bytes that belong to it, in one transaction; then count it."""
        number = self.chain.length
        before = self.chain.head
        try:
            self._db.execute("BEGIN IMMEDIATE")
            last = self._db.execute("SELECT hash FROM entries ORDER BY number DESC LIMIT 1").fetchone()
            if (last is not None and last[0] != before) or (last is None and number):
                raise TermsViolated(f"{self.path}: another process has written to this ledger")
            raw = self.chain.append(entry, numbers)
            self._db.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", (number, raw, numbers, self.chain.head))
            if sent is not None:
                self._db.execute("INSERT INTO unsettled VALUES (?, ?, ?)", (sent.key, sent.task, sent.body))
            self._db.execute("COMMIT")
            self._note()
        except BaseException:
            # Whether it is on disk is not known. The file decides when it is read again; this object is finished.
            self.close()
            raise


def _sync_folder(folder: Path) -> None:
    """Make the new file's name survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
