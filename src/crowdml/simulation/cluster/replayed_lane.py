"""A lane whose worker may be lost: another one begins again, or goes on from the last state that is known here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from crowdml.core import trees
from crowdml.simulation.engine.run_records import Carry, Events
from crowdml.simulation.workers import pool
from crowdml.simulation.workers.crew import Opening, Worker, WorkerLost

REMEMBERED = 256 << 20
"""Bytes of chunks that are remembered for a successor; beyond that the state is fetched, and they are forgotten."""

MOST_LOSSES = 3
"""Workers that a lane may lose in succession, without a chunk that was done in between."""

Found = TypeVar("Found")


class FarWorker(Worker, Protocol):
    """A worker that is handed rows by what stands for them in an object store."""

    def give_rows(self, words: dict[str, Any], files: Sequence[Any]) -> None:
        """Hand over rows."""


class Successors(Protocol):
    """Where another worker comes from."""

    def lease(self, count: int) -> Sequence[FarWorker]:
        """Return so many workers that nobody else uses."""


class ReplayedLane:
    """A lane in a worker of a cluster.

    Args:
        crew: Where successors come from.
        worker: The first worker.
        rows: The rows, as `RayCrew.lay` returned them.
        opening: What the lane begins with.
    """

    def __init__(
        self, crew: Successors, worker: FarWorker, rows: tuple[dict[str, Any], list[Any]], opening: Opening
    ) -> None:
        self.crew, self.worker, self.rows, self.opening = crew, worker, rows, opening
        self.compile_seconds = 0.0
        self.lost = 0
        self._state: list[Any] | None = None
        self._chunks: list[tuple[Any, int]] = []
        self._bytes = 0
        self._survive(lambda: None, first=True)

    def run(self, events: Events, counts: Any, phase: int) -> tuple[dict[str, Any], bool]:
        """Run a chunk; return the measurements after it, and whether every replica has met `error-below`."""
        answer = self._survive(lambda: self._run((events, counts), phase))
        self.lost = 0
        self._chunks.append(((events, counts), phase))
        self._bytes += trees.size((events, counts)) * 4
        if self._bytes > REMEMBERED:
            self.leaves()
        return answer.tree, answer.words["stopped"]

    def leaves(self) -> list[Any]:
        """Return everything that is carried, for a checkpoint; a successor would go on from there."""
        found = list(self._survive(lambda: self.worker.ask({"do": "leaves"})).tree)
        self._keep(found)
        return found

    def resume(self, leaves: Sequence[Any]) -> None:
        """Go on from what `leaves` gave."""
        self._keep(list(leaves))
        self._survive(lambda: self.worker.ask({"do": "resume"}, tuple(leaves)))

    def end(self) -> Carry:
        """Return the last state."""
        answer = self._survive(lambda: self.worker.ask({"do": "end"}))
        ended: Carry = trees.fill(self.opening.template, iter(answer.tree))
        return ended

    def close(self, *, interrupted: bool) -> None:
        """Let the worker work for others; one that was interrupted at its work is ended."""
        self.worker.leased = False
        if interrupted:
            self.worker.abandon()

    def _keep(self, leaves: list[Any]) -> None:
        self._state, self._chunks, self._bytes = leaves, [], 0

    def _run(self, chunk: Any, phase: int) -> Any:
        return self.worker.ask({"do": "run", "phase": phase}, chunk)

    def _survive(self, ask: Callable[[], Found], first: bool = False) -> Found:
        """Ask; where the worker is lost, bring another one to where it was, and ask that."""
        begin = first
        while True:
            try:
                if begin:
                    self._begin()
                return ask()
            except WorkerLost:
                self.lost += 1
                self.worker.leased = False
                if self.lost > MOST_LOSSES:
                    raise
                self.worker, begin = self.crew.lease(1)[0], True

    def _begin(self) -> None:
        """Open the lane in the worker, and do again what was done."""
        words, files = self.rows
        self.worker.give_rows(words, files)
        opening = self.opening
        request = {"do": "open", "shape": vars(opening.shape), "member": 0, **pool.readable(opening.task)}
        answer = self.worker.ask(request, (opening.replicas, opening.events))
        self.compile_seconds += answer.words["compile_seconds"]
        if self._state is not None:
            self.worker.ask({"do": "resume"}, tuple(self._state))
        for chunk, phase in self._chunks:
            self._run(chunk, phase)
