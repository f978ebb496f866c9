"""What a device remembers of one task: the algorithm's own state, versions it has seen, and its samples.

A release may change the algorithm's state, but only once the server has used it. So the new state is stored beside the
release's key before the charge, and takes the old one's place with the receipt: a device that is killed in between
sends the same bytes again and ends up in the same state.

The file with the numbers of samples may be lost, cut off or an older copy. The ledger holds the hash of the numbering
with every charge (see `sample_numbers`), so the device notices, stops, and says so. Without the numbers nobody can tell
how often which row was used: the owner puts the file back, or lets every sample count with the uses of the most used
one, since any may be that one; where nothing is left then, the owner can only withdraw.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from crowdml.core import BadInput
from crowdml.core.errors import TermsViolated
from crowdml.core.files import sqlite_errors
from crowdml.device.device_home import Home, Member
from crowdml.device.ledger_store import Ledger
from crowdml.device.rows.kept_columns import KeptColumns
from crowdml.device.rows.sample_numbers import SampleNumbers

_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS states (key TEXT PRIMARY KEY, version INTEGER NOT NULL, body BLOB NOT NULL);
"""
_NOTHING_SEEN = {"version": -1, "contributed": -1, "number": 0}
_PRESENT = ""
"""Key of the state that counts."""


class Memory:
    """The memory of a device for one task, in an SQLite file.

    Args:
        path: The file.

    Attributes:
        samples: Which sample has which number.
        columns: What was drawn for samples, where that is done once.
    """

    def __init__(self, path: Path | str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, timeout=5.0)
        try:
            with sqlite_errors():
                mode = self._db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                self._db.execute("PRAGMA synchronous = FULL")
                if (mode, self._db.execute("PRAGMA synchronous").fetchone()[0]) != ("wal", 2):
                    raise BadInput(f"{path} cannot be written safely (journal {mode})")
                with self._transaction():
                    for statement in _SCHEMA.strip().split(";\n"):
                        self._db.execute(statement)
                # What the log holds goes to disk now: the ledger will rest on it.
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                self._facts: dict[str, int] = _NOTHING_SEEN | dict(self._db.execute("SELECT name, value FROM facts"))
                self.samples = SampleNumbers(self._db, self._transaction)
                self.columns = KeptColumns(self._db, self._transaction)
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise BadInput(
                f"{path} cannot be used: {error}",
                hint="put it back from a backup; if there is none, move it away and start the device: it says what "
                "is left to do",
            ) from None
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    @property
    def version(self) -> int:
        """Newest version seen in this incarnation of the task; -1 at first."""
        return self._facts["version"]

    @property
    def contributed(self) -> int:
        """Version from which the last release that was used had started; -1 at first."""
        return self._facts["contributed"]

    @property
    def number(self) -> int:
        """Number on the newest receipt of this incarnation; 0 at first."""
        return self._facts["number"]

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

    def started(self, key: str) -> int:
        """Return the version from which the release of that key started; the last one used, where it is settled."""
        found = self._db.execute("SELECT version FROM states WHERE key = ?", (key,)).fetchone()
        return self.contributed if found is None else int(found[0])

    def refused(self, key: str) -> None:
        """Forget the state that would have followed."""
        with self._transaction():
            self._db.execute("DELETE FROM states WHERE key = ?", (key,))

    def begin_again(self, version: int = -1) -> None:
        """Forget which versions and receipts the server had: it was restored, or this device joined anew.

        Args:
            version: Where it went back to; from now on nothing older is believed.
        """
        with self._transaction():
            self._db.executemany("DELETE FROM facts WHERE name = ?", [(name,) for name in _NOTHING_SEEN])
            self._facts |= _NOTHING_SEEN
            if version >= 0:
                self._keep("version", version)

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


def kept_state(path: Path) -> bytes | None:
    """Return the algorithm's state as it was stored, also while the device runs; None at first. Nothing is written."""
    if not path.stat().st_size:
        return None
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)) as database:
        found = database.execute("SELECT body FROM states WHERE key = ?", (_PRESENT,)).fetchone()
    return None if found is None else bytes(found[0])


def require_numbering(ledger: Ledger, member: Member, memory: Memory, path: Path) -> None:
    """Refuse to go on with other numbers of samples than the ledger has counted with."""
    if has_numbering(ledger, member, memory):
        return
    spending, found = ledger.chain.tasks[member.account], memory.samples.numbering.count
    counted = spending.numbering.count if spending.numbering else len(np.flatnonzero(spending.uses.counts()))
    most, uses = spending.uses.most(), spending.terms.uses
    if most < uses:
        left = f"crowdml device renumber; every sample then counts as used {most} of {uses} times"
    else:
        left = f"crowdml device withdraw; a sample was used {most} of {uses} times, any may be it, and nothing is left"
    raise TermsViolated(
        f"{path} is not the file that the ledger has counted with: {found} samples are known in it, {counted} were "
        "counted. It was lost, cut off, changed or replaced by an older copy, so nobody can tell how often which row "
        f"was used; nothing is sent\n  put the newest copy of the file back\n  if it is lost for good: {left}"
    )


def has_numbering(ledger: Ledger, member: Member, memory: Memory) -> bool:
    """Tell whether the numbers of samples are those that the ledger has counted with.

    Any will do where nothing is promised to samples. A ledger from before charges named a numbering is believed if each
    number in it is one of a sample that is still known.
    """
    spending = ledger.chain.tasks[member.account]
    return spending.terms.unit != "sample" or memory.samples.holds(spending.numbering, spending.uses)


def renumber(home: Home, member: Member) -> int:
    """Go on after the numbers were lost: every sample counts with the uses of the most used one, which are returned.

    Raises:
        BadInput: Nothing is lost, or nothing would be left.
    """
    with home.lock(), home.ledger() as ledger, closing(Memory(home.memory_path(member))) as memory:
        if has_numbering(ledger, member, memory):
            raise BadInput(f"{member.task}: no numbers of samples are lost", hint="crowdml device run --rows FILE")
        spending = ledger.chain.tasks[member.account]
        most, uses = spending.uses.most(), spending.terms.uses
        if most >= uses:
            raise BadInput(
                f"{member.task}: a sample was used {most} of {uses} times, any may be it, and nothing is left",
                hint="put the newest copy of memory.sqlite back, or leave: crowdml device withdraw",
            )
        # What is left in the file may stay: whichever number a sample has, it counts with these uses.
        ledger.lost(member.account)
        return most
