"""The post office of the front ends: two tables and notifications, in the database that all of them share.

Letters to the aggregator lie in `crowdml_inbox`, and what it answers at length in `crowdml_outbox`. Whoever takes a
letter deletes it. The tables are unlogged: nothing in them is ever acknowledged, so that nothing of it must survive.
A check-in is acknowledged when its receipt is stored, as on a single server, and its sender keeps its bytes until then;
so no body is written to disk.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

from crowdml.core import BadInput
from crowdml.server.fronts.link import Place
from crowdml.server.store.channel import BYTES, INT4, INT8, INT8S, TEXT, Channel, Row, from_int, int8, int8_list
from crowdml.server.store.open_database import parse
from crowdml.server.store.postgres import HOLDS_LOCK, LOCK, connect_postgres, patience

ALL = "crowdml"
"""The channel that every front end listens to."""
INBOX = "crowdml_in"
"""The channel of whoever aggregates."""

CHECK_INS, OPEN, MORE = 0, 1, 2
"""Kinds of letters to the aggregator: a batch, the beginning of a request, another event of it."""

LOOPBACK = "127.0.0.1"
"""Where front ends reach each other whose database is reached by a file."""

MOST_LETTERS = 64
"""Letters that are taken at once."""

MAKE = (
    "CREATE UNLOGGED TABLE IF NOT EXISTS crowdml_inbox (id BIGSERIAL PRIMARY KEY, front BIGINT NOT NULL, "
    "kind INTEGER NOT NULL, number BIGINT NOT NULL, task BIGINT NOT NULL, content BYTEA NOT NULL)",
    "CREATE UNLOGGED TABLE IF NOT EXISTS crowdml_outbox (id BIGSERIAL PRIMARY KEY, front BIGINT NOT NULL, "
    "number BIGINT NOT NULL, content BYTEA NOT NULL)",
    # Bodies are noise: to compress them takes time and saves nothing.
    "ALTER TABLE crowdml_inbox ALTER content SET STORAGE EXTERNAL",
    "ALTER TABLE crowdml_outbox ALTER content SET STORAGE EXTERNAL",
    "ALTER TABLE crowdml_inbox SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)",
    "ALTER TABLE crowdml_outbox SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)",
    "CREATE SEQUENCE IF NOT EXISTS crowdml_fronts",
    "CREATE UNLOGGED TABLE IF NOT EXISTS crowdml_aggregator (front BIGINT NOT NULL, host TEXT NOT NULL, "
    "port INTEGER NOT NULL, secret BYTEA NOT NULL)",
)
NO_WAIT_FOR_DISK = "SET synchronous_commit = off"
"""For a connection that stores nothing which must last: PostgreSQL lets one transaction with a notification end at a
time, so one that waited for the disk would hold up the signs of life of all."""
_SEND = (
    "WITH sent AS (INSERT INTO crowdml_inbox (front, kind, number, task, content) VALUES ($1, $2, $3, $4, $5)) "  # noqa: S608  constants
    f"SELECT pg_notify('{INBOX}', '')"
)
_CLAIM = (
    f"DELETE FROM crowdml_inbox WHERE id = ANY (ARRAY(SELECT id FROM crowdml_inbox ORDER BY id LIMIT {MOST_LETTERS})) "  # noqa: S608
    "RETURNING id, front, kind, number, task, content"
)
_REPLY = (
    "WITH sent AS (INSERT INTO crowdml_outbox (front, number, content) VALUES ($1, $2, $3)) SELECT pg_notify($4, '')"
)
_COLLECT = "DELETE FROM crowdml_outbox WHERE front = $1 RETURNING id, number, content"
_TELL = "SELECT pg_notify($1, $2)"
_HOLDER = f"SELECT pid FROM pg_locks WHERE {HOLDS_LOCK}"  # noqa: S608  a constant
_END_HOLDER = f"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE {HOLDS_LOCK} AND pid = $1"  # noqa: S608
_PUT_AGGREGATOR = (
    "WITH gone AS (DELETE FROM crowdml_aggregator) "
    "INSERT INTO crowdml_aggregator (front, host, port, secret) VALUES ($1, $2, $3, $4)"
)
_FIND_AGGREGATOR = "SELECT front, host, port, secret FROM crowdml_aggregator"
_SWEEP = "DELETE FROM crowdml_outbox WHERE front = $1"
_CLEAR = ("DELETE FROM crowdml_inbox WHERE front <> ALL ($1)", "DELETE FROM crowdml_outbox WHERE front <> ALL ($1)")


def own_channel(front: int) -> str:
    """Name the channel of one front end."""
    return f"crowdml_{front}"


class Post:
    """What one front end does at the post office.

    Args:
        url: Address of the database.
        heard: Called with channel and payload of each notification.
        lost: Called when the connection is gone.

    Attributes:
        front: Number of this front end; no other has it, ever.
    """

    def __init__(self, url: str, heard: Callable[[str, str], None], lost: Callable[[BaseException], None]) -> None:
        """Connect; `begin` must follow in the event loop."""
        self._heard, self._lost = heard, lost
        self._channel: Channel | None = None
        self._connection = connect(url)
        try:
            self.front = self._make_ready()
        except self._connection.Error as error:
            self._connection.close()
            raise BadInput(
                f"front ends cannot use the database: {str(error).partition(chr(10))[0]}",
                where="--db",
                hint="its user must be allowed to make tables there: GRANT CREATE ON SCHEMA public TO NAME",
            ) from None

    def _make_ready(self) -> int:
        """Make the tables, unless they are there; return a number that no other front end has."""
        with self._connection.transaction():
            # Of two that make the tables at once, one waits.
            self._connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK + 1,))
            if self._connection.execute("SELECT to_regclass('crowdml_aggregator')").fetchone()[0] is None:
                for text in MAKE:
                    self._connection.execute(text)
        (front,) = self._connection.execute("SELECT nextval('crowdml_fronts')").fetchone()
        self._connection.execute(NO_WAIT_FOR_DISK)
        return int(front)

    def begin(self) -> None:
        """Begin to listen; an event loop must be running."""
        self._channel = Channel(self._connection, self._heard, self._lost)
        self.listen(ALL)
        self.listen(own_channel(self.front))

    @property
    def channel(self) -> Channel:
        """The connection."""
        assert self._channel is not None  # noqa: S101  begun
        return self._channel

    def listen(self, name: str) -> asyncio.Future[list[Row]]:
        """Hear what is told on a channel from now on."""
        return self.channel.run(f"LISTEN {name}")

    def tell(self, name: str, payload: str) -> asyncio.Future[list[Row]]:
        """Tell something to whoever listens to a channel."""
        return self.channel.run(_TELL, (TEXT, TEXT), name.encode(), payload.encode())

    def send(self, kind: int, number: int, content: bytes, task: int = 0) -> asyncio.Future[list[Row]]:
        """Write to the aggregator, whoever that is."""
        kinds = (INT8, INT4, INT8, INT8, BYTES)
        values = (int8(self.front), kind.to_bytes(4), int8(number), int8(task), content)
        return self.channel.run(_SEND, kinds, *values)

    async def claim(self) -> list[tuple[int, int, int, int, bytes]]:
        """Take letters out of the inbox: of each its front end, kind, number, task and content, in order."""
        found = sorted(await self.channel.run(_CLAIM), key=_number)
        return [
            (from_int(row[1]), from_int(row[2]), from_int(row[3]), from_int(row[4]), row[5] or b"") for row in found
        ]

    def reply(self, front: int, number: int, content: bytes) -> asyncio.Future[list[Row]]:
        """Answer a request of another front end with one more event."""
        values = (int8(front), int8(number), content, own_channel(front).encode())
        return self.channel.run(_REPLY, (INT8, INT8, BYTES, TEXT), *values)

    async def collect(self) -> list[tuple[int, bytes]]:
        """Take what was answered to this front end: numbers of requests, and events."""
        rows = sorted(await self.channel.run(_COLLECT, (INT8,), int8(self.front)), key=_number)
        return [(from_int(row[1]), row[2] or b"") for row in rows]

    @property
    def host(self) -> str:
        """The address by which this front end reaches the database: others that use it may reach us there."""
        with socket.socket(fileno=os.dup(self._connection.pgconn.socket)) as copy:
            return str(copy.getsockname()[0]) if copy.family in (socket.AF_INET, socket.AF_INET6) else LOOPBACK

    def put_aggregator(self, port: int, secret: bytes) -> asyncio.Future[list[Row]]:
        """Say where this front end, which aggregates, takes links."""
        values = (int8(self.front), self.host.encode(), port.to_bytes(4), secret)
        return self.channel.run(_PUT_AGGREGATOR, (INT8, TEXT, INT4, BYTES), *values)

    async def find_aggregator(self) -> Place | None:
        """Find where whoever aggregates takes links."""
        found = await self.channel.run(_FIND_AGGREGATOR)
        if not found:
            return None
        front, host, port, secret = found[0]
        return Place(front=from_int(front), host=(host or b"").decode(), port=from_int(port), secret=secret or b"")

    async def sweep(self, front: int) -> None:
        """Throw away what was answered to a front end that is gone."""
        await self.channel.run(_SWEEP, (INT8,), int8(front))

    async def clear(self, living: Iterable[int]) -> None:
        """Throw away all letters of and to front ends that are not there any more.

        Whoever ends leaves some behind. Nobody waits for what they ask for, and its time is over: a task would stop by
        itself whenever a server is started again.

        Args:
            living: Other front ends that are there. One that is missing here sends again what it may.
        """
        fronts = int8_list([self.front, *living])
        for text in _CLEAR:
            await self.channel.run(text, (INT8S,), fronts)

    async def holder(self) -> int | None:
        """Return the number of the process in PostgreSQL that holds the lock."""
        found = await self.channel.run(_HOLDER)
        return from_int(found[0][0]) if found else None

    def end_holder(self, process: int) -> asyncio.Future[list[Row]]:
        """Have PostgreSQL end the connection that holds the lock, if it is still that one."""
        return self.channel.run(_END_HOLDER, (INT4,), process.to_bytes(4))

    def close(self) -> None:
        """Let go of the connection."""
        if self._channel is not None:
            self._channel.close()
        else:
            self._connection.close()


def _number(row: Row) -> int:
    return from_int(row[0])


def connect(url: str) -> Any:
    """Open a connection of the driver's own, in autocommit, after the same checks as the store's."""
    with closing(connect_postgres(parse(url))) as checked:
        checked.exec_driver_sql("SELECT 1")
    import psycopg

    parsed = parse(url)
    plain = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(plain, autocommit=True, **patience(parsed))
