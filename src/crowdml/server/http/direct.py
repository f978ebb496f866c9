"""Check-outs and check-ins without a coroutine of their own: admitted by their headers, answered when that can be done.

For every request uvicorn starts a coroutine, which waits for the body and then for the writer, and speaks ASGI with
both sides: a third of all that a small check-in costs. A route that can be answered in two steps needs none of that:
`expect` looks at the headers, and refuses or waits for the body; `take` is given the body, and a function to call with
the answer. Both return at once.

What is special about a request (a proxy, a request behind another one, a peer that does not read, a word before the
body, a large body by TLS) goes the usual way, which leads to the same functions.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from crowdml.server.refusals import BODILESS, Answer, Headers, Refusal

Answered = Callable[[Answer], None]
"""Called once with the answer."""

log = logging.getLogger("crowdml.server")


class Expected(Protocol):
    """A request that was admitted by its headers."""

    @property
    def size(self) -> int:
        """Bytes that its body must have."""
        ...

    def take(self, body: bytes | memoryview, answered: Answered) -> None:
        """Take the body, of whatever length it is; the answer comes now or later."""
        ...


class ExpectedNothing:
    """A request that was admitted and brings no body, such as a check-out.

    Args:
        answer: Called when the request is complete, with whom to tell the answer.
    """

    size = 0

    def __init__(self, answer: Callable[[Answered], None]) -> None:
        self._answer = answer

    def take(self, body: bytes | memoryview, answered: Answered) -> None:
        """Answer; there is no body."""
        self._answer(answered)


class DirectApp(Protocol):
    """An application that answers some requests so; any other one is asked by ASGI alone."""

    always: Headers
    """Headers of every answer."""

    def expect(
        self, method: bytes, url: bytes, headers: list[tuple[bytes, bytes]], address: str, scheme: str
    ) -> Expected | Answer | None:
        """Look at a request by its headers: admit it, refuse it, or return None where it goes the usual way."""
        ...


class DirectCycle:
    """One request and its answer, in the place of uvicorn's `RequestResponseCycle`.

    Args:
        http: The protocol of its connection.
        always: Headers of every answer.

    Attributes:
        body: What has come of the body: as a rule all at once, and then it is not copied.
        keep_alive: Whether the connection goes on after the answer.
        disconnected: Whether nobody waits for the answer any more.
    """

    message_event = asyncio.Event()
    """For uvicorn, which wakes whoever waits for news: nobody does."""
    waiting_for_100_continue = False
    more_body = True

    def __init__(self, http: HttpToolsProtocol, always: Headers) -> None:
        self._http, self._always = http, always
        self._expected: Expected | None = None
        self.body: Any = b""
        self.keep_alive = True
        self.response_started = self.response_complete = self.disconnected = False

    def begin(self, expected: Expected | Answer) -> None:
        """Wait for the body, or refuse without it."""
        if isinstance(expected, Answer):
            self.answer(expected)
        else:
            self._expected = expected

    def add(self, piece: bytes) -> None:
        """Put a piece of the body behind those that have come; as a rule it is the only one."""
        if not self.body:
            self.body = piece
        else:
            # Whoever sends byte by byte must not make us copy all of them for each.
            self.body = self.body if isinstance(self.body, bytearray) else bytearray(self.body)
            self.body += piece

    def take(self) -> None:
        """Hand over the body, which is complete; once."""
        expected, self._expected = self._expected, None
        body, self.body = self.body, b""  # let go of, so that its memory serves the next one
        if isinstance(body, bytearray):
            body = bytes(body)  # arrays are views of it, and nobody may change those
        if expected is not None:
            try:
                expected.take(body, self.answer)
            except Exception as error:
                self.answer(mistake(error))

    def leave(self) -> None:
        """Let go of what has come of the body: nobody waits any more, and this may stay until garbage is collected."""
        self._expected, self.body = None, b""

    def answer(self, answer: Answer) -> None:
        """Write the answer; what goes wrong here is the connection's misfortune alone."""
        http = self._http
        if self.disconnected or self.response_complete or http.transport.is_closing():
            return
        self.response_started = self.response_complete = True
        try:
            headers = _lines((*http.server_state.default_headers, *answer.headers, *self._always))
            end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
            length = b"" if answer.status in BODILESS else b"content-length: %d\r\n" % len(answer.body)
            http.transport.write(b"".join((STATUS_LINE[answer.status], headers, length, end, answer.body)))
            if not self.keep_alive:
                http.transport.close()
            http.on_response_complete()
        except Exception:
            log.exception("an answer could not be written")
            http.transport.abort()


def mistake(error: Exception) -> Answer:
    """Make the answer after a mistake of ours, which is for the log alone."""
    log.error("a request could not be answered", exc_info=error)
    return Refusal(500, "internal", "a mistake in this server").answer()


@functools.lru_cache(64)
def _lines(headers: Headers) -> bytes:
    """Write headers: for a second, nearly all answers have the same."""
    return b"".join(b"%b: %b\r\n" % header for header in headers)
