"""Acceptance: what an honest device could have sent. Whatever lies beyond is refused before it touches a task.

In sound mode `privacy.limits` says what is possible. Without a promise nothing bounds an honest device, so numbers only
have to be so small that squares cannot overflow, and rows so few that they are counted exactly. Counts then carry no
noise, so they must agree with each other.
"""

from __future__ import annotations

from typing import Any

from crowdml.algorithms.contract import Algorithm
from crowdml.core import record, trees
from crowdml.core.errors import MalformedMessage
from crowdml.core.ops import Tree
from crowdml.privacy import Plan, acceptance

LARGEST_FLOAT = 1e15
LARGEST_ROWS = 1 << 24
"""Rows that a device may claim where the task sets no limit: float32 counts them exactly."""


@record
class Acceptance:
    """Checks the values of check-ins of one task.

    Attributes:
        limits: The limits of a sound task; None where nothing is promised.
        rows: Rows behind one check-in at most.
        alike: Whether every device counts 1, however many rows it has.
    """

    limits: Any
    rows: int
    alike: bool

    @staticmethod
    def of(algorithm: Algorithm, plan: Plan) -> Acceptance:
        """Take the limits from the plan."""
        limits = acceptance(plan) if plan.sound else None
        rounds = algorithm.rounds
        rows = (rounds.max_rows or LARGEST_ROWS) if rounds else algorithm.buffer
        return Acceptance(limits=limits, rows=rows, alike=not algorithm.by_size)

    def require(self, content: Tree) -> None:
        """Raise `MalformedMessage` for what no honest device sends."""
        problem = self.limits.problem(content) if self.limits else self._problem(content)
        if problem is not None:
            raise MalformedMessage(problem)

    def _problem(self, content: Tree) -> str | None:
        for path, leaf in trees.paths(content):
            if leaf.dtype.kind == "f":
                if max(-leaf.min(), leaf.max()) > LARGEST_FLOAT:
                    return f"{path}: a number beyond {LARGEST_FLOAT:g}"
            elif path == "weight" and self.alike and leaf != 1:
                return f"weight: {leaf}, where every device counts 1"
            elif leaf.min() < 0 or leaf.max() > self.rows:
                return f"{path}: a count beyond 0 to {self.rows}"
        counts = content.get("counts") if isinstance(content, dict) else None
        return None if counts is None else _relations(counts, content.get("samples"))


def _relations(counts: Tree, samples: Any) -> str | None:
    """Say how exact counts contradict each other; a device counts errors and labels of the very rows it has."""
    rows, counted, errors = int(counts["rows"]), int(counts["counted"]), int(counts["errors"])
    labels = int(counts["labels"].sum(dtype="int64"))
    if errors > counted:
        return f"errors: {errors} among {counted} rows that were counted"
    if max(counted, int(samples or 0)) > rows:
        return f"rows: {rows}, which are fewer than were counted or trained on"
    if labels != rows:
        return f"labels: {labels} of {rows} rows"
    return None
