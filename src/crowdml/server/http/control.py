"""The control plane: tasks, invites, devices, for operators and for whoever looks on.

Method and path of each function, and who may call it, stand in the table of `routes`.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Depends, Request, Response
from pydantic import Field

from crowdml.server.http import json_bodies
from crowdml.server.http.documents import Documents, export_model
from crowdml.server.http.requests import Request as RawRequest
from crowdml.server.refusals import ALWAYS, Answer, Refusal
from crowdml.server.tasks.coordinator import Coordinator
from crowdml.server.tasks.device_tokens import DeviceState
from crowdml.server.tasks.new_task import TaskRequest
from crowdml.server.tasks.running_task import RunningTask
from crowdml.server.tasks.task_writer import Work
from crowdml.wire.signed_task import read_arrays

Handler = TypeVar("Handler", bound=Callable[..., Any])


def described(summary: str, **details: Any) -> Callable[[Handler], Handler]:
    """Keep with a function what the framework is told of it: summary, kinds of answers, status."""

    def mark(handler: Handler) -> Handler:
        handler.details = {"summary": summary, **details}  # type: ignore[attr-defined]
        return handler

    return mark


def coordinator_of(request: Request) -> Coordinator:
    """Return the coordinator of this server."""
    found: Coordinator = request.app.state.coordinator
    return found


def documents_of(request: Request) -> Documents:
    """Return what strangers read about tasks, serialised."""
    found: Documents = request.app.state.documents
    return found


def running_of(task: json_bodies.Name, coordinator: Annotated[Coordinator, Depends(coordinator_of)]) -> RunningTask:
    """Return the task of the path."""
    return coordinator.running(task)


def bearer_of(request: Request) -> bytes:
    """Return the token of a request."""
    return RawRequest.of(request.scope).bearer()


async def require_operator(
    request: Request,
    token: Annotated[bytes, Depends(bearer_of)],
    coordinator: Annotated[Coordinator, Depends(coordinator_of)],
) -> None:
    """Let only the operator pass; a device's token finds nothing here."""
    if coordinator.is_operator(token):
        return
    if coordinator.tokens.find(token) is not None:
        raise Refusal(404, "not-found", "there is nothing here")
    coordinator.count_refusal("stranger", "refused token")
    request.app.state.require_pace(request)
    raise Refusal(
        401,
        "not-authorised",
        "the operator's token is not valid: it is not the one of this server",
        hint="use the file operator.token in the folder of this server",
    )


def device_of(
    request: Request,
    token: Annotated[bytes, Depends(bearer_of)],
    coordinator: Annotated[Coordinator, Depends(coordinator_of)],
) -> DeviceState:
    """Return the device that asks; the operator is none."""
    found = coordinator.tokens.find(token)
    if found is not None:
        request.app.state.require_device_pace(found.id)
        return found
    if coordinator.is_operator(token):
        raise Refusal(404, "not-found", "there is nothing here")
    request.app.state.require_pace(request)
    raise coordinator.tokens.refusal(token)


In = Annotated[Coordinator, Depends(coordinator_of)]
Of = Annotated[RunningTask, Depends(running_of)]
Me = Annotated[DeviceState, Depends(device_of)]
Docs = Annotated[Documents, Depends(documents_of)]


@described("List tasks", response_model=json_bodies.Tasks)
async def list_tasks(coordinator: In, documents: Docs) -> Response:
    """Return every task in short."""
    return written(documents.tasks(coordinator.tasks.values()))


@described("Show a task, with what the operator signed", response_model=json_bodies.Described)
async def show_task(documents: Docs, running: Of) -> Response:
    """Return everything public about a task."""
    return written(documents.task(running))


@described("Make a task", status_code=201, response_model=json_bodies.Described)
async def create_task(coordinator: In, body: json_bodies.NewTaskBody, request: Request) -> dict[str, Any]:
    """Make a task from its file."""
    arrays = None if body.arrays is None else read_arrays(body.arrays)
    public = None if body.public is None else read_arrays([body.public])[0]
    wanted = TaskRequest(file=body.file, changes=body.changes, arrays=arrays, draft=body.draft, public=public)
    async with request.app.state.creating:
        stored = await asyncio.to_thread(coordinator.create, wanted)
        running = coordinator.start(stored)
    return running.describe()


@described("Open, pause or stop", response_model=json_bodies.Described)
async def change_task(coordinator: In, running: Of, body: json_bodies.StateBody) -> Response:
    """Move a task to another state."""
    return await _work(coordinator, running, lambda task: coordinator.set_state(task, body.state))


@described("Say what a leak meter has read", status_code=201, response_model=json_bodies.Leak)
async def note_leak(coordinator: In, running: Of, body: json_bodies.LeakBody) -> dict[str, Any]:
    """Keep what the operator's leak meter has read of sums, and show it with the date."""
    found = await asyncio.to_thread(coordinator.note_leak, running, body.right, body.chance, body.own_rows)
    return vars(found)


@described("Invite devices", status_code=201, response_model=json_bodies.Invites)
async def make_invites(coordinator: In, running: Of, body: json_bodies.InvitesBody, request: Request) -> dict[str, Any]:
    """Make links, each good for one device."""
    address = str(request.app.state.public_address or str(request.base_url).rstrip("/"))
    return {"invites": await asyncio.to_thread(coordinator.enrolment.invite, running, body.count, address)}


@described("Whether an invite is used", response_model=json_bodies.Invite)
async def show_invite(coordinator: In, running: Of, code_hash: json_bodies.Hash) -> dict[str, Any]:
    """Say whether a device has joined by an invite. Only its hash is asked for: the code itself lets one in."""
    return {"used": await asyncio.to_thread(coordinator.enrolment.is_used, running, bytes.fromhex(code_hash))}


@described("List devices", response_model=json_bodies.Devices)
async def list_devices(running: Of) -> dict[str, Any]:
    """Return the enrolled devices: names given by the server, nothing about owners."""

    def refused(slot: int) -> int:
        device = running.devices.get(slot)
        return device.refused if device else 0

    return {
        "devices": [
            {"device": totals.device, "slot": slot, "check_ins": totals.check_ins, "refused": refused(slot)}
            for slot, totals in running.snapshot.devices.items()
        ]
    }


@described("Revoke a device", status_code=204)
async def revoke_device(coordinator: In, running: Of, device: str) -> Response:
    """Take a device's token away."""
    found = coordinator.enrolment.shut_out(running, device)
    return await _work(coordinator, running, lambda task: coordinator.enrolment.revoke(task, found))


@described(
    "Join a task by an invite",
    status_code=201,
    response_model=json_bodies.Enrolled,
    responses={200: {"model": json_bodies.Enrolled, "description": "It had joined before; the earlier token is dead"}},
)
async def enrol(coordinator: In, running: Of, body: json_bodies.EnrolBody, request: Request) -> Response:
    """Enrol a device; the answer holds its token, which is shown once."""
    request.app.state.require_pace(request)
    content = body.model_dump() | {"key": _raw(body.key), "signature": _raw(body.signature)}
    return await _work(coordinator, running, lambda task: coordinator.enrolment.enrol(task, content))


@described("What the server keeps of this device", response_model=json_bodies.Me)
async def show_me(coordinator: In, me: Me) -> dict[str, Any]:
    """Return the entry of the device that asks: a ledger of fewer charges than `check_ins` + `refused` was set back."""
    running = coordinator.running(me.task)
    return {
        "device": me.id,
        "task": me.task,
        "slot": me.slot,
        "check_ins": running.totals(me).check_ins,
        "refused": await asyncio.to_thread(coordinator.store.refused, running.id, me.slot),
        "task_hash": running.task_hash,
        "state": running.snapshot.state,
    }


@described("Withdraw", status_code=204)
async def withdraw(coordinator: In, me: Me) -> Response:
    """Erase the device's space and its token; receipts keep no identity."""
    running = coordinator.running(me.task)
    return await _work(coordinator, running, lambda task: coordinator.enrolment.withdraw(task, me))


@described("Receipts of this device", response_model=json_bodies.Receipts)
async def show_receipts(coordinator: In, me: Me, after: Annotated[int, Field(ge=0, le=1 << 53)] = 0) -> dict[str, Any]:
    """Return up to 1000 receipts with numbers above `after`."""
    settled = coordinator.running(me.task).totals(me).check_ins
    stored = await asyncio.to_thread(coordinator.store.receipts, me.id, after, 1000)
    # The store may have one that the snapshot does not show yet.
    found = [receipt for receipt in stored if receipt.number <= settled]
    return {
        "receipts": [
            {
                "key": receipt.key,
                "number": receipt.number,
                "status": receipt.status,
                "version": receipt.version,
                "body": receipt.body.hex(),
            }
            for receipt in found
        ],
        "next": found[-1].number if len(found) == 1000 else None,
    }


@described(
    "The model as it stands",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def get_model(
    request: Request,
    coordinator: In,
    running: Of,
    token: Annotated[bytes, Depends(bearer_of)],
    format: Literal["safetensors", "onnx"] = "safetensors",
) -> Response:
    """Return the model with terms, odds and ε in its metadata, to the operator or to a device of the task."""
    if not coordinator.is_operator(token):
        device = device_of(request, token, coordinator)
        if device.task != running.name:
            raise Refusal(404, "no-task", "there is no such task")
    raw = await asyncio.to_thread(export_model, running, format)
    name = f'attachment; filename="{running.name}.{format}"'
    return Response(raw, media_type="application/octet-stream", headers={"content-disposition": name})


async def _work(coordinator: Coordinator, running: RunningTask, work: Work) -> Response:
    """Let the task's writer do something between two batches."""
    return to_response(await coordinator.writers[running.name].submit(work))


def written(document: bytes) -> Response:
    """Answer with JSON that is serialised already."""
    return Response(document, media_type="application/json")


def to_response(answer: Answer) -> Response:
    """Make the framework's response of an answer."""
    response = Response(answer.body, status_code=answer.status)
    for name, value in (*answer.headers, *ALWAYS):
        response.headers[name.decode()] = value.decode()
    return response


def _raw(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise Refusal(422, "bad-input", "not base64url") from None
