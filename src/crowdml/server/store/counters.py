"""Counters: what follows from the receipts of each device, kept in memory and written from time to time.

To write them with every check-in would cost more than the receipt itself. The receipts are the truth: after a crash the
few that came after the last writing are counted anew.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from crowdml.server.store.dialects import insert_of
from crowdml.server.store.statements import Statements

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.engine.interfaces import DBAPICursor

EVERY = 16_384
"""Receipts between two writings."""

COUNTED = "counted"
"""Name under which `meta` keeps the number of the last receipt that the table `counters` knows."""


FIELDS = ("check_ins", "last_version", "last")

Counter = tuple[int, int, int]
"""What is known of a slot: number of its last receipt, the version that one started from, its place in the log. A plain
tuple: one is made for every check-in."""

NEVER: Counter = (0, -1, 0)
"""A device that has not checked in yet."""


class Counters:
    """The counters of all tasks.

    Attributes:
        next: Place in the log of the next receipt.
    """

    def __init__(self, cursor: DBAPICursor, statements: Statements) -> None:
        """Read them, and count the receipts that came after they were written."""
        self._of: dict[int, dict[int, Counter]] = defaultdict(dict)
        self._changed: dict[int, set[int]] = defaultdict(set)
        cursor.execute(statements.counters)
        for task, slot, *known in cursor.fetchall():
            self._of[task][slot] = (known[0], known[1], known[2])
        cursor.execute(statements.counted, (COUNTED,))
        mark = cursor.fetchone()
        self._pending = 0
        self.next = int(mark[0] if mark else 0) + 1
        cursor.execute(statements.later, (self.next,))
        for task, slot, number, started, place in cursor.fetchall():
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

    def write(self, connection: Connection) -> None:
        """Write what has changed, inside a transaction; call `written` when it is stored."""
        from sqlalchemy import delete, insert

        from crowdml.server.store.schema import meta

        new = [
            {"of": task, "at": slot} | dict(zip(FIELDS, self._of[task][slot], strict=True))
            for task, slots in self._changed.items()
            for slot in slots
        ]
        if new:
            connection.execute(_put(connection.dialect.name), new)
        connection.execute(delete(meta).where(meta.c.name == COUNTED))
        connection.execute(insert(meta).values(name=COUNTED, value=str(self.next - 1)))

    def written(self) -> None:
        """Take note that they are stored."""
        self._changed.clear()
        self._pending = 0


def _put(kind: str) -> Any:
    """Store a counter, unless the device has withdrawn."""
    from sqlalchemy import bindparam, select

    from crowdml.server.store.schema import counters, devices

    given = [bindparam(name, type_=counters.c[name].type) for name in FIELDS]
    own = (devices.c.task == bindparam("of")) & (devices.c.slot == bindparam("at"))
    made = insert_of(kind)(counters).from_select(
        ["task", "slot", *FIELDS], select(devices.c.task, devices.c.slot, *given).where(own)
    )
    new = {name: made.excluded[name] for name in FIELDS}
    return made.on_conflict_do_update(index_elements=["task", "slot"], set_=new)
