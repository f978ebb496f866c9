"""Pages: plain status of tasks for people, without anything that is not public."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from crowdml.algorithms.promise_words import PromiseWords
from crowdml.core import record
from crowdml.server.answers import PROTOCOL, Refusal
from crowdml.server.control import coordinator_of, running_of
from crowdml.server.coordinator import Coordinator
from crowdml.server.running import RunningTask
from crowdml.server.static_files import StaticFiles

HERE = Path(__file__).parent
SECURITY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
router = APIRouter(include_in_schema=False)
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
        sheet: Hash of the sheet.
        row: What an owner's row must have.
    """

    summary: dict[str, Any]
    promise: PromiseWords
    error: str
    algorithm: str
    model: str
    sheet: str
    row: str

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
            sheet=running.sheet_hash,
            row=running.live.task.data.row_in_words,
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


@router.api_route("/", methods=["GET", "HEAD"])
async def tasks_page(coordinator: Annotated[Coordinator, Depends(coordinator_of)]) -> Response:
    """List the tasks."""
    return _page("tasks.html", TasksPage(tasks=[own.summary() for own in coordinator.tasks.values()]))


@router.api_route("/tasks/{task}", methods=["GET", "HEAD"])
async def task_page(running: Annotated[RunningTask, Depends(running_of)]) -> Response:
    """Show one task, live."""
    return _page("task.html", TaskPage.of(running))


@router.api_route("/join/{task}", methods=["GET", "HEAD"])
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


def mount_static(fast: FastAPI) -> None:
    """Serve style and script of the pages."""
    fast.mount("/static", StaticFiles(HERE / "static"), name="static")


def _page(name: str, context: TaskPage | TasksPage | RefusalPage) -> Response:
    return HTMLResponse(_templates.get_template(name).render(page=context), headers=SECURITY)
