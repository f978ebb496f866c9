"""How a task stands: as its writer changes it, and as the settled snapshot that every read route shows.

The writer makes a new snapshot after each transaction, and nothing that reads has any other way to a task's state.
While a batch is being stored the writer is ahead of it. Nobody may see that: if the process ends there, it has never
happened.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from crowdml.core import Tally, record
from crowdml.core.ops import Tree
from crowdml.server.store import StoredDevice
from crowdml.server.tasks.task_activity import Activity
from crowdml.task.recent_error import RecentError


@dataclasses.dataclass(slots=True, kw_only=True)
class DeviceTotals:
    """What one device has contributed. Quick to make, as one is for every check-in, so not frozen; nobody changes it.

    Attributes:
        device: Name given at enrolment.
        check_ins: Receipts so far.
        last_version: Version of the last round it contributed to, or -1.
    """

    device: str
    check_ins: int = 0
    last_version: int = -1

    @staticmethod
    def of(stored: StoredDevice) -> DeviceTotals:
        """Take them from the store."""
        return DeviceTotals(device=stored.id, check_ins=stored.check_ins, last_version=stored.last_version)


@record
class Published:
    """A version as devices check it out and as it is exported.

    Attributes:
        version: The version.
        etag: Names it within the incarnation.
        body: The message, encoded.
        parameters: The model; its arrays cannot be written to.
    """

    version: int
    etag: bytes
    body: bytes
    parameters: Tree


@record
class Snapshot:
    """How a task stands in the store: everything that is shown to whoever asks.

    Attributes:
        version: Commits so far.
        check_ins: Check-ins folded in so far.
        received: Check-ins since the last commit.
        state: draft, open, paused or stopped.
        reason: Why it stopped.
        rows: Rows that devices said they learnt from; 0 where they do not say.
        estimated_error: Estimated from private counts, if there are any.
        recent_error: Error of the last check-ins with its band, estimated from private counts, if there are any.
        averaging: How the last version was averaged, where there is something to show.
        published: The version as devices get it.
        devices: Totals of every device that may speak, by slot.
        crowd: A number that changes whenever a device comes or goes.
        last_point: Version of the last point of the learning curve.
        counts: What devices have counted so far, with their noise; None where they count nothing.
        activity: Days on which devices took part, and how stale their check-ins were.
    """

    version: int
    check_ins: int
    received: int
    state: str
    reason: str | None
    rows: int
    estimated_error: float | None
    recent_error: RecentError | None
    averaging: dict[str, Any] | None
    published: Published
    devices: Mapping[int, DeviceTotals]
    crowd: int
    last_point: int
    counts: Tally | None
    activity: Activity


@dataclasses.dataclass(kw_only=True)
class TaskState:
    """What changes while a task runs. Only its writer has one.

    Attributes:
        server: The algorithm's server state.
        rows: What the server keeps for each device, by slot.
        devices: What each device that may speak has contributed, by slot.
        version: Commits so far.
        check_ins: Check-ins folded in so far.
        received: Check-ins since the last commit.
        state: draft, open, paused or stopped.
        reason: Why it stopped.
        begun: Version at which the server was started: who was invited to it before is not known.
    """

    server: Tree
    rows: dict[int, Tree]
    devices: dict[int, DeviceTotals]
    version: int
    check_ins: int
    received: int
    state: str
    reason: str | None
    begun: int = 0

    def copy(self) -> TaskState:
        """Return one that stays as it is while this one changes; trees are never changed in place."""
        return dataclasses.replace(self, rows=dict(self.rows), devices=dict(self.devices))
