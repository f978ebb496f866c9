"""Status: what the server has done, how a task goes on (server-sent events), what the server answers.

Metrics are a handful of public numbers in the text format that Prometheus reads. None is derived from private data.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from crowdml.server.http import json_bodies
from crowdml.server.http.control import coordinator_of, described, documents_of, running_of, written
from crowdml.server.http.documents import Documents
from crowdml.server.http.requests import caller_of
from crowdml.server.refusals import Refusal
from crowdml.server.tasks.coordinator import Coordinator
from crowdml.server.tasks.running_task import RunningTask

INTERVAL_S = 0.5
HEARTBEAT_S = 15.0
PER_ADDRESS = 20
IN_ALL = 2000
_HELP = {
    "crowdml_check_outs_total": "Check-outs answered, by status",
    "crowdml_check_ins_total": "Check-ins answered, by status",
    "crowdml_stored_total": "Check-ins stored",
    "crowdml_transactions_total": "Transactions of the writers",
    "crowdml_transaction_seconds_total": "Time spent in those",
    "crowdml_version": "Present version of a task",
    "crowdml_devices": "Devices that may speak",
    "crowdml_waiting": "Check-ins and other work that wait for the writer",
}
"""What each metric means; one that is not here cannot be shown."""
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


@described(
    "Counters for Prometheus",
    tags=["status"],
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(coordinator: Annotated[Coordinator, Depends(coordinator_of)]) -> Response:
    """Return public counters."""
    return PlainTextResponse(metrics_text(_numbers(coordinator)), media_type="text/plain; version=0.0.4")


def _numbers(coordinator: Coordinator) -> dict[tuple[str, str], float]:
    """Gather counters and present values, by name and label."""
    found: dict[tuple[str, str], float] = {}
    for name, answered in (("check_outs", coordinator.check_outs), ("check_ins", coordinator.check_ins)):
        found |= {(f"crowdml_{name}_total", f'status="{status}"'): count for status, count in answered.items()}
    for name, running in coordinator.tasks.items():
        label, writer = f'task="{name}"', coordinator.writers[name]
        found["crowdml_version", label] = running.snapshot.version
        found["crowdml_devices", label] = len(running.snapshot.devices)
        found["crowdml_waiting", label] = writer.waiting
        if writer.transactions:
            found["crowdml_stored_total", label] = writer.stored
            found["crowdml_transactions_total", label] = writer.transactions
            found["crowdml_transaction_seconds_total", label] = writer.seconds
    return found


def metrics_text(numbers: Mapping[tuple[str, str], float]) -> str:
    """Write numbers, given by name and label: counters, then gauges."""
    lines, last = [], ""
    for is_gauge, name, label in sorted((not name.endswith("_total"), name, label) for name, label in numbers):
        if name != last:
            lines += [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} {'gauge' if is_gauge else 'counter'}"]
            last = name
        lines.append(f"{name}{{{label}}} {numbers[name, label]:.10g}")
    return "".join(f"{line}\n" for line in lines)


@described(
    "How a task goes on, as server-sent events",
    tags=["status"],
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def events(
    request: Request,
    documents: Annotated[Documents, Depends(documents_of)],
    running: Annotated[RunningTask, Depends(running_of)],
) -> Response:
    """Send the task's state whenever it changes."""
    address = caller_of(request.client.host) if request.client else ""
    watchers = request.app.state.watchers
    watchers.admit(address)
    return EventStream(watchers, address, lambda: (documents.summary(running), running.snapshot.state, running.shown))


@described("The learning curve so far", tags=["status"], response_model=json_bodies.Curve)
async def curve(
    documents: Annotated[Documents, Depends(documents_of)],
    running: Annotated[RunningTask, Depends(running_of)],
) -> Response:
    """Return points of the curve."""
    return written(await documents.curve(running))


@described("Private statistics of a task", tags=["status"], response_model=json_bodies.Statistics)
async def statistics(
    documents: Annotated[Documents, Depends(documents_of)],
    running: Annotated[RunningTask, Depends(running_of)],
) -> Response:
    """Return statistics that follow from what was released already."""
    return written(documents.statistics(running))


@described("Groups of devices that hold pieces of one net", tags=["status"], response_model=json_bodies.Groups)
async def groups(
    coordinator: Annotated[Coordinator, Depends(coordinator_of)],
    running: Annotated[RunningTask, Depends(running_of)],
) -> Response:
    """Say how every group of a task stands; nothing in it is private."""
    found = coordinator.groups_of(running)
    leak = await asyncio.to_thread(coordinator.leak_of, running)
    told = {
        "waiting": found.waiting_room,
        "size": found.terms.size,
        "groups": found.figures(),
        "leak": None if leak is None else vars(leak),
    }
    return written(json.dumps(told).encode())


@described("What a server answers, for programs")
async def description(request: Request) -> Response:
    """Return the OpenAPI description, in bytes made once: to write it takes longer than a hundred check-outs."""
    document: bytes = request.app.state.description
    return written(document)


Stands = Callable[[], tuple[bytes, str, int]]
"""Says how a task stands: as JSON, in a word, and a number that changes whenever there is something new to see."""


class Watchers:
    """Counts open streams, so that nobody can hold thousands."""

    def __init__(self, per_address: int = PER_ADDRESS, in_all: int = IN_ALL) -> None:
        self._per_address, self._in_all = per_address, in_all
        self._open: Counter[str] = Counter()

    def admit(self, address: str) -> None:
        """Count a stream in, or refuse it."""
        if self._open[address] >= self._per_address or self._open.total() >= self._in_all:
            raise Refusal(429, "too-many-streams", "too many open streams", retry_after_s=10)
        self._open[address] += 1

    def leave(self, address: str) -> None:
        """Count a stream out."""
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


class EventStream(StreamingResponse):
    """An open stream. It is counted out when its connection ends, even if it never began."""

    def __init__(self, watchers: Watchers, address: str, stands: Stands) -> None:
        """Take a stream that was admitted."""
        super().__init__(_events(stands), media_type="text/event-stream", headers=HEADERS)
        self._watchers, self._address = watchers, address

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send events until the task has stopped or the watcher leaves."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._watchers.leave(self._address)


async def _events(stands: Stands) -> AsyncIterator[bytes]:
    """Tell the state whenever there is something new to see; it is written once for all who watch."""
    last, silent_s = (b"", -1), 0.0
    while True:
        now, state, shown = stands()
        if (now, shown) != last:
            # Also where the same words stand for something new, as an error that was measured again and is the same.
            yield b"event: state\ndata: " + now + b"\n\n"
            last, silent_s = (now, shown), 0.0
        elif silent_s >= HEARTBEAT_S:
            yield b": still here\n\n"
            silent_s = 0.0
        if state == "stopped":
            return
        await asyncio.sleep(INTERVAL_S)
        silent_s += INTERVAL_S
