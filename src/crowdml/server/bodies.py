"""Bodies of the control plane: limited by their headers, before anything is read into memory."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from crowdml.core import CrowdError
from crowdml.server.answers import Refusal, refusal_of
from crowdml.server.asgi import Asgi, Receive, Request, Scope, Send, length_of, send_answer

LARGEST_BODY = 64 << 10
LARGEST_TASK = 96 << 20
"""A new task carries the arrays of its transforms. Only the operator may send so much."""


class BodyLimit:
    """Refuses bodies that are too long.

    Args:
        inner: The application.
        is_operator: Tells the operator's token.
    """

    def __init__(self, inner: Asgi, is_operator: Callable[[bytes], bool]) -> None:
        """Wrap an application."""
        self._inner, self._is_operator = inner, is_operator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._inner(scope, receive, send)
            return
        try:
            request = Request.of(scope)
            makes_task = scope["path"] == "/v1/tasks"
            if makes_task and not self._is_operator(request.token()):
                # Refused by its token; not a byte of it is kept in memory.
                receive = _nothing
            else:
                _require_short(request, LARGEST_TASK if makes_task else LARGEST_BODY)
        except CrowdError as error:
            await send_answer(send, refusal_of(error).answer())
            return
        await self._inner(scope, receive, send)


def _require_short(request: Request, largest: int) -> None:
    headers = request.headers
    if b"transfer-encoding" in headers:
        raise Refusal(411, "length", "a request says how long it is", hint="Content-Length: BYTES")
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise Refusal(415, "encoding", "bodies are not compressed")
    if length_of(headers.get(b"content-length", b"0")) > largest:
        raise Refusal(413, "too-large", f"a body may have {largest} bytes")


async def _nothing() -> MutableMapping[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}
