"""Simulating slicenet: trial after trial, with a checkpoint after a pass of all groups."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crowdml.core import BadInput, trees
from crowdml.core.ops import Tree
from crowdml.data import Dataset
from crowdml.models import flatten
from crowdml.simulation import accounting, checkpoint
from crowdml.simulation.checkpoint import Progress, Spent, Wanted
from crowdml.simulation.doubts import doubted
from crowdml.simulation.prepare import prepare
from crowdml.simulation.result import Result, Watcher
from crowdml.simulation.slices.sliced import Trained, Trial, first_parameters
from crowdml.simulation.slices.sliced_course import GroupCourse, relay_report, traffic
from crowdml.simulation.workers import pool
from crowdml.task import Task
from crowdml.task.live_task import sliced_net_of


def simulate_sliced(
    tasks: Sequence[Task], trials: int, seed: int, wanted: Wanted, watch: Watcher | None = None
) -> list[Result]:
    """Train groups of devices, task after task and trial after trial.

    Args:
        tasks: The tasks.
        trials: Repetitions of each.
        seed: Of the run.
        wanted: What is wanted of the checkpoint, which is that of all tasks.
        watch: Told how far the run is.
    """
    for task in tasks:
        _require_rows_for_all_trials(task)
    found = []
    with checkpoint.resumable(wanted) as (path, notes):
        course = _Course(tasks, trials, seed, wanted, path)
        for cell, task in enumerate(tasks):
            fitted, dataset = prepare(task)
            began = time.perf_counter()
            trained = [course.train(dataset, cell * trials + trial, watch) for trial in range(trials)]
            said = accounting.notes(task, dataset, fitted, ()) + notes
            seconds, arrays = time.perf_counter() - began, tuple(each.arrays for each in fitted)
            found.append(doubted(_result(task, trained, dataset, seed, seconds, said, arrays), dataset))
        course.finish()
    return found


class _Course:
    """The trials of all tasks in a row: those that are done, and the one that is running."""

    def __init__(self, tasks: Sequence[Task], trials: int, seed: int, wanted: Wanted, path: Path | None) -> None:
        self.tasks, self.trials, self.seed, self.wanted, self.path = tasks, trials, seed, wanted, path
        self.done: list[Trained] = []
        self.begun: tuple[dict[str, Any], list[Any]] | None = None
        self.before, self.saved, self.went_on = Spent(), time.monotonic(), False
        if wanted.resume and path and path.exists():
            self._read(path, checkpoint.load(path))

    def train(self, dataset: Dataset, number: int, watch: Watcher | None) -> Trained:
        """Run a trial, or the rest of it; what is done already is returned as it is."""
        if number < len(self.done):
            return self.done[number]
        self.went_on = True
        count = len(self.tasks) * self.trials
        trial = Trial(self.tasks[number // self.trials], dataset, self.seed, number % self.trials)
        if self.begun:
            trial.restore(*self.begun)
            self.begun = None

        def tell(share: float, error: float) -> None:
            if watch:
                watch((number + share) / count, error)

        while trial.passes < trial.task.passes:
            trial.go_on(tell)
            if self.path and time.monotonic() - self.saved > checkpoint.SAVE_EVERY_S:
                self._write(self.path, trial)
                self.saved = time.monotonic()
        self.done.append(trial.trained())
        return self.done[-1]

    def finish(self) -> None:
        """Leave a checkpoint of the end, where that is wanted."""
        if self.path and self.wanted.keep:
            self._write(self.path, None)

    def _write(self, path: Path, trial: Trial | None) -> None:
        """Save what is done, and the trial that is running."""
        plain, arrays = trial.state() if trial else (None, [])
        text = json.dumps({"done": [_plain(trained) for trained in self.done], "begun": plain})
        learnt = [flatten(trained.parameters) for trained in self.done]
        taken = pool.cpu_seconds_of_all() - self.wanted.cpu_begun
        progress = Progress(
            chunk=len(self.done),
            leaves=(np.frombuffer(text.encode(), np.uint8), *learnt, *arrays),
            measured={},
            spent=self.before.plus(taken) if self.went_on else self.before,
        )
        checkpoint.save(path, progress)

    def _read(self, path: Path, progress: Progress) -> None:
        """Go back to what a checkpoint holds."""
        try:
            text, *arrays = progress.leaves
            known = json.loads(text.tobytes())
            for number, (plain, flat) in enumerate(zip(known["done"], arrays, strict=False)):
                task, trial = self.tasks[number // self.trials], number % self.trials
                self.done.append(_trained(task, self.seed, trial, plain, flat))
            if known["begun"]:
                self.begun = known["begun"], arrays[len(self.done) :]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise checkpoint.unreadable(path, error) from None
        self.before = progress.spent


def _plain(trained: Trained) -> dict[str, Any]:
    """Return a finished trial as plain values, without its parameters."""
    names = ("errors", "passes", "updates", "lost", "times")
    courses = [course.state() for course in trained.courses]
    return {name: getattr(trained, name) for name in names} | {"courses": courses}


def _trained(task: Task, seed: int, trial: int, plain: dict[str, Any], flat: Any) -> Trained:
    """Return a finished trial as it was."""
    net = sliced_net_of(task)
    like: Tree = first_parameters(net.model, seed, trial)
    courses = []
    for state in plain.pop("courses"):
        planned = traffic(task, net, like)
        assert planned is not None  # noqa: S101  there is a course
        coins = np.random.default_rng([seed, trial, 1])  # nothing more happens in it
        courses.append(GroupCourse(planned, task, np.arange(len(state["back"])), coins))
        courses[-1].restore(state)
    return Trained(**plain, parameters=trees.cut(flat, like), courses=tuple(courses))


def _result(
    task: Task,
    found: Sequence[Trained],
    dataset: Dataset,
    seed: int,
    seconds: float,
    notes: tuple[str, ...],
    transforms: tuple[dict[str, Any], ...],
) -> Result:
    """Put all trials of a task together."""
    lost = sum(trained.lost for trained in found)
    if lost:
        notes += (f"{lost} turns did not take place: too few devices of the group were there",)
    courses = [course for trained in found for course in trained.courses]
    relay = relay_report(courses, courses[0].traffic) if courses else {}
    return Result(
        task=task,
        seed=seed,
        trials=len(found),
        samples=np.array(found[0].passes, float) * len(dataset.train_targets),
        measured={name: np.array([trained.errors[name] for trained in found]).T for name in found[0].errors},
        parameters=trees.map(lambda *leaves: np.stack(leaves), *(trained.parameters for trained in found)),
        privacy=accounting.sliced_report(task),
        updates=sum(trained.updates for trained in found),
        run_seconds=seconds,
        notes=notes + _relay_notes(relay),
        times=np.array([trained.times for trained in found]).T if courses else None,
        relay=dict(relay),
        transforms=transforms,
    )


def _require_rows_for_all_trials(task: Task) -> None:
    """Refuse what would choose rows anew for every trial: groups train on all rows that the data has."""
    if task.crowd.rows is not None:
        what, where = "groups train on all training rows", "crowd.rows"
        raise BadInput(
            what, where=where, hint="data.split = { train = 6000, test = 2000, seed = 0 } takes some of them"
        )
    if task.data.split is not None and task.data.split.seed is None:
        what, where = "all trials of groups have the same training rows", "data.split"
        raise BadInput(what, where=where, hint="data.split.seed = 0 has one split for all trials")


def _relay_notes(relay: Mapping[str, Any]) -> tuple[str, ...]:
    """Say how quick groups are, and what losses cost them."""
    if not relay:
        return ()
    pace, floor = relay["batches_per_second"], relay["floor_batches_per_second"]
    said = f"a group makes {pace:.2f} batches/s" if pace else "nothing takes time"
    said += f", where hops alone allow {floor:.2f}" if floor else ""
    notes: tuple[str, ...] = (
        f"{said}; {relay['bytes_per_row'] / 1024:.2f} KiB cross for a row, a cut every {relay['cut_every']} batches",
    )
    if relay["losses"]:
        notes += (
            f"{relay['losses']} devices were lost while they held a piece: {relay['replayed']} batches replayed, "
            f"{relay['batches_lost']} lost with their dominators, {relay['waited_seconds']:.0f} s waited for a device",
        )
    return notes
