"""The coordinator: all tasks of one server, their crowds, and what an operator may do with them.

Whatever changes a task goes through its writer, so that no two things ever happen to it at once.
"""

from __future__ import annotations

import hashlib
import hmac
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crowdml.algorithms import parse
from crowdml.algorithms.live import definition_of, open_task, require_live
from crowdml.algorithms.public_file import PublicSet
from crowdml.core import BadInput, Coins, record
from crowdml.protocol import Sheet, sign_sheet
from crowdml.protocol.joining import InviteLink, make_code, make_token, verify_enrolment
from crowdml.protocol.keys import SigningKey, fingerprint
from crowdml.protocol.sheet import Arrays
from crowdml.server.answers import Answer, Refusal, json_answer
from crowdml.server.coins import EntropyCoins
from crowdml.server.crowd import DeviceState, Tokens, token_hash
from crowdml.server.documents import Documents
from crowdml.server.metrics import Metrics
from crowdml.server.mutable_task import MutableTask
from crowdml.server.public_sets import write_public_set
from crowdml.server.rounds import Choose, by_hash
from crowdml.server.running import RunningTask
from crowdml.server.snapshot import DeviceTotals
from crowdml.server.store import NewDevice, NewTask, Store, StoredTask
from crowdml.server.writer import LARGEST_BATCH, Writer

TRANSITIONS = {"draft": ("open", "stopped"), "open": ("paused", "stopped"), "paused": ("open", "stopped")}
LARGEST_INVITES = 10_000
_NOT_JOINED = {
    "unknown": (404, "no-invite", "there is no such invite", ""),
    "used": (409, "invite-used", "the invite was used by another device", "ask for a new one"),
    "key-taken": (409, "key-taken", "this device's key has joined already", "one key, one device"),
}


@record
class Options:
    """How a server behaves.

    Attributes:
        capacity: Check-ins of one task that may wait.
        largest_batch: Check-ins stored in one transaction at most.
        patience_s: Seconds until a round makes up for silent devices.
        stage_s: Seconds that each stage of a masked sum waits for silent devices.
        coins: Begins models; given coins are for tests.
        choose: Orders devices for rounds; given orders are for tests.
    """

    capacity: int = 4096
    largest_batch: int = LARGEST_BATCH
    patience_s: float = 30.0
    stage_s: float = 15.0
    coins: Callable[[], Coins] = EntropyCoins
    choose: Choose | None = None


class Coordinator:
    """Holds every task of a server.

    Args:
        store: Where everything is kept.
        failed: Called when a writer cannot go on.
        options: How the server behaves.
    """

    def __init__(
        self,
        store: Store,
        failed: Callable[[BaseException], None],
        options: Options = Options(),  # noqa: B008  a frozen record
    ) -> None:
        """Begin without tasks; `start` takes each up where it was."""
        self.store, self.options, self.metrics = store, options, Metrics()
        self._failed = failed
        identity = store.identity()
        if identity is None:
            raise BadInput("this database has no operator yet", hint="crowdml serve makes one")
        self._key = SigningKey(identity.signing_key)
        self._operator_hash = identity.operator_token_hash
        self.tokens, self.documents = Tokens(), Documents(store)
        self.tasks: dict[str, RunningTask] = {}
        self.writers: dict[str, Writer] = {}

    @property
    def operator_key(self) -> str:
        """Fingerprint of the key that signs sheets."""
        return fingerprint(self._key.public)

    def is_operator(self, token: bytes) -> bool:
        """Compare a token with the operator's, in constant time."""
        return hmac.compare_digest(token_hash(token), self._operator_hash)

    async def close(self) -> None:
        """Finish what waits and let go of the store."""
        for writer in self.writers.values():
            await writer.close()
        self.store.close()

    def running(self, name: str) -> RunningTask:
        """Return a task, or refuse."""
        found = self.tasks.get(name)
        if found is None:
            raise Refusal(404, "no-task", "there is no such task")
        return found

    def create(
        self,
        file: str,
        changes: Sequence[str] = (),
        arrays: tuple[Arrays, ...] | None = None,
        draft: bool = False,
        public: PublicSet | None = None,
    ) -> StoredTask:
        """Make a task from its file; open unless it is to stay a draft. `start` must follow."""
        task = parse(file, "task file", changes)
        require_live(task)
        kept = write_public_set(task, public)
        if task.name in self.tasks:
            raise Refusal(409, "name-taken", f"a task named {task.name} exists", hint="choose another name")
        learnt = tuple({} for _ in task.data.transform) if arrays is None else arrays
        sheet = Sheet(
            task=task.name,
            incarnation=1,
            definition=definition_of(task),
            arrays=tuple(dict(own) for own in learnt),
        )
        signed = sign_sheet(sheet, self._key)
        # Opened as devices and every later start will open it: whatever is wrong comes to light before it is stored.
        live = open_task(signed.open())
        return self.store.create_task(
            NewTask(
                name=task.name,
                state="draft" if draft else "open",
                file=file,
                sheet=signed.text,
                signature=signed.signature,
                key=signed.key,
                incarnation=1,
                server_state=live.state.encode(live.server.init(self.options.coins())),
                public=kept,
            )
        )

    def set_state(self, task: MutableTask, wanted: str) -> Answer:
        """Move a task to another state. Runs in its writer."""
        state = task.state
        if wanted not in TRANSITIONS.get(state.state, ()) and wanted != state.state:
            raise Refusal(409, "state", f"a task that is {state.state} cannot become {wanted}")
        if wanted != state.state:
            reason = "the operator stopped it" if wanted == "stopped" else None
            self.store.set_state(task.running.id, wanted, reason)
            state.state, state.reason = wanted, reason
            task.settle()
        return json_answer(task.running.describe())

    def invite(self, running: RunningTask, count: int, server: str) -> list[str]:
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
        self.store.add_invites(running.id, [_code_hash(code) for code in codes])
        return [
            InviteLink(
                server=server, task=running.name, code=code, key=self.operator_key, sheet=running.sheet_hash
            ).to_url()
            for code in codes
        ]

    def enrol(self, task: MutableTask, request: Mapping[str, Any]) -> Answer:
        """Let a device join by an invite; exactly one can use it."""
        running, state = task.running, task.state
        if state.state == "stopped":
            raise Refusal(410, "stopped", state.reason or "the task has ended")
        if request["sheet"] != running.sheet_hash:
            raise Refusal(
                409, "sheet-changed", "the sheet is not the present one", hint="read it again before you accept"
            )
        verify_enrolment(request["key"], request["signature"], running.name, request["invite"], request["sheet"])
        token = make_token()
        device = NewDevice(
            id=uuid.uuid4().hex,
            token_hash=token_hash(token.encode()),
            public_key=request["key"],
            joined=time.time(),
        )
        used = self.store.use_invite(running.id, _code_hash(request["invite"]), device)
        if isinstance(used, str):
            status, code, text, hint = _NOT_JOINED[used]
            raise Refusal(status, code, text, hint=hint)
        before = running.devices.get(used.device.slot)
        if before is not None:
            self.tokens.remove(before)
            before.revoked = True
        entry = DeviceState.of(used.device, running.name)
        entry.invited = before.invited if before is not None else -1
        self.tokens.add(entry)
        task.add_device(entry, DeviceTotals.of(used.device))
        content = {"device": entry.id, "token": token, "slot": entry.slot, "sheet": running.sheet_hash}
        return json_answer(content, 200 if used.again else 201)

    def shut_out(self, running: RunningTask, device_id: str) -> DeviceState:
        """Let a device speak no more, at once: whatever of it waits in the queue is refused. `revoke` must follow."""
        found = next((own for own in list(running.devices.values()) if own.id == device_id), None)
        if found is None:
            raise Refusal(404, "no-device", "there is no such device")
        found.revoked = True
        return found

    def revoke(self, task: MutableTask, device: DeviceState) -> Answer:
        """Take a device's token away for good. Runs in the task's writer."""
        self.store.revoke(device.id)
        # It may have been given a new token while this waited.
        gone = task.running.devices.get(device.slot, device)
        self._drop(task, gone)
        self.tokens.revoke(gone.token_hash)
        return Answer(status=204)

    def withdraw(self, task: MutableTask, device: DeviceState) -> Answer:
        """Erase a device's space; receipts keep no identity. Runs in the task's writer."""
        device.revoked = True
        self.store.withdraw(device.id)
        task.state.rows.pop(device.slot, None)
        self._drop(task, device)
        return Answer(status=204)

    def gauges(self) -> dict[tuple[str, str], float]:
        """Return present values for the metrics page."""
        found: dict[tuple[str, str], float] = {}
        for name, running in self.tasks.items():
            label = f'task="{name}"'
            found["crowdml_version", label] = running.snapshot.version
            found["crowdml_devices", label] = len(running.snapshot.devices)
            found["crowdml_waiting", label] = self.writers[name].waiting
        return found

    def _drop(self, task: MutableTask, device: DeviceState) -> None:
        self.tokens.remove(device)
        task.remove_device(device)

    def start(self, stored: StoredTask) -> RunningTask:
        """Take a task up exactly where the store has it. Runs in the event loop."""
        name = stored.name
        known = self.store.devices(stored.id)
        devices = [device for device in known if not device.revoked]
        secret = hashlib.sha256(b"crowdml rounds\0" + self._key.secret + name.encode()).digest()
        choose = self.options.choose or by_hash(secret)
        running = RunningTask(stored, choose=choose, patience_s=self.options.patience_s)
        for device in devices:
            running.devices[device.slot] = DeviceState.of(device, name)
            self.tokens.add(running.devices[device.slot])
        for device in known:
            if device.revoked:
                self.tokens.revoke(device.token_hash)
        task = MutableTask(running, stored, self.store.rows(stored.id), devices, self.store.points(stored.id))
        self.tasks[name] = running
        self.writers[name] = Writer(
            task,
            self.store,
            self._failed,
            self.metrics,
            self.options.capacity,
            self.options.largest_batch,
        )
        return running


def _code_hash(code: str) -> bytes:
    return hashlib.sha256(b"crowdml invite\0" + code.encode()).digest()
