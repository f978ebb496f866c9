"""The store: everything a server must not forget.

Calls are synchronous and may come from any thread; writes wait for each other. A write returns after it is on disk. If
the database fails, the store is finished: every call raises `StoreFailed`, and the process should end.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from crowdml.core import BadInput
from crowdml.server.store.counters import NEVER, Counters
from crowdml.server.store.database import Database
from crowdml.server.store.engines import open_database
from crowdml.server.store.errors import StoreConflict, StoreFailed
from crowdml.server.store.hot import Hot, Key
from crowdml.server.store.migrating import is_current, migrate
from crowdml.server.store.records import (
    Applied,
    Identity,
    Joined,
    NewDevice,
    NewTask,
    Point,
    Receipt,
    StoredDevice,
    StoredTask,
)
from crowdml.server.store.statements import SQLITE, Statements

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.engine.interfaces import DBAPICursor

    from crowdml.server.store.joining import Refused


ROOM = "is there room on its disk, and may it be written?"


def open_store(url: str) -> Store:
    """Open a store by its address: `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/crowd.sqlite") as store:
    ...     store.tasks()
    []
    """
    database = open_database(url)
    try:
        if not is_current(database):
            migrate(database.writer)
        return Store(database)
    except database.failures as error:
        told = getattr(error, "orig", None) or error
        database.close()
        raise BadInput(f"the database cannot be made ready: {told}", where="--db", hint=ROOM) from None
    except BaseException:
        database.close()
        raise


class Store:
    """An open store."""

    def __init__(self, database: Database) -> None:
        """Take an open database whose tables are there."""
        self._database = database
        self._statements = _statements(database)
        self._hot = Hot(self._statements, database.dialect == "postgresql")
        with database.look_up() as cursor:
            self._counters = Counters(cursor, self._statements)
        self._lock = threading.Lock()
        self._failure: str | None = None
        self._open = True

    def __enter__(self) -> Store:
        """Use in a `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Let go of the database."""
        with self._lock:
            if self._open:
                self._open = False
                self._failure = self._failure or "the store is closed"
                self._database.close()

    def warm(self) -> None:
        """Load what is needed now and then, before somebody has to wait for it."""
        from crowdml.server.store import cold, joining  # noqa: F401

        with self._lock:
            if self._failure is None:
                self._database.writer  # noqa: B018  made when it is first asked for

    # Tasks

    def create_task(self, task: NewTask) -> StoredTask:
        """Store a new task, at version 0."""
        from crowdml.server.store import cold

        with self._write() as connection:
            return cold.create_task(connection, task)

    def tasks(self) -> list[StoredTask]:
        """Return all tasks, oldest first."""
        return [StoredTask(**row) for row in self._found(self._statements.tasks)]

    def task(self, name: str) -> StoredTask | None:
        """Return the task of that name."""
        return next((own for own in self.tasks() if own.name == name), None)

    def set_state(self, task: int, state: str, reason: str | None = None) -> None:
        """Open, pause or stop a task."""
        from crowdml.server.store import cold

        with self._write() as connection:
            cold.set_state(connection, task, state, reason)

    # Devices

    def add_invites(self, task: int, code_hashes: Iterable[bytes]) -> None:
        """Store invites by the SHA-256 of their codes."""
        from crowdml.server.store import cold

        with self._write() as connection:
            cold.add_invites(connection, task, code_hashes)

    def use_invite(self, task: int, code_hash: bytes, device: NewDevice) -> Joined | Refused:
        """Let a device join, once per invite; the same key again gets a new token for the same slot.

        Returns:
            The device, or why it cannot join: the invite is unknown, or somebody else has used it (or this device, and
            it was revoked since), or the key belongs to a device that joined with another invite.
        """
        from crowdml.server.store import joining

        with self._write() as connection:
            done = joining.use_invite(connection, task, code_hash, device)
        return done if isinstance(done, str) else Joined(device=self._counted(done[0]), again=done[1])

    def devices(self, task: int) -> list[StoredDevice]:
        """Return the devices of a task by slot, revoked ones too."""
        return [self._counted(row) for row in self._found(self._statements.devices, task)]

    def device(self, device: str) -> StoredDevice | None:
        """Return a device by its name."""
        from crowdml.server.store import cold

        with self._read() as connection:
            found = cold.device(connection, device)
        return None if found is None else self._counted(found)

    def revoke(self, device: str) -> bool:
        """Shut a device out; say whether there is such a device."""
        from crowdml.server.store import cold

        with self._write() as connection:
            return cold.revoke(connection, device)

    def withdraw(self, device: str) -> bool:
        """Erase a device and its space; its receipts stay and name nobody. Say whether there is such a device."""
        from crowdml.server.store import joining

        with self._lock:
            with self._transaction() as connection:
                gone = joining.withdraw(connection, device)
            if gone is None:
                return False
            self._counters.forget(*gone)
            with self._failing():
                self._database.scrub()
        return True

    # Check-ins

    def receipts_for(self, task: int, keys: Sequence[Key]) -> dict[Key, Receipt]:
        """Find the receipts stored under (slot, key), in one query."""
        with self._failing(), self._database.look_up() as cursor:
            return self._hot.receipts_for(cursor, task, keys)

    def apply(self, applied: Applied) -> None:
        """Store a batch of check-ins and what they did, in one transaction.

        Raises:
            StoreConflict: The task is not where the batch started from, or a key has a receipt already.
            StoreFailed: Whether it is stored is not known.
        """
        with self._lock:
            if self._counters.due:
                with self._transaction() as connection:
                    self._counters.write(connection)
                self._counters.written()
            with self._failing(), self._database.transaction() as cursor:
                fresh = self._hot.apply(cursor, applied, self._counters)
            self._counters.add(applied.task, fresh, self._counters.next + len(applied.receipts))

    def receipts(self, device: str, after: int = 0, limit: int = 1000) -> list[Receipt]:
        """Return receipts of a device whose number is larger than `after`, in order."""
        own = self.device(device)
        counter = self._counters.of(own.task).get(own.slot) if own else None
        if counter is None:
            return []
        with self._failing(), self._database.look_up() as cursor:
            return self._hot.chain(cursor, counter[2], after, limit)

    def rows(self, task: int) -> dict[int, bytes]:
        """Return the rows of the device state that differ from the first one, by slot."""
        return {own["slot"]: own["row"] for own in self._found(self._statements.rows, task)}

    def points(self, task: int) -> list[Point]:
        """Return the learning curve."""
        return [Point(**row) for row in self._found(self._statements.curve, task)]

    # The server itself

    def identity(self) -> Identity | None:
        """Return the server's keys, if it has been given any."""
        return next((Identity(**row) for row in self._found(self._statements.identity)), None)

    def set_identity(self, identity: Identity) -> None:
        """Store the server's keys in place of any before."""
        from crowdml.server.store import cold

        with self._write() as connection:
            cold.set_identity(connection, identity)

    def _found(self, statement: str, *given: Any) -> list[dict[str, Any]]:
        """Read rows with the driver's own cursor, by the names of their columns."""
        with self._failing(), self._database.look_up() as cursor:
            cursor.execute(statement, given)
            names = _names(cursor)
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def _counted(self, row: Any) -> StoredDevice:
        check_ins, last_version, _ = self._counters.of(row["task"]).get(row["slot"], NEVER)
        # SQLite has no truth values, only numbers.
        known = {**row, "revoked": bool(row["revoked"])}
        return StoredDevice(**known, check_ins=check_ins, last_version=last_version)

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        with self._lock, self._transaction() as connection:
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Run a transaction on the writing connection; it is on disk when the block is left."""
        with self._failing(), self._database.writer.begin():
            yield self._database.writer

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        with self._failing(), self._database.readers.connect() as connection:
            yield connection

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """After a failure of the database nothing more is tried: what is on disk is not known."""
        if self._failure is not None:
            raise StoreFailed(self._failure)
        try:
            yield
        except self._database.conflicts as error:
            told = getattr(error, "orig", None) or error
            raise StoreConflict(f"it is stored already, or belongs to nothing: {told}") from error
        except self._database.failures as error:
            self._failure = f"the database failed: {getattr(error, 'orig', None) or error}"
            raise StoreFailed(self._failure) from error


def _statements(database: Database) -> Statements:
    if database.dialect == "sqlite":
        return SQLITE
    from crowdml.server.store.compiling import compiled

    return compiled(database.writer.dialect)


def _names(cursor: DBAPICursor) -> list[str]:
    return [column[0] for column in cursor.description or ()]
