"""Statistics of a task that anybody may see: errors, how targets are spread, who takes part when, how stale, how much.

Private by construction: all of it follows from what was released and charged already (counts with the devices' noise),
from receipts, and from the operator's own public rows. Nothing here asks a device for anything more. One function turns
a settled snapshot into a record, which pages draw and `GET /v1/tasks/{task}/statistics` writes.
"""

from __future__ import annotations

import datetime
import itertools
from typing import Any

from crowdml.core import record
from crowdml.server.store import StoredError
from crowdml.server.tasks.figures.task_activity import BOUNDS, DAY_S, Activity
from crowdml.server.tasks.running_task import RunningTask
from crowdml.server.tasks.snapshot import Snapshot
from crowdml.task.averaging_terms import public_rows_needed
from crowdml.task.recent_error import RecentError
from crowdml.task.target_shares import TargetShare, spread_noise_variance, target_shares

DAYS_SHOWN = 60
"""The last so many days on which devices took part are shown."""


@record
class Validated:
    """Errors on the operator's public rows.

    Attributes:
        rows: How many rows.
        learnt_from: Whether the server learns from these rows as well, which flatters the error.
        errors: By version.
    """

    rows: int
    learnt_from: bool
    errors: tuple[StoredError, ...]


@record
class Statistics:
    """What may be shown of a task beyond its summary.

    Attributes:
        version: Version that this is about.
        check_ins: Check-ins so far.
        devices: Devices that may speak.
        rows: Rows that devices said they looked at; 0 where they do not say.
        recent_error: Error of the recent check-ins with its band; None where none is counted.
        targets: Share of each label or bin with its band; empty where none is counted.
        activity: Days on which devices took part, and staleness.
        validated: Errors on public rows; None where the task has none.
        noisy: Whether devices add noise to what they count.
    """

    version: int
    check_ins: int
    devices: int
    rows: int
    recent_error: RecentError | None
    targets: tuple[TargetShare, ...]
    activity: Activity
    validated: Validated | None
    noisy: bool

    def to_json(self, task: str) -> dict[str, Any]:
        """Return plain values, as the route writes them."""
        return {
            "task": task,
            "version": self.version,
            "check_ins": self.check_ins,
            "devices": self.devices,
            "rows": self.rows,
            "recent_error": vars(self.recent_error) if self.recent_error else None,
            "targets": [vars(share) for share in self.targets],
            "participation": [
                {"day": day_name(day.day), "check_ins": day.check_ins, "devices": day.devices}
                for day in self.activity.days[-DAYS_SHOWN:]
            ],
            "staleness": [
                {"from": low, "to": high, "check_ins": count}
                for (low, high), count in zip(staleness_bins(), self.activity.staleness, strict=True)
            ],
            "validation": _validation(self.validated) if self.validated else None,
        }


def statistics_of(running: RunningTask, now: Snapshot) -> Statistics:
    """Gather what may be shown of a task as it stands in a snapshot."""
    task, targets = running.live.task, list[TargetShare]()
    noise_variance = spread_noise_variance(running.live.plan)
    if now.counts is not None:
        targets = target_shares(task.target, now.counts, now.check_ins, noise_variance)
    validated = None
    if running.validation_rows:
        # Measured beside the writer: a version that the snapshot does not have yet is left out.
        errors = tuple(found for found in running.validated if found.version <= now.version)
        learnt = public_rows_needed(task) > 0
        validated = Validated(rows=running.validation_rows, learnt_from=learnt, errors=errors)
    return Statistics(
        version=now.version,
        check_ins=now.check_ins,
        devices=len(now.devices),
        rows=now.rows,
        recent_error=now.recent_error,
        targets=tuple(targets),
        activity=now.activity,
        validated=validated,
        noisy=noise_variance > 0,
    )


def day_name(day: int) -> str:
    """Write a day as ISO 8601 has it.

    >>> day_name(20_000)
    '2024-10-04'
    """
    return datetime.datetime.fromtimestamp(day * DAY_S, datetime.UTC).date().isoformat()


def staleness_bins() -> list[tuple[int, int | None]]:
    """Return least and largest staleness of each bin; the last has no largest.

    >>> staleness_bins()[:4], staleness_bins()[-1]
    ([(0, 0), (1, 1), (2, 3), (4, 7)], (128, None))
    """
    return [(low, after - 1) for low, after in itertools.pairwise(BOUNDS)] + [(BOUNDS[-1], None)]


def _validation(found: Validated) -> dict[str, Any]:
    return {
        "rows": found.rows,
        "learnt_from": found.learnt_from,
        "errors": [vars(error) for error in found.errors],
    }
