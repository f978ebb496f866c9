"""Connections that do not wait for ever: limits on headers and deadlines that uvicorn's own protocol lacks.

A request must be complete ten seconds after it began, and one second later for every 64 KiB it announced; a connection
that begins none is closed as soon. What is refused before its body came is read to its end for a few seconds and thrown
away: a connection closed at once would take the answer with it. Headers may take 32 KiB. What is not HTTP gets our one
shape of errors and a closed connection.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from crowdml.core import record
from crowdml.server.answers import PROTOCOL, Refusal


@record
class ConnectionLimits:
    """How long and how large a request may be.

    Attributes:
        header_bytes: Bytes of address and headers at most.
        deadline_s: Seconds in which a request must be complete.
        bytes_per_second: A body that announces its length gets a second more for so many bytes.
        linger_s: Seconds for which the rest of a refused request is read.
        stall_s: Seconds for which an answer waits for a peer that does not read it.
    """

    header_bytes: int = 32 << 10
    deadline_s: float = 10.0
    bytes_per_second: int = 64 << 10
    linger_s: float = 3.0
    stall_s: float = 60.0


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits; a test sets others in a class of its own."""

    limits = ConnectionLimits()
    _head_bytes = 0
    _header_bytes = 0
    _announced = 0
    _began = 0.0
    _headers_done = False
    _complete = True
    _refused = False
    _clock: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect the first request soon."""
        super().connection_made(transport)
        self._start_clock(self.limits.deadline_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadlines."""
        self._stop_clock()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; unless they complete a request, a deadline runs."""
        if self._refused:
            return
        if not self._headers_done:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._refused or self.transport.is_closing():
            return
        if not self._headers_done and self._head_bytes > self.limits.header_bytes:
            self._refuse_headers()
        elif self._clock is None and not self._answering:
            # Bytes that begin no request, such as empty lines, keep no connection open.
            self._start_clock(self.limits.deadline_s)

    def on_message_begin(self) -> None:
        """Begin to count."""
        self._header_bytes = self._announced = 0
        self._complete = False
        self._began = self.loop.time()
        self._start_clock(self.limits.deadline_s)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count the address with the headers."""
        self._header_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count."""
        self._header_bytes += len(name) + len(value)
        if value.isdigit() and name.lower() == b"content-length":
            self._announced = min(int(value[:12]), 1 << 30)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Answer, unless the headers are too long."""
        if self._header_bytes > self.limits.header_bytes:
            self._refuse_headers()
        if self._refused:
            return
        self._headers_done, self._head_bytes = True, 0
        until = self._began + self.limits.deadline_s + self._announced / self.limits.bytes_per_second
        self._start_clock(until - self.loop.time())
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Hand a piece of the body on."""
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._complete, self._headers_done = True, False
        self._stop_clock()
        if not self._refused:
            super().on_message_complete()

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
        """Go on."""
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        super().resume_writing()

    def shutdown(self) -> None:
        """Finish the request under way; a stream of events has no end of its own, and is cut."""
        if self._answering and self.scope["path"].endswith("/events"):
            self.transport.close()
        super().shutdown()

    @property
    def _answering(self) -> bool:
        return self._complete and self.cycle is not None and not self.cycle.response_complete

    def _refuse_headers(self) -> None:
        self._refuse(431, "headers", f"headers may have {self.limits.header_bytes} bytes")

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._refused = True
        if not self._may_answer():
            self.transport.close()
            return
        body = Refusal(status, code, message).answer().body
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n{PROTOCOL[0].decode()}: {PROTOCOL[1].decode()}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
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
        self._clock = None
        self.transport.close()

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
