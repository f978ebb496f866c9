"""What a run comes to: last states and measurements turned into a result for every cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crowdml.core import NUMPY, Report, record, trees
from crowdml.core.ops import Tree
from crowdml.data import Dataset, Fitted
from crowdml.simulation import accounting
from crowdml.simulation.attacked import attack_of, attacked
from crowdml.simulation.baselines import personal_errors
from crowdml.simulation.doubts import doubted
from crowdml.simulation.engine.chunks import Chunks
from crowdml.simulation.engine.run_records import Carry, Replicas
from crowdml.simulation.reporting.course import run_course
from crowdml.simulation.reporting.device_errors import device_errors
from crowdml.simulation.result import Average, Result
from crowdml.simulation.timeline.timeline import Timeline
from crowdml.task import Task


@record
class Known:
    """What is known of a run before the first check-in.

    Attributes:
        tasks: The cells, which differ in numbers alone.
        trials: Repetitions of each.
        seed: First seed.
        fitted: Transforms, as the training rows have fitted them.
        dataset: Rows after transforms.
        engine: What runs it.
        lanes: How many run side by side.
        timelines: What happens when, by trial.
        chunks: The same, cut into pieces.
        replicas: What differs from replica to replica: each is a cell and a trial.
        notes: Caveats.
    """

    tasks: Sequence[Task]
    trials: int
    seed: int
    fitted: Sequence[Fitted]
    dataset: Dataset
    engine: str
    lanes: int
    timelines: list[Timeline]
    chunks: Chunks
    replicas: Replicas
    notes: tuple[str, ...]


@record
class Ran:
    """What came out of a run.

    Attributes:
        carries: The last state of every replica.
        measured: Measurements, each of shape (points, replicas).
        seconds: When each point of the curve was reached; not a number for those that were resumed.
        run_seconds: Of the whole.
        compile_seconds: What compiling took.
        processes: Worker processes; 0: this one.
        notes: What is to be said of the checkpoint.
    """

    carries: Carry
    measured: dict[str, Any]
    seconds: Any
    run_seconds: float
    compile_seconds: float
    processes: int
    notes: tuple[str, ...]


def results(known: Known, ran: Ran) -> list[Result]:
    """Turn the last states and the measurements into a result for every cell."""
    tasks, trials, chunks, dataset, timelines = known.tasks, known.trials, known.chunks, known.dataset, known.timelines
    parameters, counts, updates = _ended(tasks[0], ran.carries, chunks)
    points = range(len(ran.measured["test_error"]))
    ends, rows = chunks.ends[: len(points), :trials], len(dataset.train_targets)  # those of all cells are the same
    course = run_course(tasks[0], timelines, ends, ran.seconds, rows, whole_run=len(points) == len(chunks))

    def of_cell(cell: int, task: Task) -> Result:
        span = slice(cell * trials, (cell + 1) * trials)
        learnt = trees.map(lambda leaf: leaf[span], parameters)
        return Result(
            task=task,
            seed=known.seed,
            trials=trials,
            samples=np.array([chunks.samples(number, span) for number in points]),
            measured={name: values[:, span] for name, values in ran.measured.items()},
            parameters=learnt,
            counts=trees.map(lambda leaf: leaf[span], counts),
            privacy=accounting.report(task, timelines),
            updates=int(updates[span].sum()),
            compile_seconds=ran.compile_seconds,
            engine=known.engine,
            processes=ran.processes,
            run_seconds=ran.run_seconds,
            notes=known.notes + ran.notes,
            times=np.stack([chunks.times(number) for number in points])[:, span],
            averages=_averages(task, ran.carries, timelines, span),
            baselines=personal_errors(task, dataset, timelines, learnt, _personal(task, ran.carries, span)),
            course=course,
            device_errors=device_errors(task, dataset, timelines, learnt),
            transforms=tuple(each.arrays for each in known.fitted),
        )

    return [doubted(of_cell(cell, task), dataset) for cell, task in enumerate(tasks)]


def _ended(task: Task, carries: Carry, chunks: Chunks) -> tuple[Tree, Tree, Any]:
    """Read parameters, counts per device and updates made out of the last carry."""
    report = report_of(task, carries.server)
    models = task.built.last.device.model(carries.tables[1].work) if task.releases.alone else None
    updates = chunks.ends[-1]
    if not isinstance(carries.stopped, tuple):  # the version at which each replica met `error-below`, or -1
        versions = np.asarray(carries.stopped).tolist()
        commits = [np.flatnonzero(timeline.commits) for timeline in chunks.timelines]
        absorbed = [of[version - 1] + 1 if version > 0 else -1 for of, version in zip(commits, versions, strict=True)]
        updates = np.where(np.array(absorbed) >= 0, np.minimum(absorbed, updates), updates)
    parameters = trees.map(np.asarray, report.parameters if models is None else models)
    return parameters, trees.map(np.asarray, carries.tables[0]) if report.counts else (), updates


def _personal(task: Task, carries: Carry, replicas: slice) -> Tree | None:
    """Read the models that devices keep beside the common one, with trials and devices as the first axes; or None."""
    if task.releases.alone:
        return None
    models = task.built.last.device.model(carries.tables[1].work)
    return None if models is None else trees.map(lambda leaf: np.asarray(leaf)[replicas], models)


def _averages(task: Task, carries: Carry, timelines: Sequence[Timeline], replicas: slice) -> tuple[Average, ...]:
    """Read how each trial of a cell was averaged out of the last carry."""
    report = report_of(task, carries.server)
    if not report.averaging:
        return ()
    shown = trees.map(lambda leaf: np.asarray(leaf)[replicas], report.averaging)
    return tuple(average_of(timeline, shown.weights[at], shown.accepted[at]) for at, timeline in enumerate(timelines))


def report_of(task: Task, server: Tree) -> Report:
    """Return what may be shown of a server's state, attacked or not."""
    return attacked(task.built, attack_of(task, NUMPY), NUMPY).last.server.report(server)


def average_of(timeline: Timeline, weights: Any, used: Any) -> Average:
    """Say whose weights they are: those of the check-ins before the last commit."""
    ends = np.flatnonzero(timeline.commits)
    begin = int(ends[-2]) + 1 if len(ends) > 1 else 0
    devices = tuple(timeline.device[begin : int(ends[-1]) + 1].tolist())
    return Average(versions=len(ends), used=int(used), devices=devices, weights=np.asarray(weights, np.float64))
