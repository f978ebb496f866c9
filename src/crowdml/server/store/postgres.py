"""PostgreSQL, refused where it is set up to lose what it acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from sqlalchemy import Connection, create_engine
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from crowdml.core import BadInput
from crowdml.server.store.database import Database

LOCK = int.from_bytes(b"crowdml")
"""The advisory lock that a server holds on its database."""

BUSY_MS = 5000
"""How long to wait for it: PostgreSQL may take a moment to notice that a server was killed."""
POLL_S = 0.1
"""How often it is asked for. A statement that waits for it in PostgreSQL would keep its view of the database, and
nothing that was replaced meanwhile, such as each state of a model, could be cleared away."""

PATIENCE: dict[str, int] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""Of every connection, unless the address says otherwise: a network that loses whatever is sent, and tells nobody, is
noticed within about ten seconds. In seconds, the last one in thousandths."""

HOLDS_LOCK = (
    "locktype = 'advisory' AND granted AND objsubid = 1 "  # noqa: S608  a constant
    f"AND classid::BIGINT = {LOCK >> 32} AND objid::BIGINT = {LOCK & 0xFFFFFFFF} "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
"""Finds in `pg_locks` who holds it."""


def patience(url: URL) -> dict[str, Any]:
    """Return what a connection is to be opened with, so that it ends when nothing passes any more."""
    return {name: value for name, value in PATIENCE.items() if name not in url.query}


class DatabaseTaken(BadInput):
    """Another server writes to this database."""


def open_postgres(url: URL, wait_ms: int = BUSY_MS, locked: Callable[[int], None] | None = None) -> Database:
    """Open a database. The lock lives in the writing connection: whoever loses it cannot write any more.

    Args:
        url: Its address.
        wait_ms: How long to wait while another server holds the lock; 0: for ever.
        locked: Called as soon as it is held, with the number of the connection's process in PostgreSQL.
    """
    writer = connect_postgres(url)
    try:
        _lock(writer, url, wait_ms)
        if locked is not None:
            locked(writer.connection.driver_connection.info.backend_pid)  # type: ignore[union-attr]
    except BaseException:
        writer.close()
        raise
    # Each statement that reads is a transaction of its own.
    readers = create_engine(
        url,
        paramstyle="format",
        isolation_level="AUTOCOMMIT",
        pool_size=8,
        max_overflow=-1,
        pool_reset_on_return=None,
        connect_args=patience(url),
    )

    def release() -> None:
        writer.close()
        readers.dispose()

    # The lock ends with the connection. Deleted rows are the business of PostgreSQL's own vacuum.
    return Database(
        driver=writer.dialect.loaded_dbapi,
        postgres=True,
        connection=writer.connection,
        begin="",
        borrow=lambda: closing(readers.raw_connection()),
        writer=lambda: writer,
        release=release,
        scrub=lambda: None,
    )


def _lock(writer: Connection, url: URL, wait_ms: int) -> None:
    # The driver's own, a statement at a time: a follower asks ten times a second for as long as it lives.
    driver: Any = writer.connection.driver_connection
    end = time.monotonic() + wait_ms / 1000
    driver.autocommit = True
    while not driver.execute("SELECT pg_try_advisory_lock(%s)", (LOCK,)).fetchone()[0]:
        if wait_ms and time.monotonic() >= end:
            raise DatabaseTaken(f"another server has {_shown(url)} open", where="--db", hint="stop it first")
        time.sleep(POLL_S)
    driver.autocommit = False


def connect_postgres(url: URL) -> Connection:
    """Open a connection for writing."""
    # Positional parameters, so that hot statements take plain tuples with either database.
    try:
        writer = create_engine(url, poolclass=NullPool, paramstyle="format", connect_args=patience(url)).connect()
    except DBAPIError as error:
        raise BadInput(f"{_shown(url)} cannot be opened: {error.orig}", where="--db") from None
    try:
        _require_safe(writer, url)
    except BaseException:
        writer.close()
        raise
    return writer


def _require_safe(writer: Connection, url: URL) -> None:
    for name in ("fsync", "synchronous_commit", "full_page_writes"):
        if writer.exec_driver_sql(f"SHOW {name}").scalar_one() == "off":
            raise BadInput(
                f"{_shown(url)} can lose what it acknowledged: {name} is off", where="--db", hint=f"set {name} = on"
            )
    writer.commit()


def _shown(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=True)
