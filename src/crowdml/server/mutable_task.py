"""A task as its writer has it: the state that changes, and how a snapshot is made of it once it is stored."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from crowdml.algorithms.counting import estimated_error
from crowdml.core import NUMPY, record, trees
from crowdml.core.ops import Tree
from crowdml.protocol import message
from crowdml.server.crowd import DeviceState
from crowdml.server.error_history import ErrorHistory
from crowdml.server.folding import TaskState
from crowdml.server.running import RunningTask
from crowdml.server.snapshot import DeviceTotals, Published, Snapshot
from crowdml.server.store import Applied, Point, Receipt, StoredDevice, StoredTask


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
    """

    def __init__(
        self,
        running: RunningTask,
        stored: StoredTask,
        rows: Mapping[int, bytes],
        devices: Iterable[StoredDevice],
        points: Iterable[Point] = (),
    ) -> None:
        """Take up the task exactly where the store has it."""
        self.running, self.live = running, running.live
        self._keeps_rows = self.live.row.size_bytes > len(self.live.row.header)
        self._last_point, self._crowd = stored.version, 0
        self._errors = ErrorHistory(self.live, points)
        self.state = TaskState(
            server=self.live.state.decode(stored.server_state),
            rows={slot: self.live.row.decode(raw)["row"] for slot, raw in rows.items()},
            devices={own.slot: DeviceTotals.of(own) for own in devices},
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
        self.running.publish(
            Snapshot(
                version=state.version,
                check_ins=state.check_ins,
                received=state.received,
                state=state.state,
                reason=state.reason,
                rows=self._rows,
                estimated_error=self._estimated_error,
                recent_error=self._errors.recent(state.server, state.version, state.check_ins),
                averaging=self._averaging(),
                published=self._published,
                devices=MappingProxyType(dict(state.devices)),
                crowd=self._crowd,
                last_point=self._last_point,
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
        )

    def add_device(self, device: DeviceState, totals: DeviceTotals) -> None:
        """Welcome a device that is stored."""
        self.running.devices[device.slot] = device
        self.state.devices[device.slot] = totals
        self._crowd += 1
        self.settle()

    def remove_device(self, device: DeviceState) -> None:
        """Forget a device that was revoked or has withdrawn, and is stored so."""
        device.revoked = True
        self.running.devices.pop(device.slot, None)
        self.state.devices.pop(device.slot, None)
        self._crowd += 1
        self.settle()

    def _point(self) -> Point | None:
        """Return a point of the curve, now and then: after every version at first, later after each further 1 %."""
        state = self.state
        if state.version <= self._last_point * 1.01:
            return None
        self._last_point = state.version
        point = Point(
            version=state.version,
            check_ins=state.check_ins,
            rows=self._rows,
            estimated_error=self._estimated_error,
            time=time.time(),
            **self._errors.counts(state.server),
        )
        self._errors.add(point)
        return point

    def _publish(self) -> Published:
        server, version = self.state.server, self.state.version
        body = self.live.server_messages.check_out.encode(message(version, self.live.server.check_out(server)))
        return Published(
            version=version,
            etag=f'"{self.running.incarnation}-{version}"'.encode(),
            body=body,
            parameters=_frozen(self.live.server.parameters(server)),
        )

    def _averaging(self) -> dict[str, Any] | None:
        """Say how the last version was averaged: weights in the order of its check-ins, as a mean over layers."""
        shown = self.live.server.shown
        if shown is None:
            return None
        now = shown(self.state.server)
        weights = now["weights"].mean(axis=0)
        return {
            "used": int(now["accepted"]),
            "weights": [round(float(weight), 4) for weight in weights],
            "largest": round(float(weights.max()), 4),
        }

    def _encode_row(self, slot: int) -> bytes:
        return self.live.row.encode({"row": self.state.rows[slot]})

    @property
    def _rows(self) -> int:
        totals = self.live.server.totals
        return int(totals(self.state.server)["rows"]) if totals else 0

    @property
    def _estimated_error(self) -> float | None:
        totals = self.live.server.totals
        if totals is None:
            return None
        counts = totals(self.state.server)
        return float(estimated_error(counts, NUMPY)) if counts["counted"] else None


def _frozen(parameters: Tree) -> Tree:
    """Copy parameters into arrays that nobody can write to: the writer goes on with its own."""

    def copy(leaf: Any) -> Any:
        made = np.array(leaf)
        made.flags.writeable = False
        return made

    return trees.map(copy, parameters)
