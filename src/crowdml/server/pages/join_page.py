"""The page behind an invite: what is promised, what will happen, how to join."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Response

from crowdml.server.http.control import described, running_of
from crowdml.server.pages.rendering import respond
from crowdml.server.pages.task_page import TaskPage
from crowdml.server.tasks.running_task import RunningTask


@described("What to do with an invite")
async def join_page(running: Annotated[RunningTask, Depends(running_of)]) -> Response:
    """Tell what to do with an invite; its secret stays in the part of the address that no server sees."""
    return respond("join.html", TaskPage.of(running))
