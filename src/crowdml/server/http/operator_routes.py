"""What an operator may ask of the server itself: another token, and the event log."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Depends
from pydantic import Field

from crowdml.server.http import json_bodies
from crowdml.server.http.control import bearer_of, coordinator_of, described
from crowdml.server.store import Event
from crowdml.server.tasks.coordinator import Coordinator

In = Annotated[Coordinator, Depends(coordinator_of)]
LARGEST_NUMBER = 1 << 53


@described("Change the operator's token for a new one", status_code=201, response_model=json_bodies.NewToken)
async def rotate_token(coordinator: In, token: Annotated[bytes, Depends(bearer_of)]) -> dict[str, Any]:
    """Make a new token, which is shown this once; the old one and all sessions of browsers end."""
    return {"token": await asyncio.to_thread(coordinator.rotate, lambda: coordinator.is_operator(token))}


@described("Who did what, and when", response_model=json_bodies.EventLog)
async def show_log(
    coordinator: In,
    before: Annotated[int, Field(ge=1, le=LARGEST_NUMBER)] = LARGEST_NUMBER,
    task: json_bodies.Name | None = None,
) -> dict[str, Any]:
    """Return up to 100 entries with numbers below `before`, latest first; those of a task, or all."""
    found = await read_log(coordinator, before, task)
    return {"events": [vars(event) for event in found], "next": found[-1].id if len(found) == 100 else None}


async def read_log(coordinator: Coordinator, before: int, task: str | None, most: int = 100) -> list[Event]:
    """Read the event log, with what was counted up to now; a task that is none has no entries."""
    number = None if task is None else coordinator.running(task).id

    def read() -> list[Event]:
        coordinator.refusals.write()
        return coordinator.store.events(before, number, most)

    return await asyncio.to_thread(read)
