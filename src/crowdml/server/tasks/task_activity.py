"""Activity: on which days devices took part in a task, and how stale their check-ins were. It follows from receipts.

The writer notes every batch here before it is stored, and what was noted becomes visible with the snapshot that follows
the store. A receipt has no time; so the store is told with the first batch of a day that the day has begun, and where
in the log that is. A start then reads the receipts of the last day alone; all before was written down when it began.
Days are those of UTC. A clock that goes back changes nothing: check-ins then count for the last day there was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from crowdml.core import record
from crowdml.server.store import NewDay, Receipt, StoredDay

DAY_S = 86_400
BOUNDS = (0, 1, 2, 4, 8, 16, 32, 64, 128)
"""Least staleness of each bin: none, one version, two or three, four to seven, and so on."""


@record
class Day:
    """A day on which devices took part.

    Attributes:
        day: Number of the day since 1970, UTC.
        check_ins: Check-ins that have a receipt.
        devices: Different devices that they came from.
    """

    day: int
    check_ins: int
    devices: int


@record
class Activity:
    """What was going on in a task.

    Attributes:
        over: Days before the last one, in order.
        last: The last day on which a device took part; None before the first check-in.
        staleness: Check-ins by staleness, one number for each of `BOUNDS`.
    """

    over: tuple[Day, ...]
    last: Day | None
    staleness: tuple[int, ...]

    @property
    def days(self) -> tuple[Day, ...]:
        """All days on which devices took part, in order."""
        return (*self.over, self.last) if self.last else self.over


def bin_of(staleness: int) -> int:
    """Return the bin of a staleness.

    >>> [bin_of(staleness) for staleness in (0, 1, 2, 3, 4, 127, 128, 10**6)]
    [0, 1, 2, 2, 3, 7, 8, 8]
    """
    return min(max(staleness, 0).bit_length(), len(BOUNDS) - 1)


class ActivityLog:
    """Keeps the activity of one task; only its writer has one.

    Args:
        days: Days as the store has them.
        log: Slot, version and started of each receipt since the last of those days began, or of all.
        in_sums: Whether check-ins come in secure sums, each of which is one version.
    """

    def __init__(self, days: Sequence[StoredDay], log: Iterable[tuple[int, int, int]], in_sums: bool) -> None:
        """Take up the count where the store has it."""
        self._in_sums = in_sums
        self._over = tuple(
            Day(day=day.day, check_ins=day.check_ins or 0, devices=day.devices or 0) for day in days[:-1]
        )
        self._day = days[-1].day if days else None
        self._staleness = json.loads(days[-1].staleness) if days else [0] * len(BOUNDS)
        self._slots, self._check_ins = set[int](), 0
        self._noted: tuple[int, int, Sequence[tuple[int, int, int]]] | None = None
        self._count(days[-1].version if days else 0, log)
        if self._day is None:
            # Receipts from before days were kept: how stale they were is known, when they came is not.
            self._slots, self._check_ins = set(), 0

    def note(self, receipts: Sequence[Receipt], version: int, time_s: float) -> NewDay | None:
        """Note a batch that is about to be stored; return the day that begins with it, if one does.

        Args:
            receipts: Those of the batch, in order.
            version: Version before it.
            time_s: Seconds since 1970.
        """
        today = int(time_s // DAY_S)
        self._noted = today, version, [(receipt.slot, receipt.version, receipt.started) for receipt in receipts]
        if not receipts or (self._day is not None and today <= self._day):
            return None
        over = None if self._day is None else (self._day, self._check_ins, len(self._slots))
        return NewDay(day=today, version=version, staleness=json.dumps(self._staleness), over=over)

    def settle(self) -> Activity:
        """Count what was noted, which is stored now; return the activity."""
        if self._noted is not None:
            today, version, log = self._noted
            self._noted = None
            if log and (self._day is None or today > self._day):
                self._over = self._settled().days
                self._day, self._slots, self._check_ins = today, set(), 0
            self._count(version, log)
        return self._settled()

    def forget(self) -> None:
        """Drop what was noted and then not stored."""
        self._noted = None

    def _settled(self) -> Activity:
        last = None
        if self._day is not None:
            last = Day(day=self._day, check_ins=self._check_ins, devices=len(self._slots))
        return Activity(over=self._over, last=last, staleness=tuple(self._staleness))

    def _count(self, version: int, log: Iterable[tuple[int, int, int]]) -> None:
        """Count receipts. How stale one was is how far the version before it had gone on since it started."""
        for slot, after, started in log:
            before = after - 1 if self._in_sums else version
            self._staleness[bin_of(before - started)] += 1
            self._slots.add(slot)
            self._check_ins += 1
            version = after
