"""The coordinator: all tasks of one server, with a writer for each.

Whatever changes a task goes through its writer, so that no two things ever happen to it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crowdml.core import BadInput, Coins, record, trees
from crowdml.core.keys import SigningKey, fingerprint
from crowdml.server.refusals import Answer, Refusal, json_answer
from crowdml.server.store import Actor, Store, StoredTask, StoreFailed
from crowdml.server.tasks.device_tokens import DeviceState, Tokens
from crowdml.server.tasks.enrolment import Enrolment
from crowdml.server.tasks.figures.task_activity import ActivityLog
from crowdml.server.tasks.figures.validation import Validation
from crowdml.server.tasks.groups.leak_figure import LeakFigure, note_leak, noted_leak
from crowdml.server.tasks.groups.slice_groups import SliceGroups
from crowdml.server.tasks.mutable_task import MutableTask
from crowdml.server.tasks.new_task import EntropyCoins, TaskRequest, make_task, read_validation_set
from crowdml.server.tasks.operator.operator_sessions import Sessions
from crowdml.server.tasks.operator.operator_token import OperatorToken
from crowdml.server.tasks.operator.refusal_counts import RefusalCounts
from crowdml.server.tasks.running_task import Choose, RunningTask, by_hash
from crowdml.server.tasks.task_writer import LARGEST_BATCH, Writer
from crowdml.server.tasks.waiting_room import LARGEST_ROOM, WaitingRoom

TRANSITIONS = {"draft": ("open", "stopped"), "open": ("paused", "stopped"), "paused": ("open", "stopped")}


@record
class Options:
    """How a server behaves.

    Attributes:
        capacity: Check-ins of one task that may wait.
        largest_batch: Check-ins stored in one transaction at most.
        room: Bytes of check-ins of all tasks that may wait.
        patience_s: Seconds until a round makes up for silent devices.
        stage_s: Seconds that each stage of a secure sum waits for silent devices.
        coins: Begins models; given coins are for tests.
        choose: Orders devices for rounds; given orders are for tests.
        token_file: Where the operator's token is written when it is changed; None: nowhere.
        shared: Tells whether other front ends read the same database: they may see a version before this one does.
        crowd_changed: Called with task and slot of every device that came or went; from whichever thread.
        clock: Monotonic seconds, by which rounds are patient; another one is for tests.
    """

    capacity: int = 4096
    largest_batch: int = LARGEST_BATCH
    room: int = LARGEST_ROOM
    patience_s: float = 30.0
    stage_s: float = 15.0
    coins: Callable[[], Coins] = EntropyCoins
    choose: Choose | None = None
    token_file: Path | None = None
    shared: Callable[[], bool] = bool  # which answers: no
    crowd_changed: Callable[[int, int], None] = lambda task, slot: None
    clock: Callable[[], float] = time.monotonic


class Coordinator:
    """Holds every task of a server.

    Args:
        store: Where everything is kept.
        failed: Called when a writer cannot go on.
        options: How the server behaves.

    Attributes:
        operator_token: Tells the operator's token.
        sessions: Browsers in which the operator has signed in.
        refusals: Counts what was refused, for the event log.
        tokens: Finds devices by their tokens.
        enrolment: Lets devices in and out.
        tasks: What everybody may see of each task, by name.
        writers: What changes each task, by name.
        validations: What measures models on public rows, by the name of each task that has some.
        check_outs: Check-outs answered since the server started, by status.
        check_ins: Check-ins answered, by status.
    """

    def __init__(
        self,
        store: Store,
        failed: Callable[[BaseException], None],
        options: Options = Options(),  # noqa: B008  a frozen record
    ) -> None:
        """Begin without tasks; `start` takes each up where it was."""
        self.store, self.options, self._failed = store, options, failed
        self.check_outs, self.check_ins = Counter[int](), Counter[int]()
        self._room = WaitingRoom(options.room)
        identity = store.identity()
        if identity is None:
            raise BadInput("this database has no operator yet", hint="crowdml serve makes one")
        self._key = SigningKey(identity.signing_key)
        self.operator_token = OperatorToken(store, options.token_file)
        self.sessions, self.refusals = Sessions(store), RefusalCounts(store)
        self.tokens = Tokens()
        self.enrolment = Enrolment(store, self.tokens, fingerprint(self._key.public))
        self._groups: dict[str, SliceGroups] = {}
        self._leaks: dict[int, LeakFigure | None] = {}
        self.tasks: dict[str, RunningTask] = {}
        self.writers: dict[str, Writer] = {}
        self.validations: dict[str, Validation] = {}

    @property
    def well(self) -> bool:
        """Whether every writer works."""
        return all(writer.alive for writer in self.writers.values())

    def is_operator(self, token: bytes) -> bool:
        """Compare a token with the operator's, in constant time."""
        return self.operator_token.matches(token)

    def rotate(self, allowed: Callable[[], bool], by: Actor = "operator") -> str:
        """Change the operator's token, if whoever asks is still allowed to; all sessions end. Return the new one."""
        return self.operator_token.rotate(allowed, self.sessions.forget_all, by)

    def sign_in(self, token: bytes) -> str | None:
        """Begin a session for the operator; return what its cookie holds, or None for another token."""
        return self.operator_token.begin(token, self.sessions.begin)

    def count_refusal(self, actor: Actor, action: str, task: int | None = None) -> None:
        """Count a refusal for the event log. Runs in the event loop."""
        if self.refusals.add(actor, action, task):
            writing = asyncio.get_running_loop().run_in_executor(None, self.refusals.write)
            writing.add_done_callback(lambda done: self._failed(error) if (error := done.exception()) else None)

    def count_check_in(self, answer: Answer, running: RunningTask | None) -> None:
        """Count how a check-in was answered; what no honest device sends is for the event log too."""
        self.check_ins[answer.status] += 1
        if answer.status == 422 and running is not None:
            self.count_refusal("device", "refused check-in", running.id)

    async def close(self) -> None:
        """Finish what waits and let go of the store."""
        for groups in self._groups.values():
            groups.close()
        for validation in self.validations.values():
            await validation.close()
        for writer in self.writers.values():
            await writer.close()
        with contextlib.suppress(StoreFailed):
            await asyncio.to_thread(self.refusals.write)
        self.store.close()

    def running(self, name: str) -> RunningTask:
        """Return a task, or refuse."""
        found = self.tasks.get(name)
        if found is None:
            raise Refusal(404, "no-task", "there is no such task")
        return found

    def groups_of(self, running: RunningTask) -> SliceGroups:
        """Return the groups of a task whose devices hold pieces of one net, or refuse."""
        if running.live.sliced is None:
            raise Refusal(404, "no-groups", "devices of this task hold no pieces of a net")
        found = self._groups.get(running.name)
        if found is None or found.running is not running:
            found = SliceGroups(running, self.writers[running.name], self.store, self._key.secret)
            self._groups[running.name] = found
        return found

    def group_figures(self, running: RunningTask) -> list[dict[str, Any]]:
        """Say how the groups of a task stand; nothing where devices hold no pieces of a net."""
        return self.groups_of(running).figures() if running.live.sliced is not None else []

    def leak_of(self, running: RunningTask) -> LeakFigure | None:
        """Return what the operator has measured of a task whose devices hold pieces of one net; None: nothing."""
        if running.live.sliced is None:
            return None
        if running.id not in self._leaks:
            self._leaks[running.id] = noted_leak(self.store, running.id)
        return self._leaks[running.id]

    def note_leak(self, running: RunningTask, right: float, chance: float, own_rows: int) -> LeakFigure:
        """Keep what the operator has measured, for everybody to see."""
        if running.live.sliced is None:
            raise Refusal(404, "no-groups", "devices of this task hold no pieces of a net")
        note_leak(self.store, running.id, right, chance, own_rows)
        found = noted_leak(self.store, running.id)
        assert found is not None  # noqa: S101  noted just now
        self._leaks[running.id] = found
        return found

    def create(self, request: TaskRequest, by: Actor = "operator") -> StoredTask:
        """Make a task from its file; open unless it is to stay a draft. `start` must follow."""
        return self.store.create_task(make_task(request, self._key, self.options.coins, self.tasks), by)

    def set_state(self, task: MutableTask, wanted: str, by: Actor = "operator") -> Answer:
        """Move a task to another state. Runs in its writer."""
        state = task.state
        if wanted not in TRANSITIONS.get(state.state, ()) and wanted != state.state:
            raise Refusal(409, "state", f"a task that is {state.state} cannot become {wanted}")
        if wanted != state.state:
            reason = "the operator stopped it" if wanted == "stopped" else None
            self.store.set_state(task.running.id, wanted, reason, by)
            state.state, state.reason = wanted, reason
            task.settle()
        return json_answer(task.running.describe())

    def start(self, stored: StoredTask) -> RunningTask:
        """Take a task up exactly where the store has it. Runs in the event loop."""
        name = stored.name
        known = self.store.devices(stored.id)
        devices = [device for device in known if not device.revoked]
        secret = hashlib.sha256(b"crowdml rounds\0" + self._key.secret + name.encode()).digest()
        choose = self.options.choose or by_hash(secret)
        running = RunningTask(stored, choose=choose, patience_s=self.options.patience_s, clock=self.options.clock)
        running.crowd_changed = functools.partial(self.options.crowd_changed, stored.id)
        for device in devices:
            running.devices[device.slot] = DeviceState.of(device, name)
            self.tokens.add(running.devices[device.slot])
        for device in known:
            if device.revoked:
                self.tokens.revoke(device.token_hash)
        rows, points, days = self.store.rows(stored.id), self.store.points(stored.id), self.store.days(stored.id)
        log = self.store.log(stored.id, days[-1].first if days else 0)
        activity = ActivityLog(days, log, running.live.masked is not None)
        task = MutableTask(running, stored, rows, devices, points, activity)
        self.tasks[name] = running
        self.writers[name] = Writer(
            task,
            self.store,
            self._failed,
            self.options.capacity,
            self.options.largest_batch,
            self._room,
            size_in_memory(running),
        )
        public = read_validation_set(stored.public)
        if public is not None and Validation.can_measure(running):
            self.validations[name] = Validation(running, public, self.store, self._failed)
            self.validations[name].begin()
        return running


def size_in_memory(running: RunningTask) -> int:
    """Return how many bytes a check-in of a task takes while it waits: as it came, or as numbers, whichever is more."""
    layout = running.live.server_messages.check_in
    return max(layout.size_bytes, sum(int(leaf.nbytes) for leaf in trees.leaves(layout.example)))
