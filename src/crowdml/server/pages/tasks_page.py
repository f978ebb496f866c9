"""The first page: every task of the server as a card."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Response

from crowdml.core import record
from crowdml.server.http.control import coordinator_of, described
from crowdml.server.pages.rendering import respond
from crowdml.server.tasks.coordinator import Coordinator


@record
class TasksPage:
    """What the first page shows: every task in short."""

    tasks: list[dict[str, Any]]


@described("All tasks")
async def tasks_page(coordinator: Annotated[Coordinator, Depends(coordinator_of)]) -> Response:
    """List the tasks."""
    return respond("tasks.html", TasksPage(tasks=[running.summary() for running in coordinator.tasks.values()]))
