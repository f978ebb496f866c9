"""SQLite, opened so that what was acknowledged survives a power cut."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import NullPool, QueuePool

from crowdml.core import BadInput
from crowdml.server.store.database import Database

BUSY_S = 5.0
"""How long to wait for another program to let go of the file."""

WAL_BYTES = 64 << 20
"""The log is cut to this size after it was copied into the file."""

BEGIN = "BEGIN IMMEDIATE"
"""Takes the write lock at once, so that a transaction never finds out later that it cannot write."""

SAFE = {"journal_mode": ("WAL", "wal"), "synchronous": ("FULL", 2), "foreign_keys": ("ON", 1)}
"""What must hold: pragma → what is asked, what must be answered."""


def open_sqlite(path: Path) -> Database:
    """Open a file, made if it is not there; readable by its owner alone, and open in one server at a time."""
    release = lock_file(path)
    try:
        make_file(path)
        writer = connect_sqlite(path)
        readers = _engine(path, QueuePool, pool_size=8, max_overflow=-1, pool_reset_on_return=None)

        @event.listens_for(readers, "connect")
        def only_read(connection: Any, _: object) -> None:
            connection.execute("PRAGMA query_only = ON")

        return Database(writer=writer, begin=BEGIN, readers=readers, release=release, scrub=lambda: _empty_log(writer))
    except BaseException:
        release()
        raise


def connect_sqlite(path: Path) -> Connection:
    """Open a connection for writing: a transaction takes the write lock when it begins."""
    engine = _engine(path, NullPool)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(BEGIN)

    try:
        return engine.connect()
    except DatabaseError as error:
        raise BadInput(f"{path} cannot be opened: {error.orig}", where="--db") from None


def _engine(path: Path, pool: Any, **options: Any) -> Engine:
    # Without an isolation level Python's driver leaves transactions to us.
    arguments = {"timeout": BUSY_S, "isolation_level": None, "check_same_thread": False}
    engine = create_engine(URL.create("sqlite", database=str(path)), poolclass=pool, connect_args=arguments, **options)

    @event.listens_for(engine, "connect")
    def connect(connection: sqlite3.Connection, _: object) -> None:
        make_safe(connection, path)

    return engine


def _empty_log(writer: Connection) -> None:
    """Copy the log into the file and cut it to nothing; past SQLAlchemy, which would begin a transaction."""
    raw: Any = writer.connection.driver_connection
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")


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
