"""A running task as everybody sees it: what never changes, who may speak, and the settled snapshot.

Its state belongs to the writer, which keeps it in a `MutableTask` of its own and hands that to whatever it runs.
Nothing leads from here to there.
"""

from __future__ import annotations

from typing import Any

from crowdml.algorithms.acceptance import Acceptance
from crowdml.algorithms.live import LiveTask, open_task
from crowdml.algorithms.promise_words import promise_words
from crowdml.protocol import SignedSheet
from crowdml.server.crowd import DeviceState
from crowdml.server.error_history import ErrorHistory
from crowdml.server.public_sets import read_public_set
from crowdml.server.rounds import Choose, Invited
from crowdml.server.snapshot import DeviceTotals, Snapshot
from crowdml.server.store import StoredTask


class RunningTask:
    """What the server shows of one task.

    Args:
        stored: The task as the store has it.
        choose: Orders slots for rounds.
        points: The learning curve as the store has it.
        patience_s: Seconds until a round makes up for silent devices.

    Attributes:
        devices: Every device that may speak, by slot; what it has contributed is in the snapshot.
    """

    def __init__(self, stored: StoredTask, *, choose: Choose, patience_s: float) -> None:
        """Open the sheet; there is no snapshot before the writer has published one."""
        self.id, self.name, self.file = stored.id, stored.name, stored.file
        self.signed = SignedSheet(text=stored.sheet, signature=stored.signature, key=stored.key)
        self.sheet_hash = self.signed.hash
        sheet = self.signed.open()
        self.incarnation = sheet.incarnation
        self.live: LiveTask = open_task(sheet, read_public_set(sheet, stored.public))
        algorithm = self.live.server
        self.acceptance = Acceptance.of(algorithm, self.live.plan)
        self.devices: dict[int, DeviceState] = {}
        self.errors = ErrorHistory(self.live)  # without moments of its own: the writer keeps those
        self.promise = promise_words(self.live.task, self.live.plan)
        self._invited = Invited(algorithm.rounds.per_round, patience_s, choose) if algorithm.rounds else None
        self._snapshot: Snapshot | None = None

    @property
    def snapshot(self) -> Snapshot:
        """How the task stands in the store. To show several things that belong together, ask for it once."""
        assert self._snapshot is not None  # noqa: S101  published before anybody is given the task
        return self._snapshot

    def publish(self, snapshot: Snapshot) -> None:
        """Let everybody see what is stored now. For the writer alone."""
        self._snapshot = snapshot

    def totals(self, device: DeviceState) -> DeviceTotals:
        """Return what is stored of a device's contributions."""
        return self.snapshot.devices.get(device.slot) or DeviceTotals(device=device.id)

    def in_round(self, device: DeviceState) -> bool:
        """Tell whether a device is asked for its contribution now."""
        if self._invited is None:
            return True
        now = self.snapshot
        totals = now.devices.get(device.slot)
        if totals is None or totals.last_version >= now.version:
            return False
        return self._invited.includes(device.slot, now.version, now.received, now.devices, now.crowd)

    def summary(self, snapshot: Snapshot | None = None) -> dict[str, Any]:
        """Say how the task stands, now or in a given snapshot; nothing in it is private."""
        now = snapshot or self.snapshot
        return {
            "task": self.name,
            "objective": self.live.task.objective,
            "state": now.state,
            "reason": now.reason,
            "version": now.version,
            "check_ins": now.check_ins,
            "devices": len(now.devices),
            "estimated_error": now.estimated_error,
            "recent_error": vars(now.recent_error) if now.recent_error else None,
            "rows": now.rows,
            "averaging": now.averaging,
        }

    def describe(self) -> dict[str, Any]:
        """Say everything public about the task."""
        return self.summary() | self.envelope()

    def envelope(self) -> dict[str, Any]:
        """Say what was signed; it never changes."""
        return {
            "incarnation": self.incarnation,
            "sheet_hash": self.sheet_hash,
            "promise": self.promise.promise,
            "rests_on": self.promise.rests_on,
            "signed_sheet": self.signed.to_json(),
        }
