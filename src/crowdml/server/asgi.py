"""The few things that raw ASGI routes need: headers, a body of known size, an answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from crowdml.server.answers import ALWAYS, Answer, Refusal
from crowdml.server.limits import caller_of

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

_SINGLE = frozenset(
    (
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"idempotency-key",
        b"origin",
        b"range",
    )
)


@dataclasses.dataclass(slots=True, kw_only=True)
class Request:
    """What a raw route looks at. Not frozen, because that would triple what making one costs; nobody changes it.

    Attributes:
        headers: Headers by lower-case name.
        address: Where the request came from, as limits count it.
    """

    headers: dict[bytes, bytes]
    address: str

    @staticmethod
    def of(scope: Scope) -> Request:
        """Read the headers; one that must be single and is not is refused."""
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in headers and name in _SINGLE:
                raise Refusal(400, "repeated-header", f"the header {name.decode('latin-1')} stands twice")
            headers[name] = value
        client = scope.get("client")
        return Request(headers=headers, address=caller_of(client[0]) if client else "")

    def token(self) -> bytes:
        """Return the bearer token, or nothing."""
        kind, _, token = self.headers.get(b"authorization", b"").partition(b" ")
        return token if kind.lower() == b"bearer" else b""

    def bearer(self) -> bytes:
        """Return the bearer token, or refuse."""
        token = self.token()
        if not token:
            raise Refusal(401, "not-authorised", "a token is needed", hint="Authorization: Bearer TOKEN")
        return token


def length_of(value: bytes) -> int:
    """Read a Content-Length; one that is no number counts as larger than anything."""
    return int(value) if value.isdigit() and len(value) < 16 else 1 << 62


async def send_answer(send: Send, answer: Answer) -> None:
    """Send an answer."""
    headers = [*answer.headers, *ALWAYS]
    if answer.status not in (204, 304):
        headers.append((b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def read_body(receive: Receive, size: int) -> bytes:
    """Read a body of exactly that size; the connection's own deadline ends a body that never comes."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) == size:
            return body
    parts, got = [message.get("body", b"")], len(message.get("body", b""))
    while message.get("more_body") and got <= size:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        parts.append(message.get("body", b""))
        got += len(parts[-1])
    if got != size:
        raise Refusal(422, "malformed", f"the body has {got} bytes, {size} were expected")
    return b"".join(parts)
