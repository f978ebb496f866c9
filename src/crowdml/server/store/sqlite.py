"""SQLite, opened so that what was acknowledged survives a power cut."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from crowdml.core import BadInput
from crowdml.core.files import sqlite_errors
from crowdml.server.store.database import Database

if TYPE_CHECKING:
    from sqlalchemy import Connection

BUSY_S = 5.0
"""How long to wait for another program to let go of the file."""

WAL_BYTES = 64 << 20
"""The log is cut to this size after it was copied into the file."""

LEAST_ROOM = 1 << 20
"""A disk with less room than this counts as full."""

BEGIN = "BEGIN IMMEDIATE"
"""Takes the write lock at once, so that a transaction never finds out later that it cannot write."""

SAFE = {"journal_mode": ("WAL", "wal"), "synchronous": ("FULL", 2), "foreign_keys": ("ON", 1)}
"""What must hold: pragma → what is asked, what must be answered."""


def open_sqlite(path: Path) -> Database:
    """Open a file, made if it is not there; readable by its owner alone, and open in one server at a time."""
    unlock = lock_file(path)
    try:
        make_file(path)
        writer, readers = _connect(path), _Readers(path)
    except BaseException:
        unlock()
        raise

    def release() -> None:
        try:
            writer.close()
            readers.close()
        finally:
            unlock()

    return Database(
        driver=sqlite3,
        postgres=False,
        connection=writer,
        begin=BEGIN,
        borrow=readers.borrow,
        writer=lambda: _seen(writer, path),
        release=release,
        # The log is copied into the file and cut to nothing.
        scrub=lambda: writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").close(),
    )


class _Readers:
    """Connections that read, as many as are used at once. One that met an error is not used again."""

    def __init__(self, path: Path) -> None:
        self._path, self._idle = path, SimpleQueue[sqlite3.Connection]()

    @contextmanager
    def borrow(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = self._idle.get_nowait()
        except Empty:
            connection = _connect(self._path)
            connection.execute("PRAGMA query_only = ON")
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._idle.put(connection)

    def close(self) -> None:
        while not self._idle.empty():
            self._idle.get_nowait().close()


def _connect(path: Path) -> sqlite3.Connection:
    """Open a connection of the driver's own."""
    try:
        # Without an isolation level Python's driver leaves transactions to us.
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            with sqlite_errors():
                make_safe(connection, path)
        except BaseException:
            connection.close()
            raise
    except sqlite3.DatabaseError as error:
        raise BadInput(f"{path} cannot be opened: {error}", where="--db", hint=_room(path)) from None
    return connection


def _room(path: Path) -> str:
    """Say so where the disk is full: SQLite's own words may be of an I/O error."""
    return "the disk is full: make room, and start again" if shutil.disk_usage(path.parent).free < LEAST_ROOM else ""


def connect_sqlite(path: Path) -> Connection:
    """Open a connection for SQLAlchemy to write with."""
    return _seen(_connect(path), path)


def _seen(connection: sqlite3.Connection, path: Path) -> Connection:
    """Let SQLAlchemy see a connection, and close it at its end; a transaction takes the write lock when it begins."""
    from sqlalchemy import create_engine, event
    from sqlalchemy.engine import URL
    from sqlalchemy.pool import NullPool

    engine = create_engine(URL.create("sqlite", database=str(path)), poolclass=NullPool, creator=lambda: connection)

    @event.listens_for(engine, "begin")
    def begin(seen: Connection) -> None:
        seen.exec_driver_sql(BEGIN)

    return engine.connect()


def make_safe(connection: sqlite3.Connection, path: Path) -> None:
    """Ask for what durability needs, and make sure that it was given."""
    for pragma, (wanted, _) in SAFE.items():
        connection.execute(f"PRAGMA {pragma} = {wanted}")
    # What is deleted is overwritten, so that nothing of a device that withdraws stays in the file's free pages.
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    for pragma, (_, needed) in SAFE.items():
        (got,) = connection.execute(f"PRAGMA {pragma}").fetchone()
        if got != needed:
            raise BadInput(
                f"{path} cannot be written safely: {pragma} is {got}, not {needed}",
                where="--db",
                hint="use a local disk, not a network share",
            )


def make_file(path: Path) -> None:
    """Make the file if it is not there, for its owner alone, so that its name survives a power cut."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.fchmod(handle, 0o600)
        finally:
            os.close(handle)
        sync_folder(path.parent)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}", where="--db") from None


def sync_folder(folder: Path) -> None:
    """Write a folder's list of names to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock_file(path: Path) -> Callable[[], None]:
    """Take the lock beside a file; the kernel gives it up when the process ends, however it ends.

    Returns:
        A function that gives it up.
    """
    try:
        handle = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}", where="--db") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise BadInput(f"another server has {path} open", where="--db", hint="stop it first") from None
    return lambda: os.close(handle)
