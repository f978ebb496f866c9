"""Pages: plain status of tasks for people, without anything that is not public, with their style and script.

Static files are few and small: read once and answered from memory. A part of a file is never sent: whoever asks for a
range is given the whole, as HTTP allows.
"""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from crowdml.core import record
from crowdml.server.http.control import coordinator_of, described, running_of, to_response
from crowdml.server.refusals import PROTOCOL, Answer, Refusal
from crowdml.server.tasks.coordinator import Coordinator
from crowdml.server.tasks.running_task import RunningTask
from crowdml.task.owners import OwnerPromise

HERE = Path(__file__).parent
SECURITY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
FRESH = b"public, max-age=300"
_templates = Environment(
    loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)


@record
class TaskPage:
    """What the page of a task shows.

    Attributes:
        summary: How the task stands.
        promise: What owners are promised, and what that rests on.
        error: The recent error in words; empty where none is known.
        algorithm: Name of the algorithm.
        model: Kind of model.
        task_hash: Hash of the signed task.
        row: What an owner's row must have.
        predicted: What the model predicts from it.
        column: The column of a file that holds what is predicted.
        error_means: What an error is a share of; empty where that is clear.
    """

    summary: dict[str, Any]
    promise: OwnerPromise
    error: str
    algorithm: str
    model: str
    task_hash: str
    row: str
    predicted: str
    column: str
    error_means: str

    @staticmethod
    def of(running: RunningTask) -> TaskPage:
        """Take what is public of a task."""
        recent = running.snapshot.recent_error
        return TaskPage(
            summary=running.summary(),
            promise=running.promise,
            error=recent.words() if recent else "",
            algorithm=running.live.task.algorithm.kind,
            model=running.live.task.model.kind,
            task_hash=running.task_hash,
            row=running.live.task.data.row_in_words,
            predicted=running.live.task.target.described,
            column=running.live.task.target.column,
            error_means=running.live.task.target.error_in_words,
        )


@record
class TasksPage:
    """What the first page shows: every task in short."""

    tasks: list[dict[str, Any]]


@record
class RefusalPage:
    """What somebody sees who asked for what is not there, or may not have it."""

    status: int
    message: str
    hint: str


@described("All tasks")
async def tasks_page(coordinator: Annotated[Coordinator, Depends(coordinator_of)]) -> Response:
    """List the tasks."""
    return _page("tasks.html", TasksPage(tasks=[running.summary() for running in coordinator.tasks.values()]))


@described("One task, live")
async def task_page(running: Annotated[RunningTask, Depends(running_of)]) -> Response:
    """Show one task, live."""
    return _page("task.html", TaskPage.of(running))


@described("What to do with an invite")
async def join_page(running: Annotated[RunningTask, Depends(running_of)]) -> Response:
    """Tell what to do with an invite; its secret stays in the part of the address that no server sees."""
    return _page("join.html", TaskPage.of(running))


def wants_page(request: Request) -> bool:
    """Tell whether a person asks: a browser that looks for a page, not a program that calls the API."""
    return request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")


def refusal_page(refusal: Refusal) -> Response:
    """Say in HTML what the one shape of errors says to programs, with a way back."""
    answer = _page("refusal.html", RefusalPage(status=refusal.status, message=str(refusal), hint=refusal.hint))
    answer.status_code = refusal.status
    for name, value in (*refusal.answer().headers[1:], PROTOCOL):
        answer.headers[name.decode()] = value.decode()
    return answer


@described("Style and script of the pages")
async def static_file(name: str, request: Request) -> Response:
    """Answer with a file, or say that it is still the same."""
    found = _FILES.get(name)
    if found is None:
        raise Refusal(404, "not-found", "there is nothing here")
    if found.headers[0] == (b"etag", request.headers.get("if-none-match", "").encode("latin-1")):
        return to_response(Answer(status=304, headers=found.headers))
    return to_response(found)


def _page(name: str, context: TaskPage | TasksPage | RefusalPage) -> Response:
    return HTMLResponse(_templates.get_template(name).render(page=context), headers=SECURITY)


def _read(path: Path) -> Answer:
    content = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    text = "; charset=utf-8" if kind.startswith("text/") else ""
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'.encode()
    headers = ((b"etag", etag), (b"cache-control", FRESH), (b"content-type", f"{kind}{text}".encode()))
    return Answer(status=200, body=content, headers=headers)


_FILES = {path.name: _read(path) for path in sorted((HERE / "static").iterdir()) if path.is_file()}
"""They do not change while a server runs."""
