"""Style and script of the pages: a few small files, read once and answered from memory.

A part of a file is never sent: whoever asks for a range is given the whole, as HTTP allows.
"""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path

from crowdml.server.answers import Answer, Refusal
from crowdml.server.asgi import Receive, Scope, Send, send_answer

FRESH = b"public, max-age=300"


class StaticFiles:
    """Serves the files of one folder, which does not change while the server runs.

    Args:
        folder: Where they are; folders below it are not served.
    """

    def __init__(self, folder: Path) -> None:
        """Read them all."""
        self._found = {path.name: _answer(path) for path in sorted(folder.iterdir()) if path.is_file()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        name = scope["path"].removeprefix(scope.get("root_path", "")).lstrip("/")
        found = self._found.get(name)
        if found is None:
            await send_answer(send, Refusal(404, "not-found", "there is nothing here").answer())
        elif scope["method"] not in ("GET", "HEAD"):
            await send_answer(send, Refusal(405, "method", "this is asked for by GET").answer())
        elif found.headers[0] in ((b"etag", value) for key, value in scope["headers"] if key == b"if-none-match"):
            await send_answer(send, Answer(status=304, headers=found.headers))
        else:
            await send_answer(send, found)


def _answer(path: Path) -> Answer:
    content = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    text = "; charset=utf-8" if kind.startswith("text/") else ""
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'.encode()
    headers = ((b"etag", etag), (b"cache-control", FRESH), (b"content-type", f"{kind}{text}".encode()))
    return Answer(status=200, body=content, headers=headers)
