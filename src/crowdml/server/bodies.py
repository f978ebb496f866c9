"""Bodies of the control plane: limited in size before they are read into memory."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from crowdml.server.answers import Refusal
from crowdml.server.asgi import Asgi, Receive, Scope, Send, send_answer

LARGEST_BODY = 1 << 20
LARGEST_TASK = 96 << 20
"""A new task carries the arrays of its transforms."""


class BodyLimit:
    """Refuses bodies that are too long, whether they say so or not."""

    def __init__(self, inner: Asgi) -> None:
        """Wrap an application."""
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._inner(scope, receive, send)
            return
        largest = LARGEST_TASK if scope["path"] == "/v1/tasks" else LARGEST_BODY
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        refused = None
        if not length.isdigit() or int(length) > largest:
            refused = Refusal(413, "too-large", f"a body may have {largest} bytes")
        elif headers.get(b"content-encoding", b"identity") != b"identity":
            refused = Refusal(415, "encoding", "bodies are not compressed")
        if refused is not None:
            answer = refused.answer()
            await send_answer(send, answer)
            return
        got = 0

        async def limited() -> MutableMapping[str, Any]:
            nonlocal got
            message = await receive()
            got += len(message.get("body", b""))
            if got > largest:
                raise Refusal(413, "too-large", f"a body may have {largest} bytes")
            return message

        await self._inner(scope, limited, send)
