"""What runs for every batch of check-ins: looking up receipts, and storing the batch.

The statements are written with SQLAlchemy, compiled once when the store opens, and then handed to the driver's own
cursor as text with plain tuples: to run a statement, SQLAlchemy takes more time than the statement itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from sqlalchemy import Dialect, Integer, Text, bindparam, column, func, insert, select, update, values
from sqlalchemy.engine.interfaces import DBAPICursor

from crowdml.server.store.counters import Counter, Counters
from crowdml.server.store.dialects import array_of, insert_of
from crowdml.server.store.errors import StoreConflict
from crowdml.server.store.records import Applied, Receipt
from crowdml.server.store.schema import device_rows, devices, points, receipts, states, tasks

GROUPS = (1, 8, 64, 256)
"""SQLite looks up so many keys at a time; lists are filled up to one of these, so that few statements are compiled."""

INSERTS = (256, 128, 64, 32, 16, 8, 4, 2, 1)
"""SQLite stores so many receipts with one statement. Its driver gives the interpreter's lock away at every statement,
and has to wait for it again: with one statement for each receipt the waiting would cost more than the storing."""

Key = tuple[int, str]
"""A slot and an idempotency key."""

_FOUND = ("slot", "key", "body", "number", "version", "started", "status")


class Hot:
    """Compiled statements for one kind of database."""

    def __init__(self, dialect: Dialect) -> None:
        """Compile."""

        def text(statement: Any) -> str:
            return str(statement.compile(dialect=dialect))

        self._postgres = dialect.name == "postgresql"
        put = insert_of(dialect.name)
        self._advance, self._turn = text(_advance()), text(_advance("state", "reason"))
        self._state = text(
            update(states).values(server_state=bindparam("given")).where(states.c.task == bindparam("of"))
        )
        self._receipts = text(insert(receipts))
        self._inserts = {size: _repeated(self._receipts, size) for size in INSERTS}
        self._row = text(_put_row(put))
        self._point = text(_put_point(put))
        self._look_up = text(_look_up(_arrays() if self._postgres else _pair()))
        # SQLAlchemy would take a tenth of a second to write all these pairs.
        self._groups = {size: self._look_up.replace("(?, ?)", ", ".join(["(?, ?)"] * size)) for size in GROUPS}
        self._chain = text(_chain()) + (" LIMIT %s" if self._postgres else " LIMIT ?")

    def apply(self, cursor: DBAPICursor, done: Applied, counters: Counters) -> dict[int, Counter]:
        """Store a batch, inside a transaction; return the counters of its slots."""
        task = done.task
        to = (done.version, done.check_ins, done.received)
        fence = (task, done.expected_version, done.expected_check_ins)
        turn = () if done.state is None else (done.state, done.reason)
        cursor.execute(self._turn if turn else self._advance, (*turn, *to, *fence))
        if cursor.rowcount != 1:
            raise StoreConflict(f"task {task} is not at version {fence[1]} with {fence[2]} check-ins any more")
        cursor.execute(self._state, (done.server_state, task))
        new, fresh = _chained(done, counters)
        self._insert(cursor, new)
        if done.rows:
            cursor.executemany(self._row, [(row, task, slot) for slot, row in done.rows.items()])
        if done.point:
            p = done.point
            cursor.execute(self._point, (task, p.check_ins, p.version, p.rows, p.estimated_error, p.time))
        return fresh

    def _insert(self, cursor: DBAPICursor, new: list[tuple[Any, ...]]) -> None:
        if self._postgres:
            cursor.executemany(self._receipts, new)
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
            cursor.execute(self._look_up, (list(slots), list(names), task))
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
        cursor.execute(self._chain, (last, after, after, limit))
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


def _advance(*more: str) -> Any:
    """The fence: it moves the task on only from where the writer believes it to be."""
    return (
        update(tasks)
        .values({name: bindparam(f"new_{name}") for name in (*more, "version", "check_ins", "received")})
        .where(tasks.c.id == bindparam("of"))
        .where(tasks.c.version == bindparam("expected_version"))
        .where(tasks.c.check_ins == bindparam("expected_check_ins"))
    )


def _put_row(put: Any) -> Any:
    """Store a device's row, unless the device has withdrawn meanwhile."""
    given = bindparam("given", type_=device_rows.c.row.type)
    own = (devices.c.task == bindparam("of")) & (devices.c.slot == bindparam("at"))
    made = put(device_rows).from_select(
        ["task", "slot", "row"], select(devices.c.task, devices.c.slot, given).where(own)
    )
    return made.on_conflict_do_update(index_elements=["task", "slot"], set_={"row": made.excluded.row})


def _put_point(put: Any) -> Any:
    made = put(points)
    new = {name: made.excluded[name] for name in ("version", "rows", "estimated_error", "time")}
    return made.on_conflict_do_update(index_elements=["task", "check_ins"], set_=new)


def _pair() -> Any:
    pair = (bindparam("at", type_=Integer), bindparam("named", type_=Text))
    return values(column("slot", Integer), column("key", Text), name="wanted").data([pair]).cte("wanted")


def _arrays() -> Any:
    slots = bindparam("slots", type_=array_of(Integer))
    names = bindparam("names", type_=array_of(Text))
    made = func.unnest(slots, names).table_valued(column("slot", Integer), column("key", Text), name="wanted")
    return made.render_derived()


def _look_up(wanted: Any) -> Any:
    match = (receipts.c.slot == wanted.c.slot) & (receipts.c.key == wanted.c.key)
    return _told(wanted.join(receipts, match & (receipts.c.task == bindparam("of"))), receipts)


def _chain() -> Any:
    """Walk the chain by its links, newest first, as far back as wanted; then turn the order round."""
    own = select(receipts).where(receipts.c.id == bindparam("last"), receipts.c.number > bindparam("above"))
    walk = own.cte("own", recursive=True)
    before = select(receipts).where(receipts.c.id == walk.c.previous, receipts.c.number > bindparam("after"))
    walk = walk.union_all(before)
    return _told(walk, walk).order_by(walk.c.number)


def _told(source: Any, log: Any) -> Any:
    """Select receipts with the name of their device, where there still is one."""
    owner = (devices.c.task == log.c.task) & (devices.c.slot == log.c.slot)
    return select(*(log.c[name] for name in _FOUND), devices.c.id).select_from(source.outerjoin(devices, owner))
