"""Connections that do not wait for ever: limits on headers and deadlines that uvicorn's own protocol lacks.

A request must be complete ten seconds after it began, and one second later for every 64 KiB it announced. Headers may
take 32 KiB. What is not HTTP gets our one shape of errors and a closed connection.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from crowdml.server.answers import Refusal

LARGEST_HEADERS = 32 << 10
DEADLINE_S = 10.0
BYTES_PER_SECOND = 64 << 10


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits."""

    _header_bytes = 0
    _announced = 0
    _headers_done = False
    _complete = True
    _refused = False
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect the first request soon."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(DEADLINE_S, self._expire)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline."""
        self._stop_clock()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; a request that is still incomplete afterwards runs against a deadline."""
        if self._refused:
            return
        super().data_received(data)
        if self._refused or self.transport.is_closing():
            return
        if self._complete:
            self._stop_clock()
            return
        if not self._headers_done and self._header_bytes + len(data) > LARGEST_HEADERS:
            self._refuse(431, "headers", f"headers may have {LARGEST_HEADERS} bytes")
        elif self._deadline is None:
            self._deadline = self.loop.call_later(DEADLINE_S + self._announced / BYTES_PER_SECOND, self._expire)

    def on_message_begin(self) -> None:
        """Begin to count."""
        self._header_bytes = self._announced = 0
        self._headers_done = self._complete = False
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
        self._headers_done = True
        if self._header_bytes > LARGEST_HEADERS:
            self._refuse(431, "headers", f"headers may have {LARGEST_HEADERS} bytes")
        if not self._refused:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Hand a piece of the body on."""
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._complete = True
        if not self._refused:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self._refuse(400, "not-http", msg)

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._refused = True
        self._stop_clock()
        body = Refusal(status, code, message).answer().body
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _expire(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
