"""A channel to PostgreSQL: statements and notifications over one connection, inside the event loop.

Front ends speak with each other by it (see `crowdml.server.fronts`): a few statements for every batch, and a thread for
each would cost more than the statements. It uses libpq's own functions for that; one statement runs at a time, the
others wait. Values and results are bytes, as PostgreSQL writes them in its binary form.

Whoever loses the connection is told at once, also while nothing is asked.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from crowdml.server.store.store_records import StoreFailed

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

log = logging.getLogger("crowdml.server")

BOOL, BYTES, INT8, INT4, TEXT = 16, 17, 20, 23, 25
INT4S, INT8S = 1007, 1016
"""PostgreSQL's numbers for kinds of values; the last two are lists."""
_BINARY = 1
_TUPLES_OK, _COMMAND_OK = 2, 1

Value = bytes | None
Row = tuple[Value, ...]


def int8(number: int) -> bytes:
    """Write a whole number.

    >>> from_int(int8(-5))
    -5
    """
    return struct.pack(">q", number)


def from_int(raw: Value) -> int:
    """Read a whole number of any width."""
    return int.from_bytes(raw or b"", signed=True)


def int8_list(numbers: Sequence[int]) -> bytes:
    """Write a list of whole numbers."""
    items = b"".join(b"\0\0\0\x08" + int8(number) for number in numbers)
    return struct.pack(">iiIii", 1, 0, INT8, len(numbers), 1) + items


class Channel:
    """One connection, used by the event loop alone.

    Args:
        connection: An open connection of psycopg's that nobody else uses, in autocommit.
        heard: Called with channel and payload of each notification.
        lost: Called once when the connection is gone.
    """

    def __init__(
        self, connection: Any, heard: Callable[[str, str], None], lost: Callable[[BaseException], None]
    ) -> None:
        """Begin to listen; an event loop must be running."""
        self._connection, self._heard, self._lost = connection, heard, lost
        self._raw: PGconn = connection.pgconn
        self._raw.nonblocking = 1
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[Callable[[], None], asyncio.Future[list[Row]]]] = deque()
        self._under_way: asyncio.Future[list[Row]] | None = None
        self._results: list[PGresult] = []
        self._prepared: dict[str, bytes] = {}
        self._closed = False
        self._loop.add_reader(self._raw.socket, self._readable)

    def run(self, text: str, kinds: Sequence[int] = (), *values: Value) -> asyncio.Future[list[Row]]:
        """Run a statement with $1, $2, … in it; its rows come when it is done.

        Args:
            text: The statement; the same text is prepared once.
            kinds: Kinds of its values.
            values: The values.
        """
        found = self._loop.create_future()
        if self._closed:
            found.set_exception(StoreFailed("the connection to the database is closed"))
            return found
        name = self._prepared.get(text)
        if name is None:
            name = self._prepared[text] = b"s%d" % len(self._prepared)
            prepare: asyncio.Future[list[Row]] = self._loop.create_future()
            prepare.add_done_callback(lambda done: done.cancelled() or done.exception())
            given = [*kinds] or None
            self._waiting.append((lambda: self._raw.send_prepare(name, text.encode(), given), prepare))
        formats = [_BINARY] * len(values) or None
        given_values = [*values] or None
        self._waiting.append(
            (lambda: self._raw.send_query_prepared(name, given_values, formats, result_format=_BINARY), found)
        )
        self._next()
        return found

    def close(self) -> None:
        """Let go of the connection; what waits fails."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._raw.socket)
            self._loop.remove_writer(self._raw.socket)
            self._fail(StoreFailed("the connection to the database is closed"))
            self._connection.close()

    def _next(self) -> None:
        if self._under_way is not None or not self._waiting or self._closed:
            return
        send, self._under_way = self._waiting.popleft()
        try:
            send()
            self._flush()
        except BaseException as error:
            self._break(error)

    def _flush(self) -> None:
        if self._raw.flush():
            self._loop.add_writer(self._raw.socket, self._writable)
        else:
            self._loop.remove_writer(self._raw.socket)

    def _writable(self) -> None:
        try:
            self._flush()
        except BaseException as error:
            self._break(error)

    def _readable(self) -> None:
        try:
            self._raw.consume_input()
            while (note := self._raw.notifies()) is not None:
                self._heard(note.relname.decode(), note.extra.decode())
            while self._under_way is not None and not self._raw.is_busy():
                result = self._raw.get_result()
                if result is not None:
                    self._results.append(result)
                    continue
                self._finish()
        except BaseException as error:
            self._break(error)

    def _finish(self) -> None:
        """Hand over the rows of the statement that is done, and begin the next one."""
        future, results, self._under_way, self._results = self._under_way, self._results, None, []
        bad = next((result for result in results if result.status not in (_TUPLES_OK, _COMMAND_OK)), None)
        if future is not None and not future.done():
            if bad is not None:
                future.set_exception(StoreFailed(f"the database failed: {bad.error_message.decode(errors='replace')}"))
            else:
                future.set_result([row for result in results for row in _rows(result)])
        self._next()

    def _break(self, error: BaseException) -> None:
        if not self._closed:
            self.close()
            self._lost(error)

    def _fail(self, error: StoreFailed) -> None:
        waiting = [future for _, future in self._waiting] + ([self._under_way] if self._under_way else [])
        self._waiting.clear()
        self._under_way = None
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever waits gets it; where nobody does, it is told by `lost`


def _rows(result: PGresult) -> list[Row]:
    columns = range(result.nfields)
    return [tuple(result.get_value(row, column) for column in columns) for row in range(result.ntuples)]
