"""Timelines made by worker processes: trial after trial, each by whoever is free.

A trial's timeline depends on the seed and its number alone, so it is the same whoever makes it. Workers take a while
to start; until the last of them is ready, this process makes timelines too.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from crowdml.core import record
from crowdml.simulation.timeline.orders import Ints
from crowdml.simulation.timeline.timeline import Timeline
from crowdml.simulation.timeline.trial_crowd import Dealable
from crowdml.simulation.workers import pool
from crowdml.simulation.workers.crew import Worker, WorkerLost


@record
class TrainingRows:
    """What a worker knows of training rows.

    Attributes:
        train_bins: Class of each, or the bin of its number.
        train_owners: Who produced each, if that is known.
    """

    train_bins: Ints
    train_owners: Ints | None = None


class SharedTimelines:
    """The timelines of a run while they are made.

    Args:
        trials: How many there are.
        seed: Of the run.
        make: Makes the timeline of a trial here.
    """

    def __init__(self, trials: int, seed: int, make: Callable[[int], Timeline]) -> None:
        self.trials, self.seed, self.make = trials, seed, make
        self.made: dict[int, Timeline | BaseException] = {}
        self._left, self._at_work, self._asking, self._failed = list(range(trials))[::-1], 0, 0, False
        self._changed = threading.Condition()

    def run(self, workers: Sequence[Worker], task: dict[str, Any], dataset: Dealable) -> list[Timeline]:
        """Have workers make timelines of a task, given as plain values."""
        self._asking = len(workers)
        try:
            for worker in workers:
                threading.Thread(target=self._ask_worker, args=(worker, task, dataset), daemon=True).start()
            while not all(worker.answered for worker in workers) and (trial := self._take()) is not None:
                self._keep(trial, self.make)
            with self._changed:  # nobody waits for a worker that is ready when there is nothing left to do
                self._changed.wait_for(self._settled)
            while (trial := self._take()) is not None:  # all workers were lost
                self._keep(trial, self.make)
        except BaseException:  # we are interrupted while they work
            for worker in workers:
                worker.abandon()
            raise
        finally:
            for worker in workers:
                worker.leased = False
        return self._result()

    def _settled(self) -> bool:
        """Tell whether no worker is at work, and none will take anything more."""
        return not self._at_work and (self._failed or not self._left or not self._asking)

    def _take(self) -> int | None:
        """Return the next trial that nobody has taken; none after something went wrong."""
        with self._changed:
            if self._failed or not self._left:
                return None
            self._at_work += 1
            return self._left.pop()

    def _keep(self, trial: int, make: Callable[[int], Timeline]) -> None:
        made: Timeline | BaseException
        try:
            made = make(trial)
        except Exception as error:  # raised where all are waited for
            made = error
        with self._changed:
            self.made[trial], self._failed = made, self._failed or isinstance(made, BaseException)
            self._at_work -= 1
            self._changed.notify_all()

    def _ask_worker(self, worker: Worker, task: dict[str, Any], dataset: Dealable) -> None:
        self._ask(worker, task, dataset)
        with self._changed:
            self._asking -= 1
            self._changed.notify_all()

    def _ask(self, worker: Worker, task: dict[str, Any], dataset: Dealable) -> None:
        """Have a worker make timelines for as long as there are trials."""
        known: dict[str, Any] = {"train_bins": dataset.train_bins}
        if dataset.train_owners is not None:
            known["train_owners"] = dataset.train_owners
        try:
            worker.ask({"do": "crowd", **pool.readable(task)}, known)
        except WorkerLost:
            return  # others do its part
        except Exception as error:
            with self._changed:
                self.made[self.trials], self._failed = error, True  # behind those of all trials: it is nobody's
                self._changed.notify_all()
        while (trial := self._take()) is not None:
            self._keep(trial, functools.partial(self._answer, worker))

    def _answer(self, worker: Worker, trial: int) -> Timeline:
        try:
            frame = worker.ask({"do": "timeline", "seed": self.seed, "trial": trial})
        except WorkerLost:  # nothing else is lost with it
            return self.make(trial)
        return unpack(frame.words, frame.tree)

    def _result(self) -> list[Timeline]:
        """Return all, or raise what went wrong in the first trial in which something did, as one process would."""
        found = []
        for trial in sorted(self.made):
            timeline = self.made[trial]
            if isinstance(timeline, BaseException):
                raise timeline
            found.append(timeline)
        return found


def pack(timeline: Timeline) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a timeline as numbers and arrays; of an array whose entries are all one, only that and its length."""
    numbers = {name: value for name, value in vars(timeline).items() if isinstance(value, int)}
    arrays = {name: value for name, value in vars(timeline).items() if name not in numbers}
    same = {
        name: len(value)
        for name, value in arrays.items()
        if isinstance(value, np.ndarray) and len(value) > 1 and not value.strides[0]
    }
    return {"numbers": numbers, "same": same}, {
        name: value[:1] if name in same else value for name, value in arrays.items()
    }


def unpack(words: dict[str, Any], arrays: dict[str, Any]) -> Timeline:
    """Return the timeline that `pack` was given."""
    same = {name: np.broadcast_to(arrays[name], length) for name, length in words["same"].items()}
    return Timeline(**words["numbers"], **arrays | same)
