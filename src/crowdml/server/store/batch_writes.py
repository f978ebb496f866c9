"""What runs for every batch of check-ins: looking up receipts, storing the batch, counting it.

What follows from the receipts of each device is kept in memory (`Counters`) and written from time to time: to write it
with every check-in would cost more than the receipt itself. The receipts are the truth: after a crash the few that came
after the last writing are counted anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from crowdml.server.store.database import Database, Statements
from crowdml.server.store.store_records import Applied, Receipt, StoreConflict

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import DBAPICursor

EVERY = 16_384
"""Receipts between two writings of the counters."""

COUNTED = "counted"
"""Name under which `meta` keeps the number of the last receipt that the table `counters` knows."""

Counter = tuple[int, int, int]
"""What is known of a slot: number of its last receipt, the version that one started from, its place in the log. A plain
tuple: one is made for every check-in."""

NEVER: Counter = (0, -1, 0)
"""A device that has not checked in yet."""

GROUPS = (1, 8, 64, 256)
"""SQLite looks up so many keys at a time; lists are filled up to one of these, so that few statements are prepared."""

INSERTS = (256, 128, 64, 32, 16, 8, 4, 2, 1)
"""SQLite stores so many receipts with one statement. Its driver gives the interpreter's lock away at every statement,
and has to wait for it again: with one statement for each receipt the waiting would cost more than the storing."""

Key = tuple[int, str]
"""A slot and an idempotency key."""

TO = "version = ?, check_ins = ?, received = ? WHERE id = ? AND version = ? AND check_ins = ?"
ADVANCE = f"UPDATE tasks SET {TO}"  # noqa: S608  a constant, as all here
"""The fence: moves a task on, only from where the writer believes it to be."""
TURN = f"UPDATE tasks SET state = ?, reason = ?, {TO}"  # noqa: S608
"""The same, with a new state of the task and its reason."""

PUT_STATE = "UPDATE states SET server_state = ? WHERE task = ?"
PUT_RECEIPTS = 'INSERT INTO receipts (id, task, slot, "key", body, number, version, started, status, previous) {}'
RECEIPT = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
PUT_LISTS = PUT_RECEIPTS.format(
    "SELECT * FROM unnest(?::BIGINT[], ?::INTEGER[], ?::INTEGER[], ?::TEXT[], ?::BYTEA[], ?::BIGINT[], ?::BIGINT[], "
    "?::BIGINT[], ?::TEXT[], ?::BIGINT[])"
)
"""Stores receipts in PostgreSQL, however many: a list for each column."""
PUT_ROW = (
    'INSERT INTO device_rows (task, slot, "row") SELECT task, slot, ? FROM devices WHERE task = ? AND slot = ? '
    'ON CONFLICT (task, slot) DO UPDATE SET "row" = excluded."row"'
)
"""Puts a device's row, unless the device has withdrawn meanwhile."""
PUT_POINT = (
    "INSERT INTO points (task, check_ins, version, rows, estimated_error, time, counted, errors) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (task, check_ins) DO UPDATE SET version = excluded.version, "
    "rows = excluded.rows, estimated_error = excluded.estimated_error, time = excluded.time, "
    "counted = excluded.counted, errors = excluded.errors"
)
PUT_DAY = "INSERT INTO days (task, day, first, version, staleness) VALUES (?, ?, ?, ?, ?)"
END_DAY = "UPDATE days SET check_ins = ?, devices = ? WHERE task = ? AND day = ?"
PUT_COUNTER = (
    "INSERT INTO counters (task, slot, check_ins, last_version, last) "
    "SELECT task, slot, ?, ?, ? FROM devices WHERE task = ? AND slot = ? ON CONFLICT (task, slot) DO UPDATE "
    "SET check_ins = excluded.check_ins, last_version = excluded.last_version, last = excluded.last"
)
"""Puts a counter, unless its device has withdrawn."""

FOUND = (
    'SELECT {0}.slot, {0}."key", {0}.body, {0}.number, {0}.version, {0}.started, {0}.status, devices.id FROM {1} '
    "LEFT JOIN devices ON devices.task = {0}.task AND devices.slot = {0}.slot"
)
"""Receipts of a log with the name of their device, where there still is one."""
LOOK_UP = FOUND.format(
    "receipts",
    '{} JOIN receipts ON receipts.slot = wanted.slot AND receipts."key" = wanted."key" AND receipts.task = ?',
)
"""Finds receipts by slot and key."""
LOOK_UP_EACH = FOUND.format(
    "receipts",
    'unnest(?::INTEGER[], ?::TEXT[]) AS wanted(slot, "key") CROSS JOIN LATERAL (SELECT * FROM receipts '
    'WHERE receipts.task = ? AND receipts."key" = wanted."key" AND receipts.slot = wanted.slot LIMIT 1) AS receipts',
)
"""The same for PostgreSQL, which would join the lists with all receipts of the task as long as it has not counted them:
one by one it finds them by their index, whatever it believes."""
WALK = (
    "WITH RECURSIVE walk AS (SELECT * FROM receipts WHERE id = ? AND number > ? UNION ALL SELECT receipts.* "
    "FROM receipts, walk WHERE receipts.id = walk.previous AND receipts.number > ?)"
)
CHAIN = f"{WALK} {FOUND.format('walk', 'walk')} ORDER BY walk.number LIMIT ?"
"""Follows a device's receipts by their links, newest first, as far back as wanted; then turns the order round."""


class Counters:
    """The counters of all tasks.

    Attributes:
        next: Place in the log of the next receipt.
    """

    def __init__(self, statements: Statements) -> None:
        """Read them, and count the receipts that came after they were written."""
        self._of: dict[int, dict[int, Counter]] = defaultdict(dict)
        self._changed: dict[int, set[int]] = defaultdict(set)
        for task, slot, *known in statements.rows("SELECT task, slot, check_ins, last_version, last FROM counters"):
            self._of[task][slot] = (known[0], known[1], known[2])
        mark = statements.first("SELECT value FROM meta WHERE name = ?", COUNTED)
        self._pending = 0
        self.next = int(mark[0] if mark else 0) + 1
        later = "SELECT task, slot, number, started, id FROM receipts WHERE id >= ? ORDER BY id"
        for task, slot, number, started, place in statements.rows(later, self.next):
            self.add(task, {slot: (number, started, place)}, place + 1)

    def of(self, task: int) -> dict[int, Counter]:
        """Return the counters of a task by slot."""
        return self._of[task]

    def add(self, task: int, fresh: dict[int, Counter], after: int) -> None:
        """Count receipts that are stored; the log now ends before `after`."""
        self._of[task].update(fresh)
        self._changed[task].update(fresh)
        self._pending += after - self.next
        self.next = after

    def forget(self, task: int, slot: int) -> None:
        """Drop the counter of a device that has withdrawn."""
        self._of[task].pop(slot, None)
        self._changed[task].discard(slot)

    @property
    def due(self) -> bool:
        """Whether they should be written."""
        return self._pending >= EVERY

    def write(self, statements: Statements) -> None:
        """Store what has changed since the last writing; call `written` when it is on disk."""
        changed = [(task, slot) for task, slots in self._changed.items() for slot in slots]
        statements.run_all(PUT_COUNTER, [(*self._of[task][slot], task, slot) for task, slot in changed])
        statements.run("DELETE FROM meta WHERE name = ?", COUNTED)
        statements.insert("meta", name=COUNTED, value=str(self.next - 1))

    def written(self) -> None:
        """Take note that they are stored."""
        self._changed.clear()
        self._pending = 0


class BatchWrites:
    """The statements of one database, ready to run.

    Args:
        database: PostgreSQL takes lists where SQLite takes many values.
    """

    def __init__(self, database: Database) -> None:
        """Write out those for several rows."""
        sql, self._postgres = database.sql, database.postgres
        self._advance, self._turn, self._put_state = sql(ADVANCE), sql(TURN), sql(PUT_STATE)
        self._put_row, self._put_point, self._chain = sql(PUT_ROW), sql(PUT_POINT), sql(CHAIN)
        self._put_day, self._end_day = sql(PUT_DAY), sql(END_DAY)
        rows = {size: ", ".join([RECEIPT] * size) for size in INSERTS}
        self._inserts = {size: sql(PUT_RECEIPTS.format(f"VALUES {row}")) for size, row in rows.items()}
        self._lists, self._each = sql(PUT_LISTS), sql(LOOK_UP_EACH)
        pairs = {size: ", ".join(["(?, ?)"] * size) for size in GROUPS}
        self._groups = {
            size: f'WITH wanted(slot, "key") AS (VALUES {pair}) {LOOK_UP.format("wanted")}'
            for size, pair in pairs.items()
        }

    def apply(self, cursor: DBAPICursor, done: Applied, counters: Counters) -> dict[int, Counter]:
        """Store a batch, inside a transaction; return the counters of its slots."""
        task = done.task
        to = (done.version, done.check_ins, done.received)
        fence = (task, done.expected_version, done.expected_check_ins)
        turn = () if done.state is None else (done.state, done.reason)
        cursor.execute(self._turn if turn else self._advance, (*turn, *to, *fence))
        if cursor.rowcount != 1:
            raise StoreConflict(f"task {task} is not at version {fence[1]} with {fence[2]} check-ins any more")
        cursor.execute(self._put_state, (done.server_state, task))
        new, fresh = _chained(done, counters)
        self._insert(cursor, new)
        if done.rows:
            cursor.executemany(self._put_row, [(row, task, slot) for slot, row in done.rows.items()])
        if done.point:
            p = done.point
            values = (task, p.check_ins, p.version, p.rows, p.estimated_error, p.time, p.counted, p.errors)
            cursor.execute(self._put_point, values)
        if done.day:
            cursor.execute(self._put_day, (task, done.day.day, counters.next, done.day.version, done.day.staleness))
            if done.day.over:
                day, check_ins, devices = done.day.over
                cursor.execute(self._end_day, (check_ins, devices, task, day))
        return fresh

    def _insert(self, cursor: DBAPICursor, new: list[tuple[Any, ...]]) -> None:
        if self._postgres:
            if new:
                cursor.execute(self._lists, tuple(map(list, zip(*new, strict=True))))
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
            cursor.execute(self._each, (list(slots), list(names), task))
            found += cursor.fetchall()
        elif keys:
            for at in range(0, len(keys), GROUPS[-1]):
                group = keys[at : at + GROUPS[-1]]
                size = next(size for size in GROUPS if size >= len(group))
                flat = [part for key in group for part in key] + [0, ""] * (size - len(group))
                cursor.execute(self._groups[size], (*flat, task))
                found += cursor.fetchall()
        return {(row[0], row[1]): _receipt(row) for row in found}

    def chain(self, cursor: DBAPICursor, last: int, after: int, limit: int) -> list[Receipt]:
        """Follow the chain of a device's receipts back from its last one; return the first ones after a number."""
        cursor.execute(self._chain, (last, after, after, limit))
        return [_receipt(row) for row in cursor.fetchall()]


def _receipt(row: Sequence[Any]) -> Receipt:
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
