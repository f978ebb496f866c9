"""The server itself, for its operator: another token, and a copy of everything it keeps.

Both ask for the token once more: whoever finds a browser signed in shall not lock the operator out, nor carry away the
key that signs tasks.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from fastapi import Request, Response
from fastapi.responses import StreamingResponse

import crowdml
from crowdml.core import BadInput, record
from crowdml.server.http.control import described
from crowdml.server.http.requests import caller_of
from crowdml.server.pages.operator.session_gate import In, Sent, Signed, cookies_of, show
from crowdml.server.pages.rendering import respond
from crowdml.server.refusals import Refusal
from crowdml.server.store import Store
from crowdml.server.tasks.coordinator import Coordinator
from crowdml.server.tasks.operator.operator_sessions import Session

PIECE = 1 << 18
NOT_IT = "This is not the operator's token."


@record
class ServerPage:
    """What the operator sees of the server.

    Attributes:
        release: Version of crowdml.
        sessions: Browsers that have signed in.
        tasks: How many tasks there are.
        errors: What is wrong with a form, by its name.
    """

    release: str
    sessions: int
    tasks: int
    errors: dict[str, str]


@record
class TokenPage:
    """The new token: shown this once."""

    token: str
    is_written: bool


@described("The server, for its operator")
async def server_page(session: Signed, coordinator: In) -> Response:
    """Show what can be done to the server."""
    return _page(session, coordinator)


@described("Change the operator's token")
async def rotate(request: Request, session: Signed, sent: Sent, coordinator: In) -> Response:
    """Make a new token and show it once; all sessions end, this one too."""
    if not _proven(request, coordinator, sent.text("token")):
        return _page(session, coordinator, {"rotate": NOT_IT}, 403)
    given = sent.text("token").strip().encode()

    def allowed() -> bool:
        return coordinator.is_operator(given) and coordinator.sessions.lasts(session)

    token = await asyncio.to_thread(coordinator.rotate, allowed, "portal")
    shown = TokenPage(token=token, is_written=coordinator.options.token_file is not None)
    answer = respond("operator/new-token.html", shown, forms=True)
    answer.headers["set-cookie"] = cookies_of(request).erase(request.headers["host"].encode("latin-1"))
    return answer


@described("A copy of everything the server keeps")
async def download_backup(request: Request, session: Signed, sent: Sent, coordinator: In) -> Response:
    """Send a backup: a consistent copy in one file, made while the server goes on."""
    if not _proven(request, coordinator, sent.text("token")):
        return _page(session, coordinator, {"backup": NOT_IT}, 403)
    making: asyncio.Lock = request.app.state.backing_up
    if making.locked():
        raise Refusal(429, "busy", "a backup is being made", retry_after_s=10)
    async with making:
        try:
            file = await asyncio.to_thread(_backup, coordinator.store)
        except BadInput as error:
            return _page(session, coordinator, {"backup": error.what}, 503)
        except OSError as error:
            return _page(session, coordinator, {"backup": f"No copy can be made here: {error.strerror}."}, 503)
    await asyncio.to_thread(coordinator.store.note, "portal", "made a backup")
    return BackupStream(file)


def _backup(store: Store) -> BinaryIO:
    """Make a backup, and open it without a name: however this process ends, no copy of the signing key stays behind."""
    with tempfile.TemporaryDirectory(prefix="crowdml-backup-") as folder:
        path = Path(folder) / "crowdml.backup"
        store.backup(path)
        return path.open("rb")


class BackupStream(StreamingResponse):
    """A file on its way to a browser. It is closed, and so gone, when the connection ends, even if it never began."""

    def __init__(self, file: BinaryIO) -> None:
        """Take an open file."""
        headers = {
            "content-disposition": 'attachment; filename="crowdml.backup"',
            "content-length": str(os.fstat(file.fileno()).st_size),
        }
        super().__init__(_pieces(file), media_type="application/octet-stream", headers=headers)
        self._file = file

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the file, then let go of it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece


def _proven(request: Request, coordinator: Coordinator, token: str) -> bool:
    """Ask for the token once more; tries are paced and counted as those to sign in are."""
    request.app.state.sign_ins.require(caller_of(request.client.host) if request.client else "")
    if coordinator.is_operator(token.strip().encode()):
        return True
    coordinator.count_refusal("stranger", "refused sign-in")
    return False


def _page(
    session: Session, coordinator: Coordinator, errors: dict[str, str] | None = None, status: int = 200
) -> Response:
    page = ServerPage(
        release=crowdml.__version__,
        sessions=len(coordinator.sessions),
        tasks=len(coordinator.tasks),
        errors=errors or {},
    )
    return show(session, "server.html", page, section="server", status=status)
