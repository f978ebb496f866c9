"""A task as its writer has it: the state that changes, and how a snapshot is made of it once it is stored."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from crowdml.algorithms.device_parts.gradient import estimated_error
from crowdml.core import NUMPY, Report, Tally, record, trees
from crowdml.core.ops import Tree
from crowdml.server.store import Applied, Point, Receipt, StoredDevice, StoredTask
from crowdml.server.tasks.device_tokens import DeviceState
from crowdml.server.tasks.figures.learning_curve import mark_of
from crowdml.server.tasks.figures.task_activity import ActivityLog
from crowdml.server.tasks.running_task import RunningTask
from crowdml.server.tasks.snapshot import DeviceTotals, Published, Snapshot, TaskState
from crowdml.task.recent_error import RecentError, Totals, recent_error
from crowdml.wire import message


@record
class Mark:
    """How a task stood before something was folded in."""

    version: int
    check_ins: int
    state: str


class MutableTask:
    """The state of one task. Only its writer has one, and lends it to what it runs.

    Args:
        running: The task as everybody sees it; given its first snapshot here.
        stored: The task as the store has it.
        rows: What the store keeps for each device, by slot.
        devices: All devices that may speak.
        points: The learning curve as the store has it.
        activity: Days and staleness as the store has them; None: nothing was going on yet.
    """

    def __init__(
        self,
        running: RunningTask,
        stored: StoredTask,
        rows: Mapping[int, bytes],
        devices: Iterable[StoredDevice],
        points: Iterable[Point] = (),
        activity: ActivityLog | None = None,
    ) -> None:
        """Take up the task exactly where the store has it."""
        self.running, self.live = running, running.live
        self._keeps_rows = self.live.row.size_bytes > len(self.live.row.header)
        self._last_point, self._crowd = stored.version, 0
        self._marks = [mark for mark in map(mark_of, points) if mark]
        self.activity = activity or ActivityLog((), (), self.live.masked is not None)
        self.state = TaskState(
            server=self.live.state.decode(stored.server_state),
            rows={slot: self.live.row.decode(raw)["row"] for slot, raw in rows.items()},
            devices={device.slot: DeviceTotals.of(device) for device in devices},
            version=stored.version,
            check_ins=stored.check_ins,
            received=stored.received,
            state=stored.state,
            reason=stored.reason,
            begun=stored.version,
        )
        self._published = self._publish()
        self.settle()

    def settle(self) -> None:
        """Let everybody see the present state, which must be stored."""
        state = self.state
        if self._published.version != state.version:
            self._published = self._publish()
        counts = self._counts()
        self.running.publish(
            Snapshot(
                version=state.version,
                check_ins=state.check_ins,
                received=state.received,
                state=state.state,
                reason=state.reason,
                rows=int(counts.rows) if counts else 0,
                estimated_error=_estimated(counts),
                recent_error=self._recent_error(counts),
                averaging=self._averaging(),
                published=self._published,
                devices=MappingProxyType(dict(state.devices)),
                crowd=self._crowd,
                last_point=self._last_point,
                counts=counts,
                activity=self.activity.settle(),
            )
        )

    def mark(self) -> Mark:
        """Remember how the task stands now."""
        return Mark(version=self.state.version, check_ins=self.state.check_ins, state=self.state.state)

    def since(self, before: Mark, receipts: list[Receipt], touched: Iterable[int] = ()) -> Applied:
        """Return what has to be stored after something was folded in; `touched` are slots whose rows changed."""
        state = self.state
        return Applied(
            task=self.running.id,
            expected_version=before.version,
            expected_check_ins=before.check_ins,
            version=state.version,
            check_ins=state.check_ins,
            received=state.received,
            server_state=self.live.state.encode(state.server),
            rows={slot: self._encode_row(slot) for slot in touched} if self._keeps_rows else {},
            receipts=receipts,
            state=state.state if state.state != before.state else None,
            reason=state.reason,
            point=self._point(),
            day=self.activity.note(receipts, before.version, time.time()),
        )

    def add_device(self, device: DeviceState, totals: DeviceTotals) -> None:
        """Welcome a device that is stored."""
        self.running.devices[device.slot] = device
        self.state.devices[device.slot] = totals
        self._crowd += 1
        self.settle()
        self.running.crowd_changed(device.slot)

    def remove_device(self, device: DeviceState) -> None:
        """Forget a device that was revoked or has withdrawn, and is stored so."""
        device.revoked = True
        self.running.devices.pop(device.slot, None)
        self.state.devices.pop(device.slot, None)
        self._crowd += 1
        self.settle()
        self.running.crowd_changed(device.slot)

    def _point(self) -> Point | None:
        """Return a point of the curve, now and then: after every version at first, later after each further 1 %."""
        state = self.state
        if state.version <= self._last_point * 1.01:
            return None
        self._last_point = state.version
        counts = self._counts()
        point = Point(
            version=state.version,
            check_ins=state.check_ins,
            rows=int(counts.rows) if counts else 0,
            estimated_error=_estimated(counts),
            time=time.time(),
            counted=int(counts.counted) if counts else None,
            errors=int(counts.errors) if counts else None,
        )
        if mark := mark_of(point):
            self._marks.append(mark)
        return point

    def _publish(self) -> Published:
        return publish(self.running, self.state.server, self.state.version)

    def _averaging(self) -> dict[str, Any] | None:
        """Say how the last version was averaged: weights in the order of its check-ins, as a mean over layers."""
        now = self._report.averaging
        if not now:
            return None
        weights = now.weights.mean(axis=0)
        return {
            "used": int(now.accepted),
            "weights": [round(float(weight), 4) for weight in weights],
            "largest": round(float(weights.max()), 4),
        }

    def _encode_row(self, slot: int) -> bytes:
        return self.live.row.encode({"row": self.state.rows[slot]})

    @property
    def _report(self) -> Report:
        return self.live.server.last.server.report(self.state.server)

    def _counts(self) -> Tally | None:
        """Return what devices have counted so far; None where the algorithm lets them count nothing."""
        return self._report.counts or None

    def _recent_error(self, counts: Tally | None) -> RecentError | None:
        if counts is None:
            return None
        counted, errors = int(counts.counted), int(counts.errors)
        now = Totals(version=self.state.version, check_ins=self.state.check_ins, counted=counted, errors=errors)
        return recent_error(self._marks, now, self.running.noise_variance)


def publish(running: RunningTask, server: Tree, version: int, exported: bool = True) -> Published:
    """Make of a state, which must be stored, what devices check out and, where that is wanted, what is exported."""
    part = running.live.server.last.server
    return Published(
        version=version,
        etag=etag_of(running, version),
        body=running.live.server_messages.check_out.encode(message(version, part.check_out(server))),
        parameters=_frozen(part.report(server).parameters) if exported else (),
    )


def etag_of(running: RunningTask, version: int) -> bytes:
    """Name a version within the incarnation of its task."""
    return f'"{running.incarnation}-{version}"'.encode()


def _estimated(counts: Tally | None) -> float | None:
    """Estimate the error since the beginning."""
    return float(estimated_error(counts, NUMPY)) if counts and counts.counted else None


def _frozen(parameters: Tree) -> Tree:
    """Forbid to write to parameters, to the writer too: it goes on with new ones, and those stay what was stored."""

    def frozen(leaf: Any) -> Any:
        made = np.asarray(leaf)
        made.flags.writeable = False
        return made

    return trees.map(frozen, parameters)
