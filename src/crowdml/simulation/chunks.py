"""Chunks: the timelines of all lanes, cut at the points of the curve into arrays of one fixed shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import record
from crowdml.simulation.lane import Events
from crowdml.simulation.timeline import Timeline


@record
class Chunks:
    """How a run is cut.

    Attributes:
        timelines: One per lane.
        ends: Check-ins done at the end of each chunk, shape (chunks, lanes).
        length: Check-ins in the longest chunk.
    """

    timelines: tuple[Timeline, ...]
    ends: npt.NDArray[np.int64]
    length: int

    def __len__(self) -> int:
        """Count the chunks."""
        return len(self.ends)

    @property
    def ring(self) -> int:
        """Past versions that must be kept: one more than the oldest that is read; 0 when all check-ins are fresh."""
        oldest = max(int(timeline.staleness.max(initial=0)) for timeline in self.timelines)
        return oldest + 1 if oldest else 0

    @property
    def width(self) -> int:
        """Rows in the largest batch."""
        return int(max(timeline.rows.shape[1] for timeline in self.timelines))

    @property
    def full(self) -> bool:
        """Whether all batches have the same number of rows."""
        return all(timeline.full and timeline.rows.shape[1] == self.width for timeline in self.timelines)

    @property
    def per_commit(self) -> int:
        """Check-ins per commit where that is a fixed number, otherwise 0."""
        found = {fixed_count(timeline) for timeline in self.timelines}
        return found.pop() if len(found) == 1 else 0

    @property
    def choosing(self) -> bool:
        """Whether owners have chosen their own ε."""
        return any(bool((timeline.chosen >= 0).any()) for timeline in self.timelines)

    @property
    def attacked(self) -> bool:
        """Whether some devices lie."""
        return any(bool(timeline.lies.any()) for timeline in self.timelines)

    @property
    def even(self) -> bool:
        """Whether all lanes have the same number of check-ins."""
        return len({len(timeline) for timeline in self.timelines}) == 1

    def events(self, number: int) -> tuple[Events, npt.NDArray[np.int32]]:
        """Return one chunk, padded to the common length, and how many check-ins of it are real in each lane."""
        begins = self.ends[number - 1] if number else np.zeros_like(self.ends[0])
        spans = [slice(int(begin), int(end)) for begin, end in zip(begins, self.ends[number], strict=True)]
        versions = [np.cumsum(timeline.commits) - timeline.commits for timeline in self.timelines]

        def cut(columns: Sequence[Any]) -> npt.NDArray[np.int32]:
            return np.stack([_pad(column[span], self.length) for column, span in zip(columns, spans, strict=True)])

        events = Events(
            number=cut([np.arange(1, len(timeline) + 1) for timeline in self.timelines]),
            device=cut([timeline.device for timeline in self.timelines]),
            rows=cut([_wide(timeline.rows, self.width) for timeline in self.timelines]),
            counts=() if self.full else cut([timeline.counts for timeline in self.timelines]),
            staleness=cut([timeline.staleness for timeline in self.timelines]),
            version=cut(versions),
            commits=() if self.per_commit else cut([timeline.commits for timeline in self.timelines]),
            chosen=cut([timeline.chosen for timeline in self.timelines]) if self.choosing else (),
            lies=cut([timeline.lies for timeline in self.timelines]) if self.attacked else (),
        )
        return events, (self.ends[number] - begins).astype(np.int32)

    def samples(self, number: int) -> float:
        """Return the rows used up to the end of a chunk, averaged over lanes."""
        used = [
            int(timeline.samples[end - 1]) if end else 0
            for timeline, end in zip(self.timelines, self.ends[number], strict=True)
        ]
        return float(np.mean(used))

    def times(self, number: int) -> npt.NDArray[np.float64]:
        """Return when the last check-in of a chunk arrived, in each lane."""
        return np.array(
            [
                float(timeline.times[end - 1]) if end else 0.0
                for timeline, end in zip(self.timelines, self.ends[number], strict=True)
            ]
        )


def cut_chunks(timelines: Sequence[Timeline], points: int, opens: bool = False) -> Chunks:
    """Cut timelines into `points` chunks of equal length, up to one check-in, or up to one commit.

    Args:
        timelines: One per lane.
        points: Chunks wanted.
        opens: Whether the first round is a chunk by itself.
    """
    totals = np.array([len(timeline) for timeline in timelines])
    counts = {fixed_count(timeline) for timeline in timelines}
    step = max(1, counts.pop()) if len(counts) == 1 else 1
    points = min(points, int(totals.max()) // step)
    ends = np.round(np.outer(np.arange(1, points + 1) / points, totals // step)).astype(np.int64) * step
    if opens:
        first = np.array([np.flatnonzero(timeline.commits)[0] + 1 for timeline in timelines])
        ends = np.vstack([first, np.maximum(ends, first)])
    length = int(np.diff(ends, axis=0, prepend=0).max())
    return Chunks(timelines=tuple(timelines), ends=ends, length=length)


def fixed_count(timeline: Timeline) -> int:
    """Return the number of check-ins before every commit, or 0 where it varies."""
    at = np.flatnonzero(timeline.commits)
    count = int(at[0]) + 1 if len(at) else 0
    return count if count and np.array_equal(at, np.arange(count - 1, len(timeline), count)) else 0


def _wide(rows: Any, width: int) -> Any:
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])))


def _pad(column: Any, length: int) -> npt.NDArray[np.int32]:
    padded = np.zeros((length, *column.shape[1:]), np.int32)
    padded[: len(column)] = column
    return padded
