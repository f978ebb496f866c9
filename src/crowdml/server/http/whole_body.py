"""Large bodies without copies: the rest of a body goes from the socket straight to where it stays.

On its usual way a body is copied four times, in pieces: out of the event loop's buffer, out of the parser's, into
uvicorn's, and when the pieces are joined. A body whose length is known and allowed needs none of that: once its sender
was let in, the connection is handed to `BodyReader`, which lets the system write the remaining bytes into their place,
and takes not one byte more. Then the connection goes back to the HTTP protocol.

The deadline of a request runs on meanwhile, and whatever else happens to the connection is told the HTTP protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np

LARGE = 128 << 10
"""Bodies from this size on are read so; smaller ones often come with their headers."""

EXTENSION = "crowdml.whole_body"
"""Name under which a request offers this, among the extensions of its ASGI scope."""


class BodyReader(asyncio.BufferedProtocol):
    """Reads what is missing of one body.

    Args:
        http: The protocol that the connection belongs to.
        size: Bytes of the whole body.
        begun: Its first bytes, which have come already; not all of them.
        done: Called with the body when its last byte is there, once the connection is the protocol's again.

    Attributes:
        body: The bytes, as far as they have come.
        whole: Becomes whether all of them have come.
    """

    def __init__(
        self, http: asyncio.Protocol, size: int, begun: bytes | bytearray, done: Callable[[memoryview], None]
    ) -> None:
        self._http, self._done, self._at = http, done, len(begun)
        self.body = np.empty(size, np.uint8).data  # not filled with zeros before
        self.body[: self._at] = begun
        self._loop = asyncio.get_running_loop()
        self.whole: asyncio.Future[bool] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None

    def take_over(self, transport: asyncio.Transport) -> None:
        """Begin to read."""
        self._transport = transport
        _hand(transport, self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the place of the bytes that are missing."""
        return self.body[self._at :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take note of bytes that have come; with the last one, give the connection back."""
        self._at += nbytes
        if self._at < len(self.body) or self._transport is None:
            return
        _hand(self._transport, self._http)
        self._done(self.body.toreadonly())
        self._end(whole=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give up: the rest will not come."""
        self._http.connection_lost(exc)
        self._end(whole=False)

    def eof_received(self) -> None:
        """Let the connection be closed: who sends no more has not sent all."""

    def pause_writing(self) -> None:
        """Tell the protocol."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Tell the protocol."""
        self._http.resume_writing()

    def _end(self, whole: bool) -> None:
        self._transport = None
        if not self.whole.done():
            self.whole.set_result(whole)


def _hand(transport: asyncio.Transport, protocol: asyncio.BaseProtocol) -> None:
    """Give a connection to another protocol; a transport looks at how it reads when it begins to."""
    transport.pause_reading()
    transport.set_protocol(protocol)
    transport.resume_reading()
