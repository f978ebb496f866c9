"""The ledger on disk: an SQLite file of one device, safe against a crash at any moment.

A charge and the final bytes of its check-in are stored in one transaction, and only then handed out for sending. So
whatever was sent was charged before, a crash can at worst leave a charge without a send, and a resend after a crash has
the very same bytes. `synchronous=FULL` is asserted: with less, a power cut can lose what was promised to be stored.

After an error nobody knows what is on disk: a failed write or fsync ends the object, and its charge was not sent. On
opening, what the log holds is moved into the file and forced to disk, so that later entries never rest on bytes that an
earlier fsync failed to store.

A hash chain proves that nothing in it was changed, not that nothing is missing at its end. So how far it had come is
written into a second file beside it, after each entry: a cut end, or an old copy, shows. Whoever puts back an old copy
of *both* files is not noticed here: the server's receipts for later releases notice that.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput, record
from crowdml.core.errors import TermsViolated
from crowdml.core.files import sqlite_errors
from crowdml.core.portable import PLAIN_FLAGS, read_at, sync_folder, write_at
from crowdml.privacy.ledger.entries import NOISE_KEYS, AcceptedTerms, Entry
from crowdml.privacy.ledger.ledger_chain import START, Cap, LedgerChain
from crowdml.privacy.ledger.spending import Numbering, packed
from crowdml.privacy.promise import Promise

FORMAT, FORMAT_OF_NOISE = 2, 3
"""Of the entries; SQLite keeps it in the file (`user_version`). In the second they may say that noise is Gaussian and
add up to less than in the first: who reads only that one must not go on with noise of another law."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS entries
  (number INTEGER PRIMARY KEY, raw BLOB NOT NULL, samples BLOB NOT NULL, hash BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS unsettled (key TEXT PRIMARY KEY, task TEXT NOT NULL, body BLOB NOT NULL);
"""
_DAMAGED = {
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_SCHEMA,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_TOOBIG,
}
"""What SQLite says of a file whose bytes are not those that it has written."""
PLACE = 512
_SIZE = 8 + 32


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
    >>> terms = AcceptedTerms(unit="device", filter=Filter(kind="pure", epsilon=2.0, delta=0.0), uses=2,
    ...               event=Event.of_pure(1.0))
    >>> with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.sqlite") as ledger:
    ...     ledger.accept("digits", "task-hash", terms)
    ...     body = ledger.charge("digits", "key", b"final bytes", version=0)
    ...     ledger.spent("digits")
    Promise(epsilon=1.0, delta=0.0)

    Args:
        path: The file; made if it is not there.
        cap: The owner's limit over all tasks.
    """

    def __init__(self, path: Path | str, cap: Cap = Cap()) -> None:  # noqa: B008  a frozen record
        """Open, lock and verify the whole chain."""
        self.path, self.chain = Path(path), LedgerChain(cap)
        new = not self.path.exists()
        with ExitStack() as files:
            self._db = files.enter_context(closing(sqlite3.connect(self.path, isolation_level=None, timeout=5.0)))
            try:
                with sqlite_errors():
                    self._prepare(new)
                    self._load(self._known(files))
            except sqlite3.DatabaseError as error:
                raise self._explained(error) from error
            self._files = files.pop_all()

    def __enter__(self) -> Ledger:
        """Use in a `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close at the end of a `with` block."""
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        self._files.close()

    def accept(self, task: str, task_hash: str, terms: AcceptedTerms) -> None:
        """Accept a task's terms, or raise `TermsViolated`. The same one again changes nothing."""
        if not self.chain.agrees(task, task_hash, terms):
            self._write(self.chain.accept(task, task_hash, terms))

    def renew(self, task: str, task_hash: str, terms: AcceptedTerms) -> None:
        """Go on with a restored task as it was signed anew, with the same terms and everything that was spent."""
        if not self.chain.agrees(task, task_hash, terms):
            self._write(self.chain.renew(task, task_hash, terms))

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
        self._write(self.chain.lost(task))

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
        """End a task; twice is as good as once. It goes on counting with its whole promise, unless its end was public.

        Args:
            task: The task.
            public: Whether its end follows from public history alone: announced to all devices, or reached by the
                number of releases in the terms. Only then may it count with less: see
                `crowdml.privacy.ledger.spending`.
        """
        known = self.chain.tasks.get(task)
        if known is None or not known.closed:
            self._write(self.chain.close(task, public=public))

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
        self._require_format()
        self._db.execute("COMMIT")
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if new:
            sync_folder(self.path.parent)

    def _explained(self, error: sqlite3.DatabaseError) -> Exception:
        """Say of an error whether the file is to blame: a disk that fails, or a file in use, is another matter."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in _DAMAGED:
            return TermsViolated(f"{self.path} is damaged ({error}): what was spent cannot be told from it")
        if code == sqlite3.SQLITE_READONLY:
            return BadInput(f"{self.path} cannot be written: {error}")
        return error

    def _require_format(self) -> None:
        """Refuse entries of another format, which nothing here could replay; a ledger without entries gets ours."""
        found = self._db.execute("PRAGMA user_version").fetchone()[0]
        if found in (FORMAT, FORMAT_OF_NOISE):
            return
        if self._db.execute("SELECT 1 FROM entries LIMIT 1").fetchone() is not None:
            raise BadInput(
                f"{self.path} was written by another version of crowdml: its entries have format {found or 1}, and "
                f"{FORMAT} and {FORMAT_OF_NOISE} are read here",
                hint="use the crowdml that wrote it; or move the folder away and join anew, knowing that what was "
                "spent so far is then not counted",
            )
        self._db.execute(f"PRAGMA user_version = {FORMAT}")

    def _load(self, known: Head) -> None:
        """Replay all entries and compare with the hashes that stand beside them, and with the file of the head."""
        for raw, numbers, digest in self._db.execute("SELECT raw, samples, hash FROM entries ORDER BY number"):
            if not all(isinstance(part, bytes) for part in (raw, numbers, digest)):
                raise TermsViolated(f"{self.path}: entry {self.chain.length} is not the one that was written")
            self.chain.replay(raw, numbers)
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
            self._head.write(Head(count=self.chain.length, hash=self.chain.head))

    def _known(self, files: ExitStack) -> Head:
        """Open the second file, and return how far the ledger had come."""
        path = self.path.with_name(self.path.name + "-head")
        begun = self._db.execute("SELECT 1 FROM entries LIMIT 1").fetchone() is not None
        if begun and not path.exists():
            raise TermsViolated(f"{path} is missing: nobody can tell whether the ledger beside it is whole")
        self._head = files.enter_context(closing(HeadFile(path)))
        known = self._head.read()
        if known is None and begun:
            raise TermsViolated(f"{path} is damaged: nobody can tell whether the ledger beside it is whole")
        return known or Head(count=0, hash=START)

    def _write(self, entry: Entry, numbers: bytes = b"", sent: Unsettled | None = None) -> None:
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
            if NOISE_KEYS & entry.keys():
                self._db.execute(f"PRAGMA user_version = {FORMAT_OF_NOISE}")
            if sent is not None:
                self._db.execute("INSERT INTO unsettled VALUES (?, ?, ?)", (sent.key, sent.task, sent.body))
            self._db.execute("COMMIT")
            self._head.write(Head(count=self.chain.length, hash=self.chain.head))
        except BaseException:
            # Whether it is on disk is not known. The file decides when it is read again; this object is finished.
            self.close()
            raise


@record
class Head:
    """Number of entries, and hash of the last one."""

    count: int
    hash: bytes


class HeadFile:
    """The file. It is made, and forced to disk, before the ledger's first entry."""

    def __init__(self, path: Path) -> None:
        """Open the file; make it where it is not there."""
        new = not path.exists()
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | PLAIN_FLAGS, 0o600)
        if new:
            self.write(Head(count=0, hash=START))
            os.fsync(self._handle)
            sync_folder(path.parent)

    def read(self) -> Head | None:
        """Return what was written last; None where the file holds nothing whole."""
        found = [_decode(read_at(self._handle, PLACE, place * PLACE)) for place in (0, 1)]
        return max((head for head in found if head is not None), key=lambda head: head.count, default=None)

    def write(self, head: Head) -> None:
        """Write into the place that does not hold the entry before."""
        content = head.count.to_bytes(8, "little") + head.hash
        raw = (content + hashlib.sha256(content).digest()).ljust(PLACE, b"\0")
        if write_at(self._handle, raw, head.count % 2 * PLACE) != PLACE:
            raise OSError("the end of the ledger could not be noted")

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._handle)


def _decode(raw: bytes) -> Head | None:
    content, check = raw[:_SIZE], raw[_SIZE : _SIZE + 32]
    if len(check) < 32 or hashlib.sha256(content).digest() != check:
        return None
    return Head(count=int.from_bytes(content[:8], "little"), hash=content[8:])
