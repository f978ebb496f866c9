"""A running task: its state in memory, what is published of it, and the crowd that works on it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from crowdml.algorithms.acceptance import Acceptance
from crowdml.algorithms.counting import estimated_error
from crowdml.algorithms.live import LiveTask, open_task
from crowdml.algorithms.promise_words import promise_words
from crowdml.algorithms.recent_error import RecentError
from crowdml.core import NUMPY, record
from crowdml.protocol import SignedSheet, message
from crowdml.server.crowd import DeviceState
from crowdml.server.error_history import ErrorHistory
from crowdml.server.folding import TaskState
from crowdml.server.public_sets import read_public_set
from crowdml.server.rounds import Choose, Invited
from crowdml.server.store import Applied, Point, Receipt, StoredTask


@record
class Published:
    """A version as devices check it out.

    Attributes:
        version: The version.
        etag: Names it within the incarnation.
        body: The message, encoded.
    """

    version: int
    etag: bytes
    body: bytes


@record
class Told:
    """How a task stands in the store: what is told to whoever asks.

    While a batch is being stored `state` is ahead of this. Nobody may see that: if the process ends there, it has never
    happened.
    """

    version: int
    check_ins: int
    received: int
    state: str
    reason: str | None
    rows: int
    estimated_error: float | None
    averaging: dict[str, Any] | None = None
    recent_error: RecentError | None = None


@record
class Mark:
    """How a task stood before something was folded in."""

    version: int
    check_ins: int
    state: str


class RunningTask:
    """Everything the server holds in memory about one task.

    `state` belongs to the writer; others read `published` and `told`, which are replaced as a whole.

    Args:
        stored: The task as the store has it.
        rows: What the store keeps for each device, by slot.
        devices: All devices that were ever enrolled and have not withdrawn.
        choose: Orders slots for rounds.
        points: The learning curve as the store has it.
        patience_s: Seconds until a round makes up for silent devices.
    """

    def __init__(
        self,
        stored: StoredTask,
        rows: dict[int, bytes],
        devices: list[DeviceState],
        *,
        choose: Choose,
        patience_s: float,
        points: Iterable[Point] = (),
    ) -> None:
        """Take up the task exactly where the store has it."""
        self.id, self.name, self.file = stored.id, stored.name, stored.file
        self.signed = SignedSheet(text=stored.sheet, signature=stored.signature, key=stored.key)
        self.sheet_hash = self.signed.hash
        sheet = self.signed.open()
        self.incarnation = sheet.incarnation
        self.live: LiveTask = open_task(sheet, read_public_set(sheet, stored.public))
        algorithm = self.live.server
        self.keeps_rows = self.live.row.size_bytes > len(self.live.row.header)
        self.state = TaskState(
            server=self.live.state.decode(stored.server_state),
            rows={slot: self.live.row.decode(raw)["row"] for slot, raw in rows.items()},
            version=stored.version,
            check_ins=stored.check_ins,
            received=stored.received,
            state=stored.state,
            reason=stored.reason,
            begun=stored.version,
        )
        self.acceptance = Acceptance.of(algorithm, self.live.plan)
        self.devices = {device.slot: device for device in devices}
        self.slots = stored.slots
        self.crowd_changes = 0
        self._last_point = stored.version
        self.errors = ErrorHistory(self.live, points)
        self.promise = promise_words(self.live.task, self.live.plan)
        self.invited: Invited | None = None
        if algorithm.rounds:
            self.invited = Invited(algorithm.rounds.per_round, patience_s, choose)
        self.published: Published
        self.told: Told
        self._publish()
        self.settle()

    def settle(self) -> None:
        """Let everybody see the present state, which is stored."""
        state = self.state
        if self.published.version != state.version:
            self._publish()
        self.told = Told(
            version=state.version,
            check_ins=state.check_ins,
            received=state.received,
            state=state.state,
            reason=state.reason,
            rows=self.rows,
            estimated_error=self.estimated_error,
            averaging=self._averaging(),
            recent_error=self.errors.recent(state.server, state.version, state.check_ins),
        )

    def mark(self) -> Mark:
        """Remember how the task stands now."""
        return Mark(version=self.state.version, check_ins=self.state.check_ins, state=self.state.state)

    def since(self, before: Mark, receipts: list[Receipt], touched: Iterable[int] = ()) -> Applied:
        """Return what has to be stored after something was folded in; `touched` are slots whose rows changed."""
        state = self.state
        return Applied(
            task=self.id,
            expected_version=before.version,
            expected_check_ins=before.check_ins,
            version=state.version,
            check_ins=state.check_ins,
            received=state.received,
            server_state=self.encode_state(),
            rows={slot: self.encode_row(slot) for slot in touched} if self.keeps_rows else {},
            receipts=receipts,
            state=state.state if state.state != before.state else None,
            reason=state.reason,
            point=self._point(),
        )

    def _point(self) -> Point | None:
        """Return a point of the curve, now and then: after every version at first, later after each further 1 %."""
        state = self.state
        if state.version <= self._last_point * 1.01:
            return None
        self._last_point = state.version
        point = Point(
            version=state.version,
            check_ins=state.check_ins,
            rows=self.rows,
            estimated_error=self.estimated_error,
            time=time.time(),
            **self.errors.counts(state.server),
        )
        self.errors.add(point)
        return point

    def _publish(self) -> None:
        version = self.state.version
        body = self.live.server_messages.check_out.encode(
            message(version, self.live.server.check_out(self.state.server))
        )
        self.published = Published(version=version, etag=f'"{self.incarnation}-{version}"'.encode(), body=body)

    def _averaging(self) -> dict[str, Any] | None:
        """Say how the last version was averaged: weights in the order of its check-ins, as a mean over layers."""
        shown = self.live.server.shown
        if shown is None:
            return None
        now = shown(self.state.server)
        weights = now["weights"].mean(axis=0)
        return {
            "used": int(now["accepted"]),
            "weights": [round(float(own), 4) for own in weights],
            "largest": round(float(weights.max()), 4),
        }

    def encode_state(self) -> bytes:
        """Write the server's state for the store."""
        return self.live.state.encode(self.state.server)

    def encode_row(self, slot: int) -> bytes:
        """Write what is kept for one device."""
        return self.live.row.encode({"row": self.state.rows[slot]})

    def add_device(self, device: DeviceState) -> None:
        """Welcome a device."""
        self.devices[device.slot] = device
        self.slots = max(self.slots, device.slot + 1)
        self.crowd_changes += 1

    def remove_device(self, device: DeviceState) -> None:
        """Forget a device that was revoked or has withdrawn."""
        device.revoked = True
        self.devices.pop(device.slot, None)
        self.crowd_changes += 1

    def in_round(self, device: DeviceState) -> bool:
        """Tell whether a device is asked for its contribution now."""
        if self.invited is None:
            return True
        told = self.told
        if device.last_version >= told.version:
            return False
        return self.invited.includes(device.slot, told.version, told.received, tuple(self.devices), self.crowd_changes)

    @property
    def rows(self) -> int:
        """Rows that devices said they learnt from; 0 where they do not say."""
        totals = self.live.server.totals
        return int(totals(self.state.server)["rows"]) if totals else 0

    @property
    def estimated_error(self) -> float | None:
        """Error of all check-ins so far as estimated from private counts, if there are any."""
        totals = self.live.server.totals
        if totals is None:
            return None
        counts = totals(self.state.server)
        return float(estimated_error(counts, NUMPY)) if counts["counted"] else None

    def summary(self) -> dict[str, Any]:
        """Say how the task stands; nothing in it is private."""
        told = self.told
        return {
            "task": self.name,
            "objective": self.live.task.objective,
            "state": told.state,
            "reason": told.reason,
            "version": told.version,
            "check_ins": told.check_ins,
            "devices": len(self.devices),
            "estimated_error": told.estimated_error,
            "recent_error": vars(told.recent_error) if told.recent_error else None,
            "rows": told.rows,
            "averaging": told.averaging,
        }
