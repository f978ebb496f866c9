"""The store: everything a server must not forget.

Calls are synchronous and may come from any thread; writes wait for each other. A write returns after it is on disk. If
the database fails, the store is finished: every call raises `StoreFailed`, and the process should end.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from crowdml.core import BadInput
from crowdml.server.store import joining
from crowdml.server.store.counters import NEVER, Counters
from crowdml.server.store.database import Database
from crowdml.server.store.engines import open_database
from crowdml.server.store.errors import StoreConflict, StoreFailed
from crowdml.server.store.hot import Hot, Key
from crowdml.server.store.joining import Refused
from crowdml.server.store.migrating import migrate
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
from crowdml.server.store.schema import (
    device_rows,
    devices,
    invites,
    points,
    public_sets,
    server_identity,
    sheets,
    states,
    tasks,
)

_WHOLE_TASK = (
    select(
        tasks,
        sheets.c.file,
        sheets.c.sheet,
        sheets.c.signature,
        sheets.c.key,
        states.c.server_state,
        public_sets.c.content.label("public"),
    )
    .join(sheets, sheets.c.task == tasks.c.id)
    .join(states, states.c.task == tasks.c.id)
    .outerjoin(public_sets, public_sets.c.task == tasks.c.id)
    .order_by(tasks.c.id)
)


def open_store(url: str) -> Store:
    """Open a store by its address: `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/crowd.sqlite") as store:
    ...     store.tasks()
    []
    """
    database = open_database(url)
    try:
        migrate(database.writer)
        return Store(database)
    except BaseException:
        database.close()
        raise


class Store:
    """An open store."""

    def __init__(self, database: Database) -> None:
        """Take an open database whose tables are there."""
        self._database = database
        self._hot = Hot(database.writer.dialect)
        self._driver: Any = database.writer.dialect.loaded_dbapi
        with database.writer.begin():
            self._counters = Counters(database.writer)
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

    # Tasks

    def create_task(self, task: NewTask) -> StoredTask:
        """Store a new task, at version 0."""
        with self._write() as connection:
            if connection.execute(select(tasks.c.id).where(tasks.c.name == task.name)).first():
                raise BadInput(f"there is already a task {task.name!r}", where="name")
            number = (connection.execute(select(func.max(tasks.c.id))).scalar() or 0) + 1
            own = {name: getattr(task, name) for name in ("name", "state", "reason", "incarnation")}
            connection.execute(insert(tasks).values(id=number, **own, version=0, check_ins=0, received=0, slots=0))
            sheet = {name: getattr(task, name) for name in ("file", "sheet", "signature", "key")}
            connection.execute(insert(sheets).values(task=number, **sheet))
            connection.execute(insert(states).values(task=number, server_state=task.server_state))
            if task.public is not None:
                connection.execute(insert(public_sets).values(task=number, content=task.public))
        return StoredTask(**vars(task), id=number, version=0, check_ins=0, received=0, slots=0)

    def tasks(self) -> list[StoredTask]:
        """Return all tasks, oldest first."""
        with self._read() as connection:
            return [StoredTask(**row) for row in connection.execute(_WHOLE_TASK).mappings()]

    def task(self, name: str) -> StoredTask | None:
        """Return the task of that name."""
        with self._read() as connection:
            row = connection.execute(_WHOLE_TASK.where(tasks.c.name == name)).mappings().first()
            return StoredTask(**row) if row else None

    def set_state(self, task: int, state: str, reason: str | None = None) -> None:
        """Open, pause or stop a task."""
        with self._write() as connection:
            changed = update(tasks).where(tasks.c.id == task).values(state=state, reason=reason)
            if connection.execute(changed).rowcount != 1:
                raise StoreConflict(f"there is no task {task}")

    # Devices

    def add_invites(self, task: int, code_hashes: Iterable[bytes]) -> None:
        """Store invites by the SHA-256 of their codes."""
        new = [{"task": task, "code_hash": code, "used": False} for code in code_hashes]
        if new:
            with self._write() as connection:
                connection.execute(insert(invites), new)

    def use_invite(self, task: int, code_hash: bytes, device: NewDevice) -> Joined | Refused:
        """Let a device join, once per invite; the same key again gets a new token for the same slot.

        Returns:
            The device, or why it cannot join: the invite is unknown, or somebody else has used it (or this device, and
            it was revoked since), or the key belongs to a device that joined with another invite.
        """
        with self._write() as connection:
            done = joining.use_invite(connection, task, code_hash, device)
        return done if isinstance(done, str) else Joined(device=self._counted(done[0]), again=done[1])

    def devices(self, task: int) -> list[StoredDevice]:
        """Return the devices of a task by slot, revoked ones too."""
        return self._found(select(devices).where(devices.c.task == task).order_by(devices.c.slot))

    def device(self, device: str) -> StoredDevice | None:
        """Return a device by its name."""
        return next(iter(self._found(select(devices).where(devices.c.id == device))), None)

    def revoke(self, device: str) -> bool:
        """Shut a device out; say whether there is such a device."""
        with self._write() as connection:
            return connection.execute(update(devices).where(devices.c.id == device).values(revoked=True)).rowcount == 1

    def withdraw(self, device: str) -> bool:
        """Erase a device and its space; its receipts stay and name nobody. Say whether there is such a device."""
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
        query = select(device_rows.c.slot, device_rows.c.row).where(device_rows.c.task == task)
        with self._read() as connection:
            return {slot: row for slot, row in connection.execute(query)}

    def points(self, task: int) -> list[Point]:
        """Return the learning curve."""
        wanted = (points.c.version, points.c.check_ins, points.c.rows, points.c.estimated_error, points.c.time)
        with self._read() as connection:
            found = connection.execute(select(*wanted).where(points.c.task == task).order_by(points.c.check_ins))
            return [Point(**row) for row in found.mappings()]

    # The server itself

    def identity(self) -> Identity | None:
        """Return the server's keys, if it has been given any."""
        query = select(server_identity.c.signing_key, server_identity.c.operator_token_hash)
        with self._read() as connection:
            row = connection.execute(query).mappings().first()
            return Identity(**row) if row else None

    def set_identity(self, identity: Identity) -> None:
        """Store the server's keys in place of any before."""
        with self._write() as connection:
            connection.execute(delete(server_identity))
            connection.execute(
                insert(server_identity).values(
                    id=1, signing_key=identity.signing_key, operator_token_hash=identity.operator_token_hash
                )
            )

    def _found(self, query: Select[Any]) -> list[StoredDevice]:
        with self._read() as connection:
            found = connection.execute(query).mappings().all()
        return [self._counted(row) for row in found]

    def _counted(self, row: Any) -> StoredDevice:
        check_ins, last_version, _ = self._counters.of(row["task"]).get(row["slot"], NEVER)
        return StoredDevice(**row, check_ins=check_ins, last_version=last_version)

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
        except (IntegrityError, self._driver.IntegrityError) as error:
            told = getattr(error, "orig", None) or error
            raise StoreConflict(f"it is stored already, or belongs to nothing: {told}") from error
        except (SQLAlchemyError, self._driver.Error, OSError) as error:
            self._failure = f"the database failed: {getattr(error, 'orig', None) or error}"
            raise StoreFailed(self._failure) from error
