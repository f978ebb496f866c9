"""Pages: plain status of tasks for people, without anything that is not public."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from crowdml.core import record
from crowdml.server.control import coordinator_of, running_of
from crowdml.server.coordinator import Coordinator
from crowdml.server.running import RunningTask

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
        promise: What is promised to owners, in one sentence.
        algorithm: Name of the algorithm.
        model: Kind of model.
        sheet: Hash of the sheet.
        row: What an owner's row must have.
    """

    summary: dict[str, Any]
    promise: str
    algorithm: str
    model: str
    sheet: str
    row: str


@record
class TasksPage:
    """What the first page shows: every task in short."""

    tasks: list[dict[str, Any]]


@router.get("/")
async def tasks_page(coordinator: Annotated[Coordinator, Depends(coordinator_of)]) -> Response:
    """List the tasks."""
    return _page("tasks.html", TasksPage(tasks=[own.summary() for own in coordinator.tasks.values()]))


@router.get("/tasks/{task}")
async def task_page(running: Annotated[RunningTask, Depends(running_of)]) -> Response:
    """Show one task, live."""
    task = running.live.task
    return _page(
        "task.html",
        TaskPage(
            summary=running.summary(),
            promise=promise_of(running),
            algorithm=task.algorithm.kind,
            model=task.model.kind,
            sheet=running.sheet_hash,
            row=task.data.row_in_words,
        ),
    )


@router.get("/join/{task}")
async def join_page(request: Request, running: Annotated[RunningTask, Depends(running_of)]) -> Response:
    """Tell what to do with an invite; its secret stays in the part of the address that no server sees."""
    return _page(
        "join.html",
        TaskPage(
            summary=running.summary(),
            promise=promise_of(running),
            algorithm=running.live.task.algorithm.kind,
            model=running.live.task.model.kind,
            sheet=running.sheet_hash,
            row=running.live.task.data.row_in_words,
        ),
    )


def promise_of(running: RunningTask) -> str:
    """Say in one sentence what owners are promised."""
    terms = running.live.task.privacy
    if terms.mode != "sound":
        return "No formal guarantee: whatever devices send is seen by the server as it is."
    delta = f", δ = {terms.delta:g}" if terms.delta else ""
    return f"ε = {terms.epsilon:g}{delta} for every {terms.unit} over the whole task, enforced by each device's ledger."


def mount_static(fast: FastAPI) -> None:
    """Serve style and script of the pages."""
    fast.mount("/static", StaticFiles(directory=HERE / "static"), name="static")


def _page(name: str, context: TaskPage | TasksPage) -> Response:
    return HTMLResponse(_templates.get_template(name).render(page=context), headers=SECURITY)
