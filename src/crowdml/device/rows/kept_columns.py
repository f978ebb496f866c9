"""What a device sends of its rows in a net with noise on the first cut: drawn once for each sample, kept, charged.

    kept on disk ─► charged ─► sent, and sent again in every pass, replay and run

A crash before the charge leaves columns that nobody has seen; they are charged and sent next time. A crash after it
leaves a charge. Columns are in the file of the samples' numbers, so they are lost together, and the ledger notices
that. A column is never made twice for a sample that was charged.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt

from crowdml.core import Array
from crowdml.core.errors import TermsViolated
from crowdml.device.ledger_store import Ledger
from crowdml.privacy.ledger.spending import Numbering
from crowdml.privacy.noise.samplers import OsWords, Words
from crowdml.privacy.sanitisers.first_sums import Columns, FirstCut
from crowdml.wire.messages import check_in_key

SCHEMA = "CREATE TABLE IF NOT EXISTS columns (number INTEGER PRIMARY KEY, label INTEGER NOT NULL, body BLOB NOT NULL)"
Numbers = npt.NDArray[np.int64]


class KeptColumns:
    """Columns and labels of samples, by their numbers.

    Args:
        db: The file, open.
        transaction: Begins a transaction, and ends it.
    """

    def __init__(self, db: sqlite3.Connection, transaction: Callable[[], AbstractContextManager[None]]) -> None:
        self._db, self._transaction = db, transaction
        with transaction():
            db.execute(SCHEMA)

    def missing(self, numbers: Numbers) -> npt.NDArray[np.bool_]:
        """Tell which samples have none."""
        known = {number for (number,) in self._db.execute("SELECT number FROM columns")}
        return np.array([number not in known for number in numbers.tolist()], bool)

    def keep(self, numbers: Numbers, columns: Columns, labels: Numbers) -> None:
        """Store them, all or none; what was kept before stays as it is."""
        rows = zip(numbers.tolist(), labels.tolist(), columns.T, strict=True)
        with self._transaction():
            self._db.executemany(
                "INSERT INTO columns VALUES (?, ?, ?)",
                ((number, label, column.astype("<f4").tobytes()) for number, label, column in rows),
            )

    def read(self, numbers: Numbers) -> tuple[Columns, Numbers]:
        """Return columns and labels, in this order."""
        query = "SELECT body, label FROM columns WHERE number = ?"
        found = [self._db.execute(query, (number,)).fetchone() for number in numbers.tolist()]
        columns = np.stack([np.frombuffer(body, "<f4") for body, _ in found], axis=1)
        return np.ascontiguousarray(columns.astype(np.float32)), np.array([label for _, label in found], np.int64)


class ReleasedRows:
    """Gives out what is sent of a device's rows.

    Args:
        cut: Bound and noise.
        columns: Where they are kept.
        ledger: Charged before anything is given out.
        account: The task's name in it.
        rows: As the net sees them.
        labels: Their labels.
        numbers: Their numbers as samples.
        numbering: Which sample has which number.
        words: Entropy; given words are for tests.
    """

    def __init__(
        self,
        cut: FirstCut,
        columns: KeptColumns,
        ledger: Ledger,
        account: str,
        rows: Array,
        labels: Array,
        numbers: Numbers,
        numbering: Numbering,
        words: Words | None = None,
    ) -> None:
        self._cut, self._columns, self._ledger, self._account = cut, columns, ledger, account
        self._rows, self._labels, self._numbers, self._numbering = rows, np.asarray(labels), numbers, numbering
        self._words = words or OsWords()
        self._found: tuple[Columns, Numbers] | None = None

    def __call__(self, sums: Callable[[Array], Array]) -> tuple[Columns, Numbers]:
        """Return a column and a label for each row; draw, keep and charge those that have none yet."""
        if self._found is None:
            uncharged = self._ledger.chain.tasks[self._account].uses.each(self._numbers) == 0
            self._draw(sums, uncharged)
            self._found = self._columns.read(self._numbers)
            self._charge(uncharged)
        return self._found

    def _draw(self, sums: Callable[[Array], Array], uncharged: npt.NDArray[np.bool_]) -> None:
        new = self._columns.missing(self._numbers)
        if (new & ~uncharged).any():
            raise TermsViolated(
                f"what was sent of {int((new & ~uncharged).sum())} rows is no longer in this device's memory.sqlite; "
                "drawn again it would be a second release, and nothing is sent\n  put the newest copy of the file back"
            )
        if new.any():
            columns = self._cut.columns(sums(self._rows[new]).T, self._words)
            self._columns.keep(self._numbers[new], columns, self._cut.answers(self._labels[new], self._words))

    def _charge(self, uncharged: npt.NDArray[np.bool_]) -> None:
        """Charge one release of all samples that were never sent before anything of them is sent."""
        if not uncharged.any():
            return
        assert self._found is not None  # noqa: S101  read just now
        columns, labels = self._found
        content = columns[:, uncharged].T.astype("<f4").tobytes() + labels[uncharged].astype("<i8").tobytes()
        key = check_in_key(0)
        self._ledger.charge(
            self._account,
            key,
            # What is sent is in the other file: its hash names it here.
            hashlib.sha256(content).digest(),
            samples=self._numbers[uncharged],
            version=0,
            numbering=self._numbering,
        )
        self._ledger.settle(key)
