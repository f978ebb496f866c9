"""The store: everything a server must not forget.

Calls are synchronous and may come from any thread; writes wait for each other. A write returns after it is on disk. If
the database fails, the store is finished: every call raises `StoreFailed`, and the process should end.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crowdml.core import BadInput
from crowdml.server.store import device_tables, event_log, refused_releases, secure_attempts, session_tables
from crowdml.server.store.batch_writes import NEVER, BatchWrites, Counters, Key
from crowdml.server.store.database import Database, Statements
from crowdml.server.store.event_log import Actor, Event
from crowdml.server.store.open_database import is_current, migrate, open_database
from crowdml.server.store.session_tables import StoredSession
from crowdml.server.store.store_records import (
    Applied,
    Identity,
    Joined,
    NewDevice,
    NewTask,
    Point,
    Receipt,
    Refused,
    StoreConflict,
    StoredDay,
    StoredDevice,
    StoredError,
    StoredTask,
    StoreFailed,
)

ROOM = "is there room on its disk, and may it be written?"

TASKS = (
    'SELECT tasks.*, file, signed_text, signature, "key", server_state, content AS public FROM tasks '
    "JOIN signed_tasks ON signed_tasks.task = tasks.id JOIN states ON states.task = tasks.id "
    "LEFT JOIN public_sets ON public_sets.task = tasks.id ORDER BY tasks.id"
)
CURVE = (
    "SELECT version, check_ins, rows, estimated_error, time, counted, errors FROM points WHERE task = ? "
    "AND check_ins > ? ORDER BY check_ins"
)


def open_store(url: str, **options: Any) -> Store:
    """Open a store by its address: `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`.

    Args:
        url: The address.
        options: How to wait for PostgreSQL's lock; see `open_postgres`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/crowd.sqlite") as store:
    ...     store.tasks()
    []
    """
    database = open_database(url, **options)
    try:
        if not is_current(database):
            migrate(database.writer)
        return Store(database, url)
    except database.failures as error:
        reason = getattr(error, "orig", None) or error
        database.close()
        raise BadInput(f"the database cannot be made ready: {reason}", where="--db", hint=ROOM) from None
    except BaseException:
        database.close()
        raise


class Store:
    """Everything that must not be forgotten: tasks, devices, receipts. Whatever changes a task is in its event log.

    Attributes:
        url: Address of its database.
    """

    def __init__(self, database: Database, url: str) -> None:
        """Take an open database whose tables are there."""
        self._database, self.url = database, url
        self._batch_writes = BatchWrites(database)
        with database.look_up() as cursor:
            self._counters = Counters(database.statements(cursor))
        self._lock = threading.Lock()
        self._failure: str | None = None
        self._open = True

    def __enter__(self) -> Store:
        """Use in a `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close at the end of a `with` block."""
        self.close()

    def close(self) -> None:
        """Let go of the database."""
        with self._lock:
            if self._open:
                self._open = False
                self._failure = self._failure or "the store is closed"
                self._database.close()

    # Tasks

    def create_task(self, task: NewTask, by: Actor = "operator") -> StoredTask:
        """Store a new task, at version 0."""
        with self._write() as statements:
            if statements.first("SELECT id FROM tasks WHERE name = ?", task.name):
                raise BadInput(f"there is already a task {task.name!r}", where="name")
            (last,) = statements.first("SELECT MAX(id) FROM tasks")
            made = StoredTask(**vars(task), id=(last or 0) + 1, version=0, check_ins=0, received=0, slots=0)
            kept = ("id", "name", "state", "reason", "incarnation", "version", "check_ins", "received", "slots")
            statements.insert("tasks", **{name: getattr(made, name) for name in kept})
            signed = {name: getattr(made, name) for name in ("file", "signed_text", "signature", "key")}
            statements.insert("signed_tasks", task=made.id, **signed)
            statements.insert("states", task=made.id, server_state=made.server_state)
            if made.public is not None:
                statements.insert("public_sets", task=made.id, content=made.public)
            event_log.note(statements, by, "created", task=made.id, detail=made.state)
        return made

    def tasks(self) -> list[StoredTask]:
        """Return all tasks, oldest first."""
        return [StoredTask(**row) for row in self._found(TASKS)]

    def task(self, name: str) -> StoredTask | None:
        """Return the task of that name."""
        return next((task for task in self.tasks() if task.name == name), None)

    def set_state(self, task: int, state: str, reason: str | None = None, by: Actor = "operator") -> None:
        """Open, pause or stop a task."""
        with self._write() as statements:
            if statements.run("UPDATE tasks SET state = ?, reason = ? WHERE id = ?", state, reason, task) != 1:
                raise StoreConflict(f"there is no task {task}")
            event_log.note(statements, by, event_log.STATES.get(state, state), task=task)

    # Devices

    def add_invites(self, task: int, code_hashes: Sequence[bytes], by: Actor = "operator") -> None:
        """Store invites by the SHA-256 of their codes."""
        with self._write() as statements:
            new = "INSERT INTO invites (task, code_hash, used) VALUES (?, ?, ?)"
            statements.run_all(new, [(task, code, False) for code in code_hashes])
            event_log.note(statements, by, "invited", task=task, count=len(code_hashes))

    def invite_used(self, task: int, code_hash: bytes) -> bool | None:
        """Say whether a device has joined by an invite, whatever became of it; None if there is no such invite."""
        found = self._found(device_tables.FIND_INVITE, task, code_hash)
        return bool(found[0]["used"]) if found else None

    def use_invite(self, task: int, code_hash: bytes, device: NewDevice) -> Joined | Refused:
        """Let a device join, once per invite; the same key again gets a new token for the same slot.

        Returns:
            The device, or why it cannot join: the invite is unknown, or somebody else has used it (or this device, and
            it was revoked since), or the key belongs to a device that joined with another invite.
        """
        with self._write() as statements:
            done = device_tables.use_invite(statements, task, code_hash, device)
            if not isinstance(done, str):
                action = "joined again" if done[1] else "joined"
                event_log.note(statements, "device", action, task=task, slot=done[0]["slot"])
        return done if isinstance(done, str) else Joined(device=self._counted(done[0]), again=done[1])

    def devices(self, task: int) -> list[StoredDevice]:
        """Return the devices of a task by slot, revoked ones too."""
        return [self._counted(row) for row in self._found("SELECT * FROM devices WHERE task = ? ORDER BY slot", task)]

    def device(self, device: str) -> StoredDevice | None:
        """Return a device by its name."""
        found = self._found("SELECT * FROM devices WHERE id = ?", device)
        return self._counted(found[0]) if found else None

    def revoke(self, device: str, by: Actor = "operator") -> bool:
        """Shut a device out; say whether there is such a device."""
        with self._write() as statements:
            found = statements.first("SELECT task, slot FROM devices WHERE id = ?", device)
            if found is not None:
                statements.run("UPDATE devices SET revoked = ? WHERE id = ?", True, device)
                event_log.note(statements, by, "revoked", task=found[0], slot=found[1])
        return found is not None

    def withdraw(self, device: str) -> bool:
        """Erase a device and its space; its receipts stay and name nobody. Say whether there is such a device."""
        with self._lock:
            with self._transaction() as statements:
                gone = device_tables.withdraw(statements, device)
                if gone is not None:
                    event_log.forget(statements, *gone)
                    event_log.note(statements, "device", "withdrew", task=gone[0])
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
            return self._batch_writes.receipts_for(cursor, task, keys)

    def apply(self, applied: Applied) -> None:
        """Store a batch of check-ins and what they did, in one transaction.

        Raises:
            StoreConflict: The task is not where the batch started from, or a key has a receipt already.
            StoreFailed: Whether it is stored is not known.
        """
        with self._lock:
            if self._counters.due:
                with self._transaction() as statements:
                    self._counters.write(statements)
                self._counters.written()
            with self._failing(), self._database.transaction() as cursor:
                fresh = self._batch_writes.apply(cursor, applied, self._counters)
                if applied.state is not None:
                    action, why = event_log.STATES.get(applied.state, applied.state), applied.reason or ""
                    event_log.note(self._database.statements(cursor), "server", action, task=applied.task, detail=why)
            self._counters.add(applied.task, fresh, self._counters.next + len(applied.receipts))

    def receipts(self, device: str, after: int = 0, limit: int = 1000) -> list[Receipt]:
        """Return receipts of a device whose number is larger than `after`, in order."""
        found = self.device(device)
        counter = self._counters.of(found.task).get(found.slot) if found else None
        if counter is None:
            return []
        with self._failing(), self._database.look_up() as cursor:
            return self._batch_writes.chain(cursor, counter[2], after, limit)

    def keep_refused(self, task: int, refused: Sequence[Key]) -> None:
        """Remember releases that were refused, by (slot, key), each once."""
        with self._write() as statements:
            refused_releases.keep(statements, task, refused)

    def refused(self, task: int, slot: int) -> int:
        """Return how many releases of a device were refused for good."""
        with self._failing(), self._database.look_up() as cursor:
            return refused_releases.count(self._database.statements(cursor), task, slot)

    def keep_vectors(self, task: int, sent: secure_attempts.Sent) -> None:
        """Remember how many vectors devices have sent to secure sums, in place of what was remembered before."""
        with self._write() as statements:
            secure_attempts.keep(statements, task, sent)

    def vectors(self, task: int) -> secure_attempts.Sent:
        """Return what is remembered of vectors sent to secure sums."""
        with self._failing(), self._database.look_up() as cursor:
            return secure_attempts.kept(self._database.statements(cursor), task)

    def rows(self, task: int) -> dict[int, bytes]:
        """Return the rows of the device state that differ from the first one, by slot."""
        found = self._found('SELECT slot, "row" FROM device_rows WHERE task = ?', task)
        return {row["slot"]: row["row"] for row in found}

    def points(self, task: int, after: int = -1) -> list[Point]:
        """Return the learning curve; points after so many check-ins alone, where that is said."""
        return [Point(**row) for row in self._found(CURVE, task, after)]

    def days(self, task: int) -> list[StoredDay]:
        """Return the days on which devices took part, in order."""
        text = "SELECT day, first, version, staleness, check_ins, devices FROM days WHERE task = ? ORDER BY day"
        return [StoredDay(**row) for row in self._found(text, task)]

    def log(self, task: int, first: int = 0) -> list[tuple[int, int, int]]:
        """Return slot, version and started of each receipt from a place in the log on, in order."""
        text = "SELECT slot, version, started FROM receipts WHERE id >= ? AND task = ? ORDER BY id"
        with self._failing(), self._database.look_up() as cursor:
            return [(row[0], row[1], row[2]) for row in self._database.statements(cursor).rows(text, first, task)]

    def validations(self, task: int) -> list[StoredError]:
        """Return errors on the operator's public rows, by version."""
        text = "SELECT version, error, time FROM validations WHERE task = ? ORDER BY version"
        return [StoredError(**row) for row in self._found(text, task)]

    def add_validation(self, task: int, found: StoredError) -> None:
        """Keep an error on the operator's public rows; that of a version which was looked at before stays."""
        with self._write() as statements:
            text = (
                "INSERT INTO validations (task, version, error, time) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (task, version) DO NOTHING"
            )
            statements.run(text, task, found.version, found.error, found.time)

    # The server itself

    def identity(self) -> Identity | None:
        """Return the server's keys, if it has been given any."""
        found = self._found("SELECT signing_key, operator_token_hash FROM server_identity")
        return Identity(**found[0]) if found else None

    def set_identity(self, identity: Identity) -> None:
        """Store the server's keys in place of any before."""
        with self._write() as statements:
            statements.run("DELETE FROM server_identity")
            statements.insert("server_identity", id=1, **vars(identity))

    def rotate(self, token_hash: bytes, by: Actor = "operator") -> None:
        """Take another token of the operator's from now on; all sessions end."""
        with self._write() as statements:
            statements.run("UPDATE server_identity SET operator_token_hash = ?", token_hash)
            session_tables.end_sessions(statements)
            event_log.note(statements, by, "changed the token")

    def sessions(self) -> list[StoredSession]:
        """Return the operator's sessions."""
        with self._failing(), self._database.look_up() as cursor:
            return session_tables.sessions(self._database.statements(cursor))

    def add_session(self, session: StoredSession) -> None:
        """Begin a session."""
        with self._write() as statements:
            session_tables.add_session(statements, session)
            event_log.note(statements, "portal", "signed in")

    def end_session(self, token_hash: bytes) -> None:
        """End a session."""
        with self._write() as statements:
            if session_tables.end_session(statements, token_hash):
                event_log.note(statements, "portal", "signed out")

    def note(self, actor: Actor, action: str, *, task: int | None = None, count: int = 1, detail: str = "") -> None:
        """Add an entry to the event log, about something that changes nothing else."""
        with self._write() as statements:
            event_log.note(statements, actor, action, task=task, count=count, detail=detail)

    def events(self, before: int | None = None, task: int | None = None, most: int = 100) -> list[Event]:
        """Return entries of the event log, latest first: those before a number, those about a task, or all."""
        with self._failing(), self._database.look_up() as cursor:
            return event_log.entries(self._database.statements(cursor), before, task, most)

    def latest(self, task: int, action: str) -> Event | None:
        """Return the last entry of the event log about something that was done to a task; None where it never was."""
        with self._failing(), self._database.look_up() as cursor:
            return event_log.latest(self._database.statements(cursor), task, action)

    def backup(self, path: Path) -> None:
        """Copy everything into a new file, while this store goes on."""
        # Here, because it brings SQLAlchemy along, which a server that is started does not wait for.
        from crowdml.server.store.backups import backup

        backup(self.url, path)

    def _found(self, text: str, *given: Any) -> list[dict[str, Any]]:
        """Read rows, by the names of their columns."""
        with self._failing(), self._database.look_up() as cursor:
            return self._database.statements(cursor).records(text, *given)

    def _counted(self, row: dict[str, Any]) -> StoredDevice:
        check_ins, last_version, _ = self._counters.of(row["task"]).get(row["slot"], NEVER)
        # SQLite has no truth values, only numbers.
        known = {**row, "revoked": bool(row["revoked"])}
        return StoredDevice(**known, check_ins=check_ins, last_version=last_version)

    @contextmanager
    def _write(self) -> Iterator[Statements]:
        with self._lock, self._transaction() as statements:
            yield statements

    @contextmanager
    def _transaction(self) -> Iterator[Statements]:
        """Run a transaction; it is on disk when the block is left."""
        with self._failing(), self._database.transaction() as cursor:
            yield self._database.statements(cursor)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """After a failure of the database nothing more is tried: what is on disk is not known."""
        if self._failure is not None:
            raise StoreFailed(self._failure)
        try:
            yield
        except self._database.driver.IntegrityError as error:
            raise StoreConflict(f"it is stored already, or belongs to nothing: {error}") from error
        except self._database.failures as error:
            self._failure = f"the database failed: {getattr(error, 'orig', None) or error}"
            raise StoreFailed(self._failure) from error
