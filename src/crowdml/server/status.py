"""Status: is the server well, what has it done, how does a task go on."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import PlainTextResponse

from crowdml.server import models
from crowdml.server.control import coordinator_of, running_of, to_response, written
from crowdml.server.coordinator import Coordinator
from crowdml.server.events import EventStream
from crowdml.server.front import HEALTH, health_of
from crowdml.server.limits import caller_of
from crowdml.server.running import RunningTask

router = APIRouter()


@router.get(
    HEALTH,
    response_model=models.Health,
    responses={503: {"model": models.Health, "description": "A writer has ended"}},
    summary="Whether the server works",
    tags=["status"],
)
async def health(coordinator: Annotated[Coordinator, Depends(coordinator_of)]) -> Response:
    """Answer 200 while every writer works. The front door answers by itself; this describes it."""
    return to_response(health_of(coordinator))


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    summary="Counters for Prometheus",
    tags=["status"],
)
async def metrics(coordinator: Annotated[Coordinator, Depends(coordinator_of)]) -> Response:
    """Return public counters."""
    text = coordinator.metrics.text(coordinator.gauges())
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


@router.get(
    "/v1/tasks/{task}/events",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    summary="How a task goes on, as server-sent events",
    tags=["status"],
)
async def events(request: Request, running: Annotated[RunningTask, Depends(running_of)]) -> Response:
    """Send the task's state whenever it changes."""
    address = caller_of(request.client.host) if request.client else ""
    watchers = request.app.state.watchers
    watchers.admit(address)
    return EventStream(watchers, address, running.summary)


@router.get("/v1/tasks/{task}/curve", response_model=models.Curve, summary="The learning curve so far", tags=["status"])
async def curve(
    coordinator: Annotated[Coordinator, Depends(coordinator_of)],
    running: Annotated[RunningTask, Depends(running_of)],
) -> Response:
    """Return points of the curve."""
    return written(await coordinator.documents.curve(running))
