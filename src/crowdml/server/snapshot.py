"""The settled snapshot: how a task stands in the store, as one record that every read route shows.

The writer makes a new one after each transaction, and nothing that reads has any other way to a task's state. While a
batch is being stored the writer is ahead of it. Nobody may see that: if the process ends there, it has never happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crowdml.algorithms.recent_error import RecentError
from crowdml.core import record
from crowdml.core.ops import Tree
from crowdml.server.store import StoredDevice


@record
class DeviceTotals:
    """What one device has contributed.

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
    """How a task stands in the store: everything that is told to whoever asks.

    Attributes:
        version: Commits so far.
        check_ins: Check-ins folded in so far.
        received: Check-ins since the last commit.
        state: draft, open, paused or stopped.
        reason: Why it stopped.
        rows: Rows that devices said they learnt from; 0 where they do not say.
        estimated_error: Estimated from private counts, if there are any.
        recent_error: Error of the last check-ins with its band, estimated from private counts, if there are any.
        averaging: How the last version was averaged, where there is something to tell.
        published: The version as devices get it.
        devices: Totals of every device that may speak, by slot.
        crowd: A number that changes whenever a device comes or goes.
        last_point: Version of the last point of the learning curve.
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
