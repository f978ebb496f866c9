"""Enrolment: how devices join a task by an invite, and how they leave it.

Joining and leaving change a task, so its writer runs `enrol`, `revoke` and `withdraw`, and lends them the task.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Mapping
from typing import Any

from crowdml.server.refusals import Answer, Refusal, json_answer
from crowdml.server.store import Actor, NewDevice, Store
from crowdml.server.store.store_records import Refused
from crowdml.server.tasks.device_tokens import DeviceState, Tokens, token_hash
from crowdml.server.tasks.mutable_task import MutableTask
from crowdml.server.tasks.running_task import RunningTask
from crowdml.server.tasks.snapshot import DeviceTotals
from crowdml.wire.join_link import InviteLink, make_code, make_token, verify_enrolment

LARGEST_INVITES = 10_000
NOT_JOINED = {
    "unknown": (404, "no-invite", "there is no such invite", ""),
    "used": (409, "invite-used", "the invite was used by another device", "ask for a new one"),
    "key-taken": (409, "key-taken", "this device's key has joined already", "one key, one device"),
}
"""What the store says of an invite that lets nobody in → status, code, message, hint."""


class Enrolment:
    """Lets devices in and out.

    Args:
        store: Where devices and invites are kept.
        tokens: Finds devices by their tokens; kept up to date here.
        operator_key: Fingerprint of the key that signs tasks, which invites carry.
    """

    def __init__(self, store: Store, tokens: Tokens, operator_key: str) -> None:
        self._store, self._tokens, self._operator_key = store, tokens, operator_key

    def invite(self, running: RunningTask, count: int, server: str, by: Actor = "operator") -> list[str]:
        """Make links, each good for one device."""
        if not 0 < count <= LARGEST_INVITES:
            raise Refusal(422, "bad-input", f"count must be from 1 to {LARGEST_INVITES}, not {count}")
        if running.snapshot.state == "stopped":
            raise Refusal(
                410,
                "stopped",
                f"{running.name} has ended ({running.snapshot.reason or 'stopped'}): nobody can join it any more",
                hint="a new task needs a new name: crowdml task create",
            )
        codes = [make_code() for _ in range(count)]
        self._store.add_invites(running.id, [_code_hash(code) for code in codes], by)
        return [
            InviteLink(
                server=server, task=running.name, code=code, key=self._operator_key, task_hash=running.task_hash
            ).to_url()
            for code in codes
        ]

    def is_used(self, running: RunningTask, code_hash: bytes) -> bool:
        """Say whether a device has joined by an invite, to whoever knows the hash of its code."""
        used = self._store.invite_used(running.id, code_hash)
        if used is None:
            raise _not_joined("unknown")
        return used

    def enrol(self, task: MutableTask, request: Mapping[str, Any]) -> Answer:
        """Let a device join by an invite; exactly one can use it."""
        running, state = task.running, task.state
        if state.state == "stopped":
            raise Refusal(410, "stopped", state.reason or "the task has ended")
        if request["task_hash"] != running.task_hash:
            raise Refusal(
                409, "task-changed", "the signed task is not the present one", hint="read it again before you accept"
            )
        verify_enrolment(request["key"], request["signature"], running.name, request["invite"], request["task_hash"])
        token = make_token()
        device = NewDevice(
            id=uuid.uuid4().hex,
            token_hash=token_hash(token.encode()),
            public_key=request["key"],
            joined=time.time(),
        )
        used = self._store.use_invite(running.id, _code_hash(request["invite"]), device)
        if isinstance(used, str):
            raise _not_joined(used)
        before = running.devices.get(used.device.slot)
        if before is not None:
            self._tokens.remove(before)
            before.revoked = True
        entry = DeviceState.of(used.device, running.name)
        entry.invited = before.invited if before is not None else -1
        self._tokens.add(entry)
        task.add_device(entry, DeviceTotals.of(used.device))
        content = {"device": entry.id, "token": token, "slot": entry.slot, "task_hash": running.task_hash}
        return json_answer(content, 200 if used.again else 201)

    def shut_out(self, running: RunningTask, device_id: str) -> DeviceState:
        """Let a device speak no more, at once: whatever of it waits in the queue is refused. `revoke` must follow."""
        found = next((device for device in list(running.devices.values()) if device.id == device_id), None)
        if found is None:
            raise Refusal(404, "no-device", "there is no such device")
        found.revoked = True
        return found

    def revoke(self, task: MutableTask, device: DeviceState, by: Actor = "operator") -> Answer:
        """Take a device's token away for good. Runs in the task's writer."""
        self._store.revoke(device.id, by)
        # It may have been given a new token while this waited.
        gone = task.running.devices.get(device.slot, device)
        self._drop(task, gone)
        self._tokens.revoke(gone.token_hash)
        return Answer(status=204)

    def withdraw(self, task: MutableTask, device: DeviceState) -> Answer:
        """Erase a device's space; receipts keep no identity. Runs in the task's writer."""
        device.revoked = True
        self._store.withdraw(device.id)
        task.state.rows.pop(device.slot, None)
        self._drop(task, device)
        return Answer(status=204)

    def _drop(self, task: MutableTask, device: DeviceState) -> None:
        self._tokens.remove(device)
        task.remove_device(device)


def _not_joined(why: Refused) -> Refusal:
    status, code, text, hint = NOT_JOINED[why]
    return Refusal(status, code, text, hint=hint)


def _code_hash(code: str) -> bytes:
    return hashlib.sha256(b"crowdml invite\0" + code.encode()).digest()
