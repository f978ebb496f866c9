"""Static files of the pages: style, scripts and pictures, few and small, read once and answered from memory.

A part of a file is never sent: whoever asks for a range is given the whole, as HTTP allows. Pages name with each file
the hash that it must have, so that a browser runs no script but the one that belongs to the page.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import mimetypes
from pathlib import Path

from fastapi import Request, Response

from crowdml.server.http.control import described, to_response
from crowdml.server.refusals import Answer, Refusal

FOLDER = Path(__file__).parent / "static"
FRESH = b"public, max-age=300"


@described("Style and script of the pages")
async def static_file(name: str, request: Request) -> Response:
    """Answer with a file, or say that it is still the same."""
    found = _FILES.get(name)
    if found is None:
        raise Refusal(404, "not-found", "there is nothing here")
    plain, compressed = found
    if plain.headers[0] == (b"etag", request.headers.get("if-none-match", "").encode("latin-1")):
        return to_response(Answer(status=304, headers=plain.headers))
    return to_response(compressed if takes_gzip(request) else plain)


def takes_gzip(request: Request) -> bool:
    """Tell whether a browser can read what is compressed."""
    return "gzip" in request.headers.get("accept-encoding", "")


def integrity(name: str) -> str:
    """Return the hash of a file as pages name it (subresource integrity)."""
    return "sha384-" + base64.b64encode(hashlib.sha384(_FILES[name][0].body).digest()).decode()


def _read(path: Path) -> tuple[Answer, Answer]:
    """Read a file, as it is and compressed."""
    content = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    text = "; charset=utf-8" if kind.startswith("text/") else ""
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'.encode()
    headers = (
        (b"etag", etag),
        (b"cache-control", FRESH),
        (b"content-type", f"{kind}{text}".encode()),
        (b"vary", b"accept-encoding"),
    )
    packed = gzip.compress(content, 9, mtime=0)
    return (
        Answer(status=200, body=content, headers=headers),
        Answer(status=200, body=packed, headers=(*headers, (b"content-encoding", b"gzip"))),
    )


_FILES = {path.name: _read(path) for path in sorted(FOLDER.iterdir()) if path.is_file()}
"""They do not change while a server runs."""
