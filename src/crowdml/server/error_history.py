"""How the error of a running task went on: moments that the store keeps, and windows between them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crowdml.algorithms.live import LiveTask
from crowdml.algorithms.recent_error import RecentError, Totals, count_noise_variance, recent_error
from crowdml.core.ops import Tree
from crowdml.server.store import Point


class ErrorHistory:
    """Knows the stored moments of one task, and what the error was between them and now.

    Args:
        live: The task, for the noise of its counts.
        points: The curve as the store has it.
    """

    def __init__(self, live: LiveTask, points: Iterable[Point] = ()) -> None:
        """Take up the moments that have counts."""
        self._totals = live.server.totals
        self._noise_variance = count_noise_variance(live.plan)
        self._marks: list[Totals] = []
        for point in points:
            self.add(point)

    def add(self, point: Point) -> None:
        """Remember one more moment."""
        mark = _mark(point)
        if mark is not None:
            self._marks.append(mark)

    def counts(self, server: Tree) -> dict[str, int]:
        """Return what a point keeps of the counts: rows counted, and errors; nothing where none are sent."""
        if self._totals is None:
            return {}
        found = self._totals(server)
        return {"counted": int(found["counted"]), "errors": int(found["errors"])}

    def recent(self, server: Tree, version: int, check_ins: int) -> RecentError | None:
        """Return the error over the last check-ins, as the server's state has it now."""
        counts = self.counts(server)
        if not counts:
            return None
        return recent_error(self._marks, Totals(version=version, check_ins=check_ins, **counts), self._noise_variance)

    def curve(self, points: Iterable[Point]) -> list[dict[str, Any]]:
        """Return the learning curve: at each point the error of the check-ins before it."""
        marks: list[Totals] = []
        shown = []
        for point in points:
            now = _mark(point)
            found = recent_error(marks, now, self._noise_variance) if now else None
            if now:
                marks.append(now)
            shown.append(
                {
                    "version": point.version,
                    "check_ins": point.check_ins,
                    "rows": point.rows,
                    "estimated_error": point.estimated_error,
                    "recent_error": vars(found) if found else None,
                    "time": point.time,
                }
            )
        return shown


def _mark(point: Point) -> Totals | None:
    """A curve from before counts were kept has none."""
    if point.counted is None or point.errors is None:
        return None
    return Totals(version=point.version, check_ins=point.check_ins, counted=point.counted, errors=point.errors)
