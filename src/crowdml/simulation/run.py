"""Running a simulation: timeline, compile, run, measure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crowdml.algorithms.recipe import PooledRecipe, SlicedRecipe
from crowdml.core import NUMPY, BadInput, Report, trees
from crowdml.core.ops import Tree
from crowdml.data import Dataset
from crowdml.simulation import accounting, checkpoint
from crowdml.simulation.attacked import attack_of, attacked
from crowdml.simulation.baselines import personal_errors
from crowdml.simulation.doubts import doubted
from crowdml.simulation.engine.chunks import Chunks, cut_chunks
from crowdml.simulation.engine.hash_coins import trial_seed
from crowdml.simulation.engine.machine import estimate_memory, give_back, require_memory
from crowdml.simulation.engine.run_records import Carry, Replicas
from crowdml.simulation.engines import choose, require_engine, samples_of
from crowdml.simulation.lanes import Lanes, count_lanes, in_processes, open_lanes, plain_task, width
from crowdml.simulation.own_data import bind
from crowdml.simulation.prepare import numbers, prepare
from crowdml.simulation.reporting.course import run_course
from crowdml.simulation.reporting.device_errors import device_errors
from crowdml.simulation.result import Average, Result, Watcher, watched
from crowdml.simulation.timeline.timeline import Timeline, trial_timeline
from crowdml.simulation.timeline.trial_crowd import trial_split
from crowdml.simulation.workers.timelines import SharedTimelines
from crowdml.task import Task
from crowdml.task.task_checks import with_model

SAVE_EVERY_S = 10.0

SHARED_SAMPLES = 1_000_000
"""Rows of all trials, counted as often as they are used, from which on workers help with timelines: some 20 ms."""


def simulate(
    task: Task,
    *,
    trials: int = 1,
    seed: int = 0,
    resume: bool = False,
    engine: str | None = None,
    watch: Watcher | None = None,
    data: Any = None,
    model: Any = None,
) -> Result:
    """Simulate a crowd that learns a task.

    >>> from crowdml import Task, simulate                                       # doctest: +SKIP
    >>> simulate(Task.load("digits.toml"), trials=10).test_error                 # doctest: +SKIP
    0.058

    Args:
        task: The task.
        trials: Repetitions, each with its own partition, order, delays and noise.
        seed: Same seed, same machine: same bits.
        resume: Go on from the checkpoint that an interrupted run of the same task, trials and seed has left.
        engine: "compiled", "numpy", or "auto", which takes NumPy where compiling would take longer than running; not
            given: what `CROWDML_ENGINE` says, or "auto".
        watch: Told how far the run is.
        data: Rows of your own instead of the dataset that the task names: `Dataset.from_arrays(X, y, owners=…)`, a data
            frame, (X, y), or the path of a file; see `crowdml.simulation.own_data`.
        model: A model of your own instead of the file's: a module of flax, equinox or PyTorch, or a `crowdml.JaxModel`.
    """
    if model is not None:
        _require_task(task)
        task = with_model(task, model)
    return simulate_cells([task], trials=trials, seed=seed, resume=resume, engine=engine, watch=watch, data=data)[0]


def simulate_cells(
    tasks: Sequence[Task],
    *,
    trials: int = 1,
    seed: int = 0,
    resume: bool = False,
    keep: bool = False,
    engine: str | None = None,
    watch: Watcher | None = None,
    data: Any = None,
) -> list[Result]:
    """Simulate several tasks that differ in hyper-parameters only, with one compilation, side by side.

    Args:
        tasks: The tasks.
        trials: As in `simulate`.
        seed: As in `simulate`.
        resume: As in `simulate`.
        keep: Leave a checkpoint of the end, from which a run with `resume` has all results at once.
        engine: As in `simulate`.
        watch: Told how far the run is.
        data: As in `simulate`.
    """
    require_numbers(trials, seed)
    require_engine(engine)
    for task in tasks:
        _require_task(task)
    tasks = [bind(task, data) for task in tasks]
    if isinstance(tasks[0].recipe, PooledRecipe):
        from crowdml.simulation.pooled import simulate_pooled  # it imports JAX and SciPy

        return [simulate_pooled(task, trials=trials, seed=seed, watch=watch) for task in tasks]
    if isinstance(tasks[0].recipe, SlicedRecipe):
        from crowdml.simulation.sliced import simulate_sliced

        return [simulate_sliced(task, trials=trials, seed=seed, watch=watch) for task in tasks]
    if len({task.structure() for task in tasks}) != 1:
        raise ValueError("the cells of one sweep may differ in hyper-parameters only")
    fitted, dataset = prepare(tasks[0])
    engine = choose(tasks, len(dataset.train_targets), engine)
    lane_count = count_lanes(tasks[0], len(dataset.train_targets), len(tasks) * trials, engine)
    timelines = make_timelines(tasks[0], dataset, trials, seed, lane_count)
    places = _places(len(tasks), trials, lane_count)
    earlier = [phase.versions or 0 for phase in tasks[0].built.phases[:-1]]
    chunks = cut_chunks([timelines[trial] for _, trial in places], tasks[0].crowd.curve, earlier)
    require_memory(estimate_memory(tasks[0].built, dataset, chunks, tasks[0].crowd.devices))
    replicas = _replicas(tasks, seed, places, dataset, chunks)
    path = checkpoint.run_path(tasks, trials, seed)
    notes = accounting.notes(tasks[0], dataset, fitted, timelines)
    give_back(dataset)
    with open_lanes(tasks[0], dataset, replicas, chunks, lane_count, engine) as lanes:
        began = time.perf_counter()
        clock: list[float] = []
        told, real = _timed(watch, clock), len(tasks) * trials
        carries, measured, more = _with_checkpoint(lanes, chunks, path, resume, keep, told, real)
    notes += more
    run_seconds = time.perf_counter() - began
    parameters, counts, updates = _ended(tasks[0], carries, chunks)
    points = range(len(measured["test_error"]))
    seconds = np.array([np.nan] * (len(points) - len(clock)) + clock) - began  # what was resumed was not timed
    ends, rows = chunks.ends[: len(points), :trials], len(dataset.train_targets)  # those of all cells are the same
    course = run_course(tasks[0], timelines, ends, seconds, rows, whole_run=len(points) == len(chunks))

    def of_cell(cell: int, task: Task) -> Result:
        span = slice(cell * trials, (cell + 1) * trials)
        learnt = trees.map(lambda leaf: leaf[span], parameters)
        return Result(
            task=task,
            seed=seed,
            trials=trials,
            samples=np.array([chunks.samples(number, span) for number in points]),
            measured={name: values[:, span] for name, values in measured.items()},
            parameters=learnt,
            counts=trees.map(lambda leaf: leaf[span], counts),
            privacy=accounting.report(task, timelines),
            updates=int(updates[span].sum()),
            compile_seconds=lanes.compile_seconds,
            engine=engine,
            processes=lanes.processes,
            run_seconds=run_seconds,
            notes=notes,
            times=np.stack([chunks.times(number) for number in points])[:, span],
            averages=_averages(task, carries, timelines, span),
            baselines=personal_errors(task, dataset, timelines, learnt, _personal(task, carries, span)),
            course=course,
            device_errors=device_errors(task, dataset, timelines, learnt),
            transforms=tuple(each.arrays for each in fitted),
        )

    return [doubted(of_cell(cell, task), dataset) for cell, task in enumerate(tasks)]


def _require_task(task: Task) -> None:
    if not isinstance(task, Task):
        what = f"should be a Task, not {type(task).__name__}"
        raise BadInput(what, where="task", hint="read a file: crowdml.Task.load(path)")


def _timed(watch: Watcher | None, clock: list[float]) -> Watcher:
    """Note when each point of the curve was reached, and tell whoever watches."""

    def told(share: float, error: float) -> None:
        clock.append(time.perf_counter())
        if watch:
            watch(share, error)

    return told


def require_numbers(trials: int, seed: int) -> None:
    """Refuse numbers that no run can have."""
    if trials < 1:
        raise BadInput(f"{trials} trials: at least one is needed", where="trials")
    if not 0 <= seed < 1 << 63:
        raise BadInput(f"{seed} is no seed", where="seed", hint="a whole number from 0 to 2⁶³ − 1")


def _places(cells: int, trials: int, lanes: int) -> list[tuple[int, int]]:
    """Return cell and trial of every replica. The last one is repeated until all lanes have as many replicas."""
    places = [(cell, trial) for cell in range(cells) for trial in range(trials)]
    return places + places[-1:] * (lanes * width(len(places), lanes) - len(places))


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


def make_timelines(task: Task, dataset: Dataset, trials: int, seed: int, lanes: int = 1) -> list[Timeline]:
    """Work out the course of every trial.

    Args:
        task: The task.
        dataset: Rows after transforms.
        trials: How many there are.
        seed: Of the run.
        lanes: How many the run will have: where their processes have enough to do they make timelines too. Threads of
            this one would take twice the CPU time, and no less.
    """

    def make(trial: int) -> Timeline:
        return trial_timeline(task, dataset, seed, trial)

    workers = min(in_processes(task), lanes, trials)
    if workers < 2 or trials * samples_of(task, len(dataset.train_targets)) < SHARED_SAMPLES:
        return [make(trial) for trial in range(trials)]
    return SharedTimelines(trials, seed, make).run(workers, plain_task(task), dataset)


def _replicas(
    tasks: Sequence[Task], seed: int, places: list[tuple[int, int]], dataset: Dataset, chunks: Chunks
) -> Replicas:
    hyper = [numbers(task) for task in tasks]
    return Replicas(
        hyper={name: np.array([hyper[cell][name] for cell, _ in places], np.float32) for name in hyper[0]},
        seeds=np.stack([trial_seed(seed, trial) for _, trial in places]),
        scales=_scales([tasks[cell] for cell, _ in places]) if chunks.choosing else {},
        measured=_measured(tasks[0], dataset, [trial for _, trial in places]),
    )


def _measured(task: Task, dataset: Dataset, trials: Sequence[int]) -> dict[str, Any]:
    """Return the rows to measure every replica on, where every trial has its own."""
    splits = [trial_split(task, len(dataset.train_targets), trial) for trial in trials]
    known = [split.measured for split in splits if split]
    return {name: np.stack([rows[name] for rows in known]) for name in known[0]} if known else {}


def _scales(tasks: Sequence[Task]) -> dict[str, Any]:
    """Return the scales of noise for every ε that owners have chosen, with replicas as the first axis."""
    chosen = [
        [task.calibrated.for_owner(epsilon).scales for epsilon in task.crowd.owner_epsilon.values] for task in tasks
    ]
    return {
        name: np.array([[scales[name] for scales in replica] for replica in chosen], np.float32)
        for name in chosen[0][0]
    }


def _with_checkpoint(
    lanes: Lanes, chunks: Chunks, path: Path, resume: bool, keep: bool, watch: Watcher | None, real: int
) -> tuple[Carry, dict[str, Any], tuple[str, ...]]:
    """Run, with a checkpoint where there can be one; return also what is to be said of that."""
    if not lanes.resumable:
        notes = ("a run in NumPy leaves nothing to resume: it began anew",) if resume else ()
        return *_go(lanes, chunks, None, False, False, watch, real), notes
    with checkpoint.in_use(path) as kept:
        notes = () if kept else (f"{path.parent} cannot be written: an interrupted run would have to begin anew",)
        try:
            found = _go(lanes, chunks, path if kept else None, resume, keep, watch, real)
        except KeyboardInterrupt as interrupt:
            if path.exists():
                interrupt.add_note("the same command with --resume goes on from the last checkpoint")
            raise
        if kept and not keep:
            path.unlink(missing_ok=True)
    return *found, notes


def _go(
    lanes: Lanes, chunks: Chunks, path: Path | None, resume: bool, keep: bool, watch: Watcher | None, real: int
) -> tuple[Carry, dict[str, Any]]:
    """Run all chunks, measuring at the points of the curve and saving now and then.

    A checkpoint holds the `real` replicas alone: how many are done twice depends on the cores of a machine.
    """
    spare = len(chunks.timelines) - real
    measured: dict[str, list[Any]] = {}
    begin, saved = 0, time.monotonic()
    if resume and path and path.exists():
        progress = checkpoint.load(path)
        lanes.resume([_again(leaf, spare, 0) for leaf in progress.leaves])
        begin = progress.chunk
        measured = {name: list(_again(values, spare, 1)) for name, values in progress.measured.items()}

    def save(path: Path, done: int) -> None:
        so_far = {name: np.stack(each)[:, :real] for name, each in measured.items()}
        leaves = tuple(leaf[:real] for leaf in lanes.leaves())
        checkpoint.save(path, checkpoint.Progress(chunk=done, leaves=leaves, measured=so_far))

    coming = chunks.events(begin) if begin < len(chunks) else None
    for number in range(begin, len(chunks)):
        assert coming is not None  # noqa: S101  there is one more
        running = lanes.begin(*coming, chunks.phase(number))
        coming = chunks.events(number + 1) if number + 1 < len(chunks) else None  # while they run
        found, stopped = lanes.result(running)
        for name, errors in found.items():
            measured.setdefault(name, []).append(errors)
        if watch:
            watch((number + 1) / len(chunks), float(watched(measured)[-1].mean()))
        if path and time.monotonic() - saved > SAVE_EVERY_S:
            save(path, number + 1)
            saved = time.monotonic()
        if stopped:
            break
    if path and keep:
        save(path, len(chunks))
    return lanes.end(), {name: np.stack(values) for name, values in measured.items()}


def _again(values: Any, spare: int, axis: int) -> Any:
    """Repeat the last replica so many times."""
    return np.concatenate([values, np.repeat(np.take(values, [-1], axis), spare, axis)], axis) if spare else values
