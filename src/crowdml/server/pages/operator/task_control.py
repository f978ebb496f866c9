"""The operator's page of one task: how it stands, its state changed after a look at what that means, its model."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import Depends, Response

from crowdml.core import record
from crowdml.server.http.control import described, running_of
from crowdml.server.http.documents import export_model
from crowdml.server.http.operator_routes import LARGEST_NUMBER, read_log
from crowdml.server.pages.operator.log_pages import Line
from crowdml.server.pages.operator.session_gate import In, Signed, go_to, show
from crowdml.server.pages.task_charts import clamp
from crowdml.server.refusals import Refusal
from crowdml.server.tasks.coordinator import TRANSITIONS
from crowdml.server.tasks.running_task import RunningTask
from crowdml.task.explanation import Explanation, explain

Of = Annotated[RunningTask, Depends(running_of)]
Wanted = Literal["open", "paused", "stopped"]
LATEST = 8
"""Entries of the event log on the page of a task."""

VERBS = {
    ("draft", "open"): "Open",
    ("paused", "open"): "Resume",
    ("open", "paused"): "Pause",
    ("draft", "stopped"): "Stop for good",
    ("open", "stopped"): "Stop for good",
    ("paused", "stopped"): "Stop for good",
}
_ENDS = "Devices send nothing more and nobody can join. A stopped task stays stopped; its model can still be exported."
CONSEQUENCES = {
    ("draft", "open"): "Devices that have joined begin to learn at once. The terms were signed when the task was made, "
    "and cannot change.",
    ("paused", "open"): "Devices go on where they were.",
    ("open", "paused"): "Devices keep what they have and wait. Nothing is taken until you resume.",
    ("draft", "stopped"): "Nobody can join any more. A stopped task stays stopped.",
    ("open", "stopped"): _ENDS,
    ("paused", "stopped"): _ENDS,
}


@record
class ControlPage:
    """What the operator sees of a task.

    Attributes:
        summary: How it stands.
        shown_error: The recent error as a number; empty where none is known, or noise hides it.
        error: The same in words, with its band.
        promise: What owners are promised.
        moves: States it can go to, with what the button says.
        latest: The latest entries of its log.
        task_hash: Hash of the signed task.
        file: The task file as it was given.
    """

    summary: dict[str, Any]
    shown_error: str
    error: str
    promise: str
    moves: tuple[tuple[str, str], ...]
    latest: tuple[Line, ...]
    task_hash: str
    file: str


@record
class ConfirmPage:
    """What somebody sees before the state of a task changes.

    Attributes:
        task: Its name.
        verb: What is about to be done.
        wanted: The state that it comes to.
        consequence: What that means.
        explanation: What owners are told; where a task is about to be opened.
    """

    task: str
    verb: str
    wanted: str
    consequence: str
    explanation: Explanation | None


@described("A task, for its operator")
async def control_page(session: Signed, coordinator: In, running: Of) -> Response:
    """Show how a task stands, and everything that can be done to it."""
    now = running.snapshot
    latest = await read_log(coordinator, LARGEST_NUMBER, running.name, LATEST)
    recent = now.recent_error
    page = ControlPage(
        summary=running.summary(now),
        shown_error=f"{clamp(recent.estimate):.2f}" if recent and recent.says_something else "",
        error=recent.words() if recent else "",
        promise=running.promise.in_epsilon,
        moves=tuple((wanted, VERBS[now.state, wanted]) for wanted in TRANSITIONS.get(now.state, ())),
        latest=tuple(map(Line.of, latest)),
        task_hash=running.task_hash,
        file=running.file,
    )
    return show(session, "task.html", page, section="tasks")


@described("What a change of state would mean")
async def confirm_page(session: Signed, running: Of, wanted: Wanted) -> Response:
    """Say what opening, pausing or stopping means, before it is done."""
    state = running.snapshot.state
    if (state, wanted) not in VERBS:
        return go_to(f"/operator/tasks/{running.name}")
    explanation = await asyncio.to_thread(explain, running.live.task) if state == "draft" and wanted == "open" else None
    page = ConfirmPage(
        task=running.name,
        verb=VERBS[state, wanted],
        wanted=wanted,
        consequence=CONSEQUENCES[state, wanted],
        explanation=explanation,
    )
    return show(session, "confirm-state.html", page, section="tasks")


@described("Open, pause or stop a task")
async def move(session: Signed, coordinator: In, running: Of, wanted: Wanted) -> Response:
    """Move a task to another state; one that is there already stays."""
    answer = await coordinator.writers[running.name].submit(
        lambda task: coordinator.set_state(task, wanted, by="portal")
    )
    if answer.status != 200:
        raise Refusal(answer.status, "state", f"a task that is {running.snapshot.state} cannot become {wanted}")
    return go_to(f"/operator/tasks/{running.name}")


@described("The model, for its operator")
async def export(session: Signed, coordinator: In, running: Of, kind: Literal["safetensors", "onnx"]) -> Response:
    """Send the model as a file, with terms and ε in its metadata."""
    raw = await asyncio.to_thread(export_model, running, kind)
    await asyncio.to_thread(coordinator.store.note, "portal", "exported", task=running.id, detail=kind)
    return download(raw, f"{running.name}.{kind}")


def download(content: bytes, name: str, kind: str = "application/octet-stream") -> Response:
    """Answer with a file to be saved; its name is one of ours."""
    return Response(content, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})
