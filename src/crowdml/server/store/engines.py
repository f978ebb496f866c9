"""Databases: how SQLite and PostgreSQL are opened so that what was acknowledged stays stored.

Each gives a `Database`: one connection that writes, held open for the server's life and guarded against a second
server, and a pool of connections that read.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from crowdml.core import BadInput, record

URLS = "sqlite:///FILE or postgresql://USER@HOST/DATABASE"
BUSY_S = 5.0
"""How long SQLite waits for another program, such as a backup, to let go of the file."""

POSTGRES_LOCK = 0x63726F7764  # "crowd"
"""The advisory lock that a server holds on its database."""


@record
class Database:
    """An open database.

    Attributes:
        writer: The one connection that writes.
        readers: Where connections that read come from.
        release: Gives up the lock; called last.
    """

    writer: Connection
    readers: Engine
    release: Callable[[], None]

    def close(self) -> None:
        """Close all connections, then let another server in."""
        try:
            self.writer.close()
            self.writer.engine.dispose()
            self.readers.dispose()
        finally:
            self.release()


def open_database(url: str) -> Database:
    """Open a database by its address, or say why it cannot be used."""
    parsed = parse(url)
    return open_sqlite(path_of(parsed)) if parsed.get_backend_name() == "sqlite" else open_postgres(parsed)


def parse(url: str) -> URL:
    """Read an address.

    >>> parse("postgresql://crowd@localhost/crowd").drivername
    'postgresql+psycopg'
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise BadInput(f"{url!r} is not the address of a database", where="--db", hint=URLS) from None
    if parsed.drivername in ("postgresql", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername != "sqlite" or parsed.database in (None, "", ":memory:") or parsed.query:
        shown = parsed.render_as_string(hide_password=True)
        raise BadInput(f"{shown} is not a database that keeps what it was given", where="--db", hint=URLS)
    return parsed


def path_of(url: URL) -> Path:
    """Return the file of an SQLite address."""
    return Path(url.database or "")


def open_sqlite(path: Path) -> Database:
    """Open an SQLite file, made if it is not there; readable by its owner alone."""
    release = lock_file(path)
    try:
        _make_file(path)
        writer = sqlite_engine(path, "BEGIN IMMEDIATE", NullPool).connect()
        readers = sqlite_engine(path, "BEGIN", QueuePool, "PRAGMA query_only = ON")
        return Database(writer=writer, readers=readers, release=release)
    except BaseException:
        release()
        raise


def sqlite_engine(path: Path, begin: str, pool: Any, *pragmas: str) -> Engine:
    """Make an engine whose connections are safe against power cuts and begin transactions as told."""
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=pool,
        connect_args={"timeout": BUSY_S, "isolation_level": None, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _: object) -> None:
        _make_safe(connection, path)
        for pragma in pragmas:
            connection.execute(pragma)

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _make_safe(connection: Any, path: Path) -> None:
    """Ask for what durability needs, and make sure that it was given."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    # A device that withdraws is erased from the file's free pages too.
    connection.execute("PRAGMA secure_delete = ON")
    mode, level, keys = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous", "foreign_keys")
    )
    if (mode, level, keys) != ("wal", 2, 1):
        raise BadInput(
            f"{path} cannot be written safely (journal {mode}, synchronous {level}, foreign keys {keys})",
            where="--db",
            hint="use a file system that supports SQLite's WAL: a local disk, not a network share",
        )


def _make_file(path: Path) -> None:
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
    """Make the name of a new file survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock_file(path: Path) -> Callable[[], None]:
    """Take the lock beside an SQLite file; the kernel gives it up when the process ends, however it ends."""
    beside = path.with_name(path.name + ".lock")
    try:
        handle = os.open(beside, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}", where="--db") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise BadInput(f"another server has {path} open", where="--db", hint="stop it first") from None
    return lambda: os.close(handle)


def open_postgres(url: URL) -> Database:
    """Open a PostgreSQL database. The lock lives in the writing connection: who loses it cannot write any more."""
    # Positional parameters, so that hot statements take plain tuples with either database.
    writers = create_engine(url, poolclass=NullPool, paramstyle="format")
    readers = create_engine(url, paramstyle="format", pool_size=4, isolation_level="REPEATABLE READ")
    try:
        writer = writers.connect()
    except DBAPIError as error:
        shown = url.render_as_string(hide_password=True)
        raise BadInput(f"{shown} cannot be opened: {error.orig}", where="--db") from None
    try:
        _check_postgres(writer, url)
    except BaseException:
        writer.close()
        raise
    return Database(writer=writer, readers=readers, release=lambda: None)


def _check_postgres(writer: Connection, url: URL) -> None:
    shown = url.render_as_string(hide_password=True)
    for name in ("fsync", "synchronous_commit"):
        if writer.exec_driver_sql(f"SHOW {name}").scalar_one() == "off":
            raise BadInput(
                f"{shown} can lose what it acknowledged: {name} is off", where="--db", hint=f"set {name} = on"
            )
    if not writer.exec_driver_sql("SELECT pg_try_advisory_lock(%s)", (POSTGRES_LOCK,)).scalar_one():
        raise BadInput(f"another server has {shown} open", where="--db", hint="stop it first")
    writer.commit()
