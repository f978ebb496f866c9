"""The page behind an invite: what is promised, what will happen, how to join."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Response

from crowdml.core import record
from crowdml.server.http.control import described, running_of
from crowdml.server.pages.rendering import respond
from crowdml.server.pages.task_page import TaskPages, pages_of
from crowdml.server.pages.task_words import TaskWords
from crowdml.server.tasks.running_task import RunningTask
from crowdml.task.owners import OwnerPromise


@record
class JoinPage:
    """What somebody sees who was invited.

    Attributes:
        summary: How the task stands.
        words: What never changes of it, in words.
        promise: What owners are told.
        task_hash: Hash of the signed task.
    """

    summary: dict[str, Any]
    words: TaskWords
    promise: OwnerPromise
    task_hash: str


@described("What to do with an invite")
async def join_page(
    running: Annotated[RunningTask, Depends(running_of)], pages: Annotated[TaskPages, Depends(pages_of)]
) -> Response:
    """Tell what to do with an invite; its secret stays in the part of the address that no server sees."""
    shown = JoinPage(
        summary=running.summary(),
        words=pages.words(running),
        promise=running.promise,
        task_hash=running.task_hash,
    )
    return respond("join.html", shown)
