"""What runs for every batch of check-ins: looking up receipts, and storing the batch.

The statements are handed to the driver's own cursor as text with plain tuples: to run a statement, SQLAlchemy takes
more time than the statement itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from crowdml.server.store.counters import Counter, Counters
from crowdml.server.store.errors import StoreConflict
from crowdml.server.store.records import Applied, Receipt
from crowdml.server.store.statements import Statements

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import DBAPICursor

GROUPS = (1, 8, 64, 256)
"""SQLite looks up so many keys at a time; lists are filled up to one of these, so that few statements are compiled."""

INSERTS = (256, 128, 64, 32, 16, 8, 4, 2, 1)
"""SQLite stores so many receipts with one statement. Its driver gives the interpreter's lock away at every statement,
and has to wait for it again: with one statement for each receipt the waiting would cost more than the storing."""

Key = tuple[int, str]
"""A slot and an idempotency key."""


class Hot:
    """The statements of one kind of database, ready to run."""

    def __init__(self, statements: Statements, postgres: bool) -> None:
        """Write out those for several rows."""
        self._own, self._postgres = statements, postgres
        self._inserts = {size: _repeated(statements.receipts, size) for size in INSERTS}
        # SQLAlchemy would take a tenth of a second to write all these pairs.
        pairs = {size: ", ".join(["(?, ?)"] * size) for size in GROUPS}
        self._groups = {size: statements.look_up.replace("(?, ?)", own) for size, own in pairs.items()}

    def apply(self, cursor: DBAPICursor, done: Applied, counters: Counters) -> dict[int, Counter]:
        """Store a batch, inside a transaction; return the counters of its slots."""
        task = done.task
        to = (done.version, done.check_ins, done.received)
        fence = (task, done.expected_version, done.expected_check_ins)
        turn = () if done.state is None else (done.state, done.reason)
        cursor.execute(self._own.turn if turn else self._own.advance, (*turn, *to, *fence))
        if cursor.rowcount != 1:
            raise StoreConflict(f"task {task} is not at version {fence[1]} with {fence[2]} check-ins any more")
        cursor.execute(self._own.state, (done.server_state, task))
        new, fresh = _chained(done, counters)
        self._insert(cursor, new)
        if done.rows:
            cursor.executemany(self._own.row, [(row, task, slot) for slot, row in done.rows.items()])
        if done.point:
            p = done.point
            values = (task, p.check_ins, p.version, p.rows, p.estimated_error, p.time, p.counted, p.errors)
            cursor.execute(self._own.point, values)
        return fresh

    def _insert(self, cursor: DBAPICursor, new: list[tuple[Any, ...]]) -> None:
        if self._postgres:
            cursor.executemany(self._own.receipts, new)
            return
        at = 0
        for size in INSERTS:
            while len(new) - at >= size:
                cursor.execute(self._inserts[size], tuple(chain.from_iterable(new[at : at + size])))
                at += size

    def receipts_for(self, cursor: DBAPICursor, task: int, keys: Sequence[Key]) -> dict[Key, Receipt]:
        """Find the receipts that are stored under these keys."""
        found: list[Any] = []
        if self._postgres and keys:
            slots, names = zip(*keys, strict=True)
            cursor.execute(self._own.look_up, (list(slots), list(names), task))
            found += cursor.fetchall()
        elif keys:
            for at in range(0, len(keys), GROUPS[-1]):
                group = keys[at : at + GROUPS[-1]]
                size = next(size for size in GROUPS if size >= len(group))
                flat = [part for key in group for part in key] + [0, ""] * (size - len(group))
                cursor.execute(self._groups[size], (*flat, task))
                found += cursor.fetchall()
        return {(row[0], row[1]): to_receipt(row) for row in found}

    def chain(self, cursor: DBAPICursor, last: int, after: int, limit: int) -> list[Receipt]:
        """Follow the chain of a device's receipts back from its last one; return the first ones after a number."""
        cursor.execute(self._own.chain, (last, after, after, limit))
        return [to_receipt(row) for row in cursor.fetchall()]


def _repeated(insert_one: str, count: int) -> str:
    """Make a statement that inserts several rows of one that inserts a single one."""
    head, values, row = insert_one.partition(" VALUES ")
    return head + values + ", ".join([row] * count)


def to_receipt(row: Sequence[Any]) -> Receipt:
    """Read a row that was found."""
    slot, key, body, number, version, started, status, device = row
    return Receipt(
        slot=slot, key=key, body=body, number=number, version=version, started=started, status=status, device=device
    )


def _chained(done: Applied, counters: Counters) -> tuple[list[tuple[Any, ...]], dict[int, Counter]]:
    """Lay out the rows of the log; each names the place of the receipt before it of the same slot."""
    place, task, known = counters.next, done.task, counters.of(done.task)
    fresh: dict[int, Counter] = {}
    new = []
    for r in done.receipts:
        slot, number, started = r.slot, r.number, r.started
        before = fresh.get(slot) or known.get(slot)
        previous = before[2] if before else None
        new.append((place, task, slot, r.key, r.body, number, r.version, started, r.status, previous))
        fresh[slot] = (number, started, place)
        place += 1
    return new, fresh
