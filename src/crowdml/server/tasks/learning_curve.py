"""The learning curve of a task as it is shown: at each point the error of the check-ins before it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crowdml.core import record
from crowdml.server.store import Point
from crowdml.task.recent_error import RecentError, Totals, recent_error


@record
class CurvePoint:
    """A point of the curve.

    Attributes:
        stored: The point as the store has it.
        recent_error: Error of the check-ins before it, with its band; None where none is counted.
    """

    stored: Point
    recent_error: RecentError | None

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as the route writes them."""
        return {
            "version": self.stored.version,
            "check_ins": self.stored.check_ins,
            "rows": self.stored.rows,
            "estimated_error": self.stored.estimated_error,
            "recent_error": vars(self.recent_error) if self.recent_error else None,
            "time": self.stored.time,
        }


class LearningCurve:
    """Points in order; later ones are added at the end.

    Args:
        noise_variance: Of the error count of one check-in.

    Attributes:
        points: The points so far.
    """

    def __init__(self, noise_variance: float) -> None:
        """Begin without points."""
        self.points: list[CurvePoint] = []
        self._noise_variance = noise_variance
        self._marks: list[Totals] = []

    @property
    def check_ins(self) -> int:
        """Check-ins at the last point; -1 before the first."""
        return self.points[-1].stored.check_ins if self.points else -1

    def extend(self, stored: Iterable[Point]) -> None:
        """Add points; those that are there already are left out."""
        for point in stored:
            if point.check_ins <= self.check_ins:
                continue
            now = mark_of(point)
            found = recent_error(self._marks, now, self._noise_variance) if now else None
            if now:
                self._marks.append(now)
            self.points.append(CurvePoint(stored=point, recent_error=found))


def mark_of(point: Point) -> Totals | None:
    """Take the counts of a point; one of a task that counts no errors has none."""
    if point.counted is None or point.errors is None:
        return None
    return Totals(version=point.version, check_ins=point.check_ins, counted=point.counted, errors=point.errors)
