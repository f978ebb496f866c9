"""Connections that do not wait for ever: limits on headers and deadlines that uvicorn's protocol lacks.

A request must be complete ten seconds after it began, and one second later for every 64 KiB it announced; a connection
that begins none is closed as soon. What is refused before its body came is read to its end for a few seconds and thrown
away: a connection closed at once would take the answer with it. Headers may take 32 KiB. What is not HTTP gets our one
shape of errors and a closed connection.

So many connections may be open at once, and so many of them from one address. The request of one more is answered 503;
where even those answers would take too many files, connections are cut off.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from http import HTTPStatus
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from crowdml.core import record
from crowdml.server.http.direct import DirectApp, DirectCycle, mistake
from crowdml.server.http.requests import caller_of, length_of
from crowdml.server.http.websockets.bounded_socket import BoundedSocket
from crowdml.server.http.whole_body import EXTENSION, LARGE, BodyReader
from crowdml.server.refusals import ALWAYS, Refusal

CROWDED_S = 5
"""Seconds after which a refused connection may be tried again."""

LAST_LOOK_S = 0.01
"""Seconds after its deadline for which a connection is read: the event loop reads once between two rounds of clocks."""


@record
class ConnectionLimits:
    """How long and how large a request may be.

    Attributes:
        header_bytes: Bytes of address and headers at most.
        deadline_s: Seconds in which a request must be complete.
        bytes_per_second: A body that announces its length gets a second more for so many bytes.
        linger_s: Seconds for which the rest of a refused request is read.
        stall_s: Seconds for which an answer waits for a peer that does not read it.
        connections: Connections at once; more are refused, so that files are left for the store.
        per_address: Connections of one address at once, so that nobody takes them all.
        refused: Connections that are told so at once; more are cut off.
    """

    header_bytes: int = 32 << 10
    deadline_s: float = 10.0
    bytes_per_second: int = 64 << 10
    linger_s: float = 3.0
    stall_s: float = 60.0
    connections: int = 10_000
    per_address: int = 2_500
    refused: int = 64


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with the usual limits; `bounded` makes others."""

    limits = ConnectionLimits()
    addresses: ClassVar[Counter[str]] = Counter()
    socket: ClassVar[type[BoundedSocket]] = BoundedSocket
    _address: str | None = None
    _caller = ""
    _direct_app: DirectApp | None = None
    _direct: DirectCycle | None = None
    _running: RequestResponseCycle | None = None
    _crowded = False
    _head_bytes = 0
    _header_bytes = 0
    _announced = 0
    _began = 0.0
    _headers_done = False
    _chunked = False
    _complete = True
    _over = False
    _clock: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect the first request soon."""
        super().connection_made(transport)
        limits, address = self.limits, caller_of(self.client[0]) if self.client else ""
        self._caller, self._direct_app = address, self.app if hasattr(self.app, "expect") else None
        if len(self.connections) > limits.connections + limits.refused:
            transport.abort()
        elif len(self.connections) > limits.connections or self.addresses[address] >= limits.per_address:
            self._crowded = True
            self._start_clock(limits.linger_s)
        else:
            self._address = address
            self.addresses[address] += 1
            self._start_clock(limits.deadline_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadlines, and make room for another one."""
        self._stop_clock()
        if self._address is not None:
            self._leave(self._address)
        self.resume_writing()
        if self._direct is not None:
            self._direct.leave()
        if self._running is not None and not self._running.response_complete:
            # uvicorn tells the last request alone; one before it would write to a connection that is no more.
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def _leave(self, address: str) -> None:
        self._address = None
        self.addresses[address] -= 1
        if not self.addresses[address]:
            del self.addresses[address]

    def data_received(self, data: bytes) -> None:
        """Take bytes; unless they complete a request, a deadline runs."""
        if self._over:
            return
        if not self._headers_done:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._over or self.transport.is_closing():
            return
        if self._headers_done and self._direct is not None and not self._direct.response_complete:
            # As a rule a small body has come with its headers; this one has not.
            self._await_body()
            if self._announced >= LARGE:
                self._read_rest(self._announced)
        if not self._headers_done and self._head_bytes > self.limits.header_bytes:
            self._refuse_headers()
        elif self._clock is None and not self._answering and self.timeout_keep_alive_task is None:
            # Bytes that begin no request, such as empty lines, keep no connection open.
            self._start_clock(self.limits.deadline_s)

    def on_message_begin(self) -> None:
        """Begin to count the bytes and the time of a request."""
        if self._over:
            return
        self._header_bytes = self._announced = 0
        self._complete = self._chunked = False
        self._began = self.loop.time()
        self._start_clock(self.limits.deadline_s)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count the address with the headers."""
        self._header_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header, and note the size of the body that it announces."""
        self._header_bytes += len(name) + len(value)
        if value.isdigit() and name.lower() == b"content-length":
            self._announced = min(length_of(value), 1 << 30)
        self._chunked |= name.lower() == b"transfer-encoding"
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Answer, unless something in the headers is reason enough not to."""
        if self._over:
            return
        if self._crowded:
            self._refuse(503, "busy", "too many connections at once", retry_after_s=CROWDED_S)
        elif self._header_bytes > self.limits.header_bytes:
            self._refuse_headers()
        elif self.parser.get_http_version() not in ("1.0", "1.1"):
            self._refuse(400, "not-http", "this server speaks HTTP/1.1")
        elif not self.url.startswith(b"/"):
            # Only proxies are asked with a whole address; it could name another host than the header does.
            self._refuse(400, "address", "this server is asked for a path, not for a whole address", hint="GET /path")
        elif self._chunked:
            # Bodies of known length leave nothing to be smuggled in: no chunks, no extensions, no trailers.
            self._refuse(411, "length", "a request says how long it is")
        else:
            self._take_up()

    def _take_up(self) -> None:
        self._headers_done, self._head_bytes = True, 0
        self._direct = None
        if self._direct_app is not None and self._begin_direct(self._direct_app):
            return
        self._await_body()
        if self._announced >= LARGE and self.scheme == "http":
            scope: Any = self.scope
            scope["extensions"] = {EXTENSION: lambda size: self._whole_body(scope, size)}
        super().on_headers_complete()
        if self.parser.should_upgrade() and not self._should_upgrade():
            # Answered as if it had not asked; but the parser reads nothing after that.
            self.cycle.keep_alive = False

    def _await_body(self) -> None:
        """Give a request the time that its length needs."""
        until = self._began + self.limits.deadline_s + self._announced / self.limits.bytes_per_second
        self._start_clock(until - self.loop.time())

    def _begin_direct(self, app: DirectApp) -> bool:
        """Answer without a coroutine, if this is a plain request for a route that can be: see `direct`."""
        parser, cycle = self.parser, self.cycle
        if (cycle is not None and not cycle.response_complete) or self.flow.write_paused or self.expect_100_continue:
            return False
        if parser.should_upgrade() or not parser.should_keep_alive() or parser.get_http_version() != "1.1":
            return False
        if self._announced >= LARGE and self.scheme != "http":
            return False
        try:
            expected = app.expect(parser.get_method(), self.url, self.headers, self._caller, self.scheme or "")
        except Exception as error:
            expected = mistake(error)
        if expected is None:
            return False
        self._direct = DirectCycle(self, app.always)
        self.cycle = self._direct  # type: ignore[assignment]  # in its place
        self._direct.begin(expected)
        return True

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        """Hand a piece of the body on."""
        if self._over:
            return
        if self._direct is None:
            super().on_body(body)
        elif not self._direct.response_complete:
            self._direct.add(body)

    async def _whole_body(self, scope: Any, size: int) -> memoryview | None:
        """Read a body of that size without copies; None where it has to come on the usual way, or will not come."""
        cycle = self.cycle
        within = not self._complete and not self._over and cycle.scope is scope and not cycle.disconnected
        if not within or cycle.waiting_for_100_continue or not len(cycle.body) < size == self._announced:
            return None
        reader = self._read_rest(size)
        return reader.body.toreadonly() if await reader.whole else None

    def _read_rest(self, size: int) -> BodyReader:
        """Let a reader have the connection until the body has come to its end."""
        reader = BodyReader(self, size, self.cycle.body, self._end_body)
        self.cycle.body = bytearray()
        self.flow.resume_reading()
        reader.take_over(self.transport)
        return reader

    def _end_body(self, body: memoryview) -> None:
        """Go on after a body that the parser has not seen: another one begins with the next request."""
        if self._direct is not None:
            self._direct.body = body
        self.parser = httptools.HttpRequestParser(self)
        self.on_message_complete()

    def on_message_complete(self) -> None:
        """Stop the clock: the whole request is here."""
        if self._over:
            return
        self._complete, self._headers_done = True, False
        self._stop_clock()
        super().on_message_complete()
        if self._direct is not None:
            self._direct.take()

    def on_response_complete(self) -> None:
        """Read the rest of a request that was refused by its headers, but not for long."""
        super().on_response_complete()
        if not self._complete and not self.transport.is_closing():
            self._start_clock(self.limits.linger_s)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self._refuse(400, "not-http", msg)

    def pause_writing(self) -> None:
        """Give a peer that does not read some time."""
        super().pause_writing()
        if self._stall is None:
            self._stall = self.loop.call_later(self.limits.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Forget the stall: the other side reads again."""
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        super().resume_writing()

    def shutdown(self) -> None:
        """Finish the request under way; a stream of events has no end of its own, and is cut."""
        if self._answering and self._direct is None and self.scope["path"].endswith("/events"):
            self.transport.close()
        super().shutdown()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over, and with it what it counts for: this protocol will not hear of its end."""
        self._over = True
        self._stop_clock()
        super().handle_websocket_upgrade()
        taken_over = self.transport.get_protocol()
        if isinstance(taken_over, BoundedSocket) and not taken_over.disconnected and self._address is not None:
            taken_over.leave = partial(self._leave, self._address)
        elif self._address is not None:
            self._leave(self._address)

    @property
    def _answering(self) -> bool:
        return self._complete and self.cycle is not None and not self.cycle.response_complete

    def _refuse_headers(self) -> None:
        self._refuse(431, "headers", f"headers may have {self.limits.header_bytes} bytes")

    def _refuse(self, status: int, code: str, message: str, retry_after_s: int | None = None, hint: str = "") -> None:
        if self._over:
            # Refused by its headers, and now the parser finds fault with it too: one answer is enough.
            return
        self._over = True
        if not self._may_answer():
            self.transport.close()
            return
        answer = Refusal(status, code, message, retry_after_s=retry_after_s, hint=hint).answer()
        more = ((b"content-length", b"%d" % len(answer.body)), (b"connection", b"close"), *ALWAYS)
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
        head += b"".join(name + b": " + value + b"\r\n" for name, value in (*answer.headers, *more))
        self.transport.write(head + b"\r\n" + answer.body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._start_clock(self.limits.linger_s)

    def _may_answer(self) -> bool:
        """Tell whether a refusal would be taken for the answer to the request that it refuses, and let none follow."""
        cycle = self.cycle
        if self.pipeline or cycle is None or not self._headers_done:
            return not self.pipeline and (cycle is None or cycle.response_complete)
        if not cycle.response_started:
            cycle.disconnected = True
            cycle.message_event.set()
            return True
        return False

    def _start_clock(self, seconds: float) -> None:
        self._stop_clock()
        self._clock = self.loop.call_later(max(seconds, 0.0), self._expire)

    def _expire(self) -> None:
        """Have one more look at what has come: a loop that was busy for long finds its clocks run down before it reads.

        Without it thousands that come at once would be cut off with their whole request unread, and come again.
        """
        self._clock = self.loop.call_later(LAST_LOOK_S, self._end_late)

    def _end_late(self) -> None:
        self._clock = None
        self.transport.close()

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None


def bounded(limits: ConnectionLimits) -> type[BoundedProtocol]:
    """Make the protocol with other limits."""
    return type("BoundedProtocol", (BoundedProtocol,), {"limits": limits, "addresses": Counter()})
