"""The page of a task: what is learnt, from what, what leaves a device, what is promised, who takes part, how well."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Response

from crowdml.core import record
from crowdml.server.http.control import described, running_of
from crowdml.server.pages.rendering import respond
from crowdml.server.tasks.running_task import RunningTask
from crowdml.task.promise_words import PromiseWords


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
    promise: PromiseWords
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


@described("One task, live")
async def task_page(running: Annotated[RunningTask, Depends(running_of)]) -> Response:
    """Show one task, live."""
    return respond("task.html", TaskPage.of(running))
