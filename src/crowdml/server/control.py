"""The control plane: tasks, invites, devices, for operators and for whoever looks on."""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from crowdml.protocol.sheet import read_arrays
from crowdml.server import models
from crowdml.server.answers import ALWAYS, Answer, Refusal
from crowdml.server.coordinator import Coordinator
from crowdml.server.crowd import DeviceState
from crowdml.server.export import export
from crowdml.server.running import RunningTask
from crowdml.server.writer import Work

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", max_length=63)]
Base64 = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+={0,2}$", max_length=128)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NewTaskBody(_Body):
    """A task to be made."""

    file: str = Field(max_length=1 << 20, description="the task file, TOML")
    changes: list[str] = Field([], max_length=1000, description='changes to the file, such as "algorithm.batch=10"')
    arrays: list[dict[str, Any]] | None = Field(None, description="what transforms learnt from public rows")
    public: dict[str, Any] | None = Field(
        None, description="labelled public rows that the server keeps: arrays rows and labels, after the transforms"
    )
    draft: bool = Field(False, description="whether it is not opened yet")


class StateBody(_Body):
    """A state to move to."""

    state: Literal["open", "paused", "stopped"] = Field(description="stopped is for good")


class InvitesBody(_Body):
    """Invites to be made."""

    count: int = Field(1, ge=1, le=10_000, description="how many devices")


class EnrolBody(_Body):
    """A device that wants to join."""

    invite: str = Field(min_length=8, max_length=128, description="the code of the invite")
    key: Base64 = Field(description="the device's Ed25519 key, base64url")
    sheet: str = Field(pattern="^[0-9a-f]{64}$", description="hash of the sheet that its owner accepted")
    signature: Base64 = Field(description="over purpose, task, invite and sheet")


def coordinator_of(request: Request) -> Coordinator:
    """Return the coordinator of this server."""
    found: Coordinator = request.app.state.coordinator
    return found


def running_of(task: Name, coordinator: Annotated[Coordinator, Depends(coordinator_of)]) -> RunningTask:
    """Return the task of the path."""
    return coordinator.running(task)


def bearer_of(request: Request) -> bytes:
    """Return the token of a request."""
    values = request.headers.getlist("authorization")
    if len(values) > 1:
        raise Refusal(400, "repeated-header", "the header authorization stands twice")
    kind, _, token = (values[0] if values else "").partition(" ")
    if kind.lower() != "bearer" or not token:
        raise Refusal(401, "not-authorised", "a token is needed", hint="Authorization: Bearer TOKEN")
    return token.encode("latin-1")


def require_operator(
    request: Request,
    token: Annotated[bytes, Depends(bearer_of)],
    coordinator: Annotated[Coordinator, Depends(coordinator_of)],
) -> None:
    """Let only the operator pass; a device's token finds nothing here."""
    if coordinator.is_operator(token):
        return
    if coordinator.tokens.find(token) is not None:
        raise Refusal(404, "not-found", "there is nothing here")
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
operator = [Depends(require_operator)]
router = APIRouter(prefix="/v1")


@router.get("/tasks", response_model=models.Tasks, summary="List tasks")
async def list_tasks(coordinator: In) -> Response:
    """Return every task in short."""
    return written(coordinator.documents.tasks(coordinator.tasks.values()))


@router.get("/tasks/{task}", response_model=models.Described, summary="Show a task and its signed sheet")
async def show_task(coordinator: In, running: Of) -> Response:
    """Return everything public about a task."""
    return written(coordinator.documents.task(running))


@router.post("/tasks", status_code=201, dependencies=operator, response_model=models.Described, summary="Make a task")
async def create_task(coordinator: In, body: NewTaskBody, request: Request) -> dict[str, Any]:
    """Make a task from its file."""
    arrays = None if body.arrays is None else read_arrays(body.arrays)
    public = None if body.public is None else read_arrays([body.public])[0]
    async with request.app.state.creating:
        stored = await asyncio.to_thread(coordinator.create, body.file, body.changes, arrays, body.draft, public)
        running = coordinator.start(stored)
    return running.describe()


@router.patch("/tasks/{task}", dependencies=operator, response_model=models.Described, summary="Open, pause or stop")
async def change_task(coordinator: In, running: Of, body: StateBody) -> Response:
    """Move a task to another state."""
    return await _work(coordinator, running, lambda task: coordinator.set_state(task, body.state))


@router.post(
    "/tasks/{task}/invites",
    status_code=201,
    dependencies=operator,
    response_model=models.Invites,
    summary="Invite devices",
)
async def make_invites(coordinator: In, running: Of, body: InvitesBody, request: Request) -> dict[str, Any]:
    """Make links, each good for one device."""
    address = str(request.app.state.public_address or str(request.base_url).rstrip("/"))
    return {"invites": await asyncio.to_thread(coordinator.invite, running, body.count, address)}


@router.get("/tasks/{task}/devices", dependencies=operator, response_model=models.Devices, summary="List devices")
async def list_devices(running: Of) -> dict[str, Any]:
    """Return the enrolled devices: names given by the server, nothing about owners."""

    def refused(slot: int) -> int:
        device = running.devices.get(slot)
        return device.refused if device else 0

    return {
        "devices": [
            {"device": own.device, "slot": slot, "check_ins": own.check_ins, "refused": refused(slot)}
            for slot, own in running.snapshot.devices.items()
        ]
    }


@router.delete("/tasks/{task}/devices/{device}", status_code=204, dependencies=operator, summary="Revoke a device")
async def revoke_device(coordinator: In, running: Of, device: str) -> Response:
    """Take a device's token away."""
    found = coordinator.shut_out(running, device)
    return await _work(coordinator, running, lambda task: coordinator.revoke(task, found))


@router.post(
    "/tasks/{task}/devices",
    status_code=201,
    response_model=models.Enrolled,
    responses={200: {"model": models.Enrolled, "description": "It had joined before; the earlier token is dead"}},
    summary="Join a task by an invite",
)
async def enrol(coordinator: In, running: Of, body: EnrolBody, request: Request) -> Response:
    """Enrol a device; the answer holds its token, which is shown once."""
    request.app.state.require_pace(request)
    content = body.model_dump() | {"key": _raw(body.key), "signature": _raw(body.signature)}
    return await _work(coordinator, running, lambda task: coordinator.enrol(task, content))


@router.get("/devices/me", response_model=models.Me, summary="What the server keeps of this device")
async def show_me(coordinator: In, me: Me) -> dict[str, Any]:
    """Return the device's own entry: a ledger with fewer charges than `check_ins` was set back."""
    running = coordinator.running(me.task)
    return {
        "device": me.id,
        "task": me.task,
        "slot": me.slot,
        "check_ins": running.totals(me).check_ins,
        "sheet": running.sheet_hash,
        "state": running.snapshot.state,
    }


@router.delete("/devices/me", status_code=204, summary="Withdraw")
async def withdraw(coordinator: In, me: Me) -> Response:
    """Erase the device's space and its token; receipts keep no identity."""
    running = coordinator.running(me.task)
    return await _work(coordinator, running, lambda task: coordinator.withdraw(task, me))


@router.get("/devices/me/receipts", response_model=models.Receipts, summary="Receipts of this device")
async def show_receipts(coordinator: In, me: Me, after: Annotated[int, Field(ge=0, le=1 << 53)] = 0) -> dict[str, Any]:
    """Return up to 1000 receipts with numbers above `after`."""
    settled = coordinator.running(me.task).totals(me).check_ins
    stored = await asyncio.to_thread(coordinator.store.receipts, me.id, after, 1000)
    # The store may have one that the snapshot does not show yet.
    found = [own for own in stored if own.number <= settled]
    return {
        "receipts": [
            {
                "key": own.key,
                "number": own.number,
                "status": own.status,
                "version": own.version,
                "body": own.body.hex(),
            }
            for own in found
        ],
        "next": found[-1].number if len(found) == 1000 else None,
    }


@router.get(
    "/tasks/{task}/model",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
    summary="The model as it stands",
)
async def get_model(
    request: Request,
    coordinator: In,
    running: Of,
    token: Annotated[bytes, Depends(bearer_of)],
    format: Literal["safetensors", "onnx"] = "safetensors",
) -> Response:
    """Return the model with terms and ε in its metadata, to the operator or to a device of the task."""
    if not coordinator.is_operator(token):
        device = device_of(request, token, coordinator)
        if device.task != running.name:
            raise Refusal(404, "no-task", "there is no such task")
    raw = await asyncio.to_thread(export, running, format)
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
