"""Chunks: the timelines of all replicas, cut at the points of the curve into arrays of one fixed shape."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import record
from crowdml.simulation.engine.run_records import Events
from crowdml.simulation.shared_rows import roomy
from crowdml.simulation.timeline.timeline import Timeline


@record
class Chunks:
    """How a run is cut.

    Attributes:
        timelines: One per replica.
        ends: Check-ins done at the end of each chunk, shape (chunks, replicas).
        length: Check-ins in the longest chunk, or somewhat more.
        earlier: How many chunks come before those of the last phase: one for each earlier phase.
        beside: Timelines of replicas that are run elsewhere: shapes are those of all, so that parts fit together.
    """

    timelines: tuple[Timeline, ...]
    ends: npt.NDArray[np.int64]
    length: int
    earlier: int = 0
    beside: tuple[Timeline, ...] = ()

    def __len__(self) -> int:
        """Count the chunks."""
        return len(self.ends)

    @property
    def _all(self) -> tuple[Timeline, ...]:
        return tuple({id(line): line for line in (*self.timelines, *self.beside)}.values())

    def part(self, places: Sequence[int]) -> Chunks:
        """Return the chunks of some replicas, in the shapes of all."""
        return replace(
            self,
            timelines=tuple(self.timelines[place] for place in places),
            ends=self.ends[:, list(places)],
            beside=self._all,
        )

    @functools.cached_property
    def ring(self) -> int:
        """Past versions that are kept: one more than the oldest that is read, or some more; 0 when all are fresh."""
        oldest = max(int(timeline.staleness.max(initial=0)) for timeline in self._all)
        return roomy(oldest + 1) if oldest else 0

    @functools.cached_property
    def width(self) -> int:
        """Rows in the largest batch."""
        return int(max(timeline.rows.shape[1] for timeline in self._all))

    @functools.cached_property
    def full(self) -> bool:
        """Whether all batches have the same number of rows."""
        return all(timeline.full and timeline.rows.shape[1] == self.width for timeline in self._all)

    @functools.cached_property
    def per_commit(self) -> int:
        """Check-ins per commit where that is a fixed number, otherwise 0."""
        found = {fixed_count(timeline) for timeline in self._all}
        return found.pop() if len(found) == 1 else 0

    @functools.cached_property
    def choosing(self) -> bool:
        """Whether owners have chosen an ε of their own."""
        return any(bool((timeline.chosen >= 0).any()) for timeline in self._all)

    @functools.cached_property
    def attacked(self) -> bool:
        """Whether some devices are Byzantine."""
        return any(bool(timeline.lies.any()) for timeline in self._all)

    @functools.cached_property
    def even(self) -> bool:
        """Whether all replicas have the same number of check-ins."""
        return len({len(timeline) for timeline in self._all}) == 1

    @functools.cached_property
    def _versions(self) -> list[Any]:
        """Version before every check-in of each replica; replicas of the same trial share it."""
        found = {
            id(timeline): np.cumsum(timeline.commits, dtype=np.int32) - timeline.commits for timeline in self.timelines
        }
        return [found[id(timeline)] for timeline in self.timelines]

    def events(self, number: int) -> tuple[Events, npt.NDArray[np.int32]]:
        """Return one chunk, padded to the common length, and how many check-ins of it are real in each replica."""
        begins = self.ends[number - 1] if number else np.zeros_like(self.ends[0])
        spans = [slice(int(begin), int(end)) for begin, end in zip(begins, self.ends[number], strict=True)]

        def padded(parts: Iterable[Any]) -> npt.NDArray[np.int32]:
            return np.stack([_pad(part, self.length) for part in parts])

        def cut(columns: Iterable[Any]) -> npt.NDArray[np.int32]:
            return padded(column[span] for column, span in zip(columns, spans, strict=True))

        events = Events(
            number=padded(np.arange(span.start + 1, span.stop + 1) for span in spans),
            device=cut([timeline.device for timeline in self.timelines]),
            rows=padded(_wide(line.rows[span], self.width) for line, span in zip(self.timelines, spans, strict=True)),
            counts=() if self.full else cut([timeline.counts for timeline in self.timelines]),
            staleness=cut([timeline.staleness for timeline in self.timelines]),
            version=cut(self._versions),
            commits=() if self.per_commit else cut([timeline.commits for timeline in self.timelines]),
            chosen=cut([timeline.chosen for timeline in self.timelines]) if self.choosing else (),
            lies=cut([timeline.lies for timeline in self.timelines]) if self.attacked else (),
        )
        return events, (self.ends[number] - begins).astype(np.int32)

    def phase(self, number: int) -> int:
        """Return the number of the phase that a chunk belongs to."""
        return min(number, self.earlier)

    def samples(self, number: int, replicas: slice = slice(None)) -> float:
        """Return the rows used up to the end of a chunk, averaged over some replicas."""
        used = [
            int(timeline.samples[end - 1]) if end else 0
            for timeline, end in zip(self.timelines[replicas], self.ends[number][replicas], strict=True)
        ]
        return float(np.mean(used))

    def times(self, number: int) -> npt.NDArray[np.float64]:
        """Return when the last check-in of a chunk arrived, in each replica."""
        return np.array(
            [
                float(timeline.times[end - 1]) if end else 0.0
                for timeline, end in zip(self.timelines, self.ends[number], strict=True)
            ]
        )


def cut_chunks(timelines: Sequence[Timeline], points: int, earlier: Sequence[int] = ()) -> Chunks:
    """Cut timelines into `points` chunks of equal length, up to one check-in, or up to one commit.

    Args:
        timelines: One per replica.
        points: Chunks wanted.
        earlier: Versions of each phase before the last; all that a phase makes is a chunk by itself.
    """
    totals = np.array([len(timeline) for timeline in timelines])
    counts = {fixed_count(timeline) for timeline in {id(each): each for each in timelines}.values()}
    step = max(1, counts.pop()) if len(counts) == 1 else 1
    points = min(points, int(totals.max()) // step)
    ends = np.round(np.outer(np.arange(1, points + 1) / points, totals // step)).astype(np.int64) * step
    if earlier:
        before = np.array([_after_commits(timeline, np.cumsum(earlier)) for timeline in timelines]).T
        ends = np.vstack([before, np.maximum(ends, before[-1])])
    length = int(np.diff(ends, axis=0, prepend=0).max())
    return Chunks(timelines=tuple(timelines), ends=ends, length=roomy(length), earlier=len(earlier))


def _after_commits(timeline: Timeline, versions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the check-ins done when so many versions are made; all of them where there are not as many."""
    commits = np.flatnonzero(timeline.commits)
    made = np.concatenate([[0], commits + 1, np.full(max(0, int(versions[-1]) - len(commits)), len(timeline))])
    return made[versions]


def fixed_count(timeline: Timeline) -> int:
    """Return the number of check-ins before every commit, or 0 where it varies."""
    if len(timeline) and timeline.commits.all():
        return 1
    at = np.flatnonzero(timeline.commits)
    count = int(at[0]) + 1 if len(at) else 0
    return count if count and np.array_equal(at, np.arange(count - 1, len(timeline), count)) else 0


def _wide(rows: Any, width: int) -> Any:
    return rows if rows.shape[1] == width else np.pad(rows, ((0, 0), (0, width - rows.shape[1])))


def _pad(column: Any, length: int) -> npt.NDArray[np.int32]:
    padded = np.zeros((length, *column.shape[1:]), np.int32)
    padded[: len(column)] = column
    return padded
