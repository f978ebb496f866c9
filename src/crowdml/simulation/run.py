"""Running a simulation: timeline, compile, run, measure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crowdml.algorithms.recipe import PooledRecipe, SlicedRecipe
from crowdml.core import BadInput
from crowdml.data import Dataset
from crowdml.simulation import accounting, checkpoint
from crowdml.simulation.cluster.hiring import hire
from crowdml.simulation.engine.chunks import Chunks, cut_chunks
from crowdml.simulation.engine.hash_coins import trial_seed
from crowdml.simulation.engine.machine import estimate_memory, give_back, require_memory
from crowdml.simulation.engine.run_records import Replicas
from crowdml.simulation.engines import choose, require_engine, samples_of
from crowdml.simulation.lanes import count_lanes, in_processes, open_lanes, plain_task, width
from crowdml.simulation.outcome import Known, Ran, results
from crowdml.simulation.own_data import bind
from crowdml.simulation.prepare import numbers, prepare
from crowdml.simulation.result import Result, Watcher
from crowdml.simulation.timeline.timeline import Timeline, trial_timeline
from crowdml.simulation.timeline.trial_crowd import trial_split
from crowdml.simulation.workers import pool
from crowdml.simulation.workers.crew import HERE, Crew
from crowdml.simulation.workers.timelines import SharedTimelines
from crowdml.task import Task
from crowdml.task.task_checks import with_model

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
    on: str | Crew | None = None,
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
        on: Where trials run; not given: on the cores of this machine. "ray": on a Ray cluster that is started and
            stopped, or on the one that this process has joined; "ray://…" or "HOST:PORT": on that one.
    """
    if model is not None:
        _require_task(task)
        task = with_model(task, model)
    return simulate_cells(
        [task], trials=trials, seed=seed, resume=resume, engine=engine, watch=watch, data=data, on=on
    )[0]


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
    on: str | Crew | None = None,
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
        on: As in `simulate`.
    """
    cpu_begun = pool.cpu_seconds_of_all()
    require_numbers(trials, seed)
    require_engine(engine)
    for task in tasks:
        _require_task(task)
    tasks = [bind(task, data) for task in tasks]
    if isinstance(tasks[0].recipe, PooledRecipe):
        from crowdml.simulation.pooled import simulate_pooled  # it imports JAX and SciPy

        found = [simulate_pooled(task, trials=trials, seed=seed, watch=watch) for task in tasks]
        # Among many, of which those that are finished are kept, it runs again in seconds: a note would say no more.
        return _said_here([_said_whole(each) for each in found] if resume and not keep else found, on)
    path = checkpoint.run_path(tasks, trials, seed)
    wanted = checkpoint.Wanted(path=path, resume=resume, keep=keep, cpu_begun=cpu_begun, replicas=len(tasks) * trials)
    if isinstance(tasks[0].recipe, SlicedRecipe):
        from crowdml.simulation.slices.sliced_run import simulate_sliced

        return _said_here(simulate_sliced(tasks, trials, seed, wanted, watch), on)
    if len({task.structure() for task in tasks}) != 1:
        raise ValueError("the cells of one sweep may differ in hyper-parameters only")
    with hire(on) as crew:
        known = work_out(tasks, trials, seed, engine, crew)
        ran = run_known(known, wanted, watch, crew)
        found = results(known, ran)
    return found if ran.processes else _said_here(found, on)


def _said_here(found: list[Result], on: str | Crew | None) -> list[Result]:
    """Say of results that other machines were meant to give and this process gave that it did."""
    if on is None or on is HERE:
        return found
    note = "this ran in the process that asked, not on the cluster: it is not cut into trials, or too short for that"
    return [replace(result, notes=(*result.notes, note)) for result in found]


def _said_whole(result: Result) -> Result:
    """Say of a run that leaves no checkpoint that there was nothing to resume."""
    note = f"{result.task.algorithm.kind} runs as a whole and leaves nothing to resume: it began anew"
    return replace(result, notes=(*result.notes, note))


def work_out(
    tasks: Sequence[Task], trials: int, seed: int, engine: str | None, crew: Crew, some: Sequence[int] | None = None
) -> Known:
    """Work out everything that does not depend on the parameters; refuse what would not fit into memory.

    Args:
        tasks: The cells.
        trials: Repetitions of each.
        seed: Of the run.
        engine: What the caller wants.
        crew: Whose workers run it.
        some: Numbers of the replicas that are run here, cell by cell and trial by trial; None: all.
    """
    first = tasks[0]
    fitted, dataset = prepare(first)
    rows = len(dataset.train_targets)
    engine = choose(tasks, rows, engine)
    every = [(cell, trial) for cell in range(len(tasks)) for trial in range(trials)]
    wanted = range(len(every)) if some is None else some
    lanes = count_lanes(first, rows, len(wanted), engine, crew)
    timelines = make_timelines(first, dataset, trials, seed, lanes, crew)
    held = _padded(wanted, lanes)
    places = [every[number] for number in held]
    earlier = [phase.versions or 0 for phase in first.built.phases[:-1]]
    chunks = cut_chunks([timelines[trial] for _, trial in every], first.crowd.curve, earlier)
    chunks = chunks.part(held)
    require_memory(estimate_memory(first.built, dataset, chunks, first.crowd.devices))
    known = Known(
        tasks=tasks,
        trials=trials,
        seed=seed,
        fitted=fitted,
        dataset=dataset,
        engine=engine,
        lanes=lanes,
        timelines=timelines,
        chunks=chunks,
        replicas=_replicas(tasks, seed, places, dataset, chunks),
        notes=accounting.notes(first, dataset, fitted, timelines) + crew.notes,
    )
    give_back(dataset)
    return known


def run_known(known: Known, wanted: checkpoint.Wanted, watch: Watcher | None, crew: Crew) -> Ran:
    """Compile, run all chunks, and note when each point of the curve was reached."""
    layout = known.replicas, known.chunks, known.lanes, known.engine
    with open_lanes(known.tasks[0], known.dataset, *layout, crew) as lanes:
        began = time.perf_counter()
        clock: list[float] = []
        carries, measured, notes = checkpoint.run_chunks(lanes, known.chunks, wanted, _timed(watch, clock))
    resumed = len(measured["test_error"]) - len(clock)
    return Ran(
        carries=carries,
        measured=measured,
        seconds=np.array([np.nan] * resumed + clock) - began,
        run_seconds=time.perf_counter() - began,
        compile_seconds=lanes.compile_seconds,
        processes=lanes.processes,
        notes=notes,
    )


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


def _padded(numbers: Sequence[int], lanes: int) -> list[int]:
    """Repeat the last replica until all lanes have as many."""
    return [*numbers, *[numbers[-1]] * (lanes * width(len(numbers), lanes) - len(numbers))]


def make_timelines(
    task: Task, dataset: Dataset, trials: int, seed: int, lanes: int = 1, crew: Crew = HERE
) -> list[Timeline]:
    """Work out the course of every trial.

    Args:
        task: The task.
        dataset: Rows after transforms.
        trials: How many there are.
        seed: Of the run.
        lanes: How many the run will have: where their processes have enough to do they make timelines too. Threads of
            this one would take twice the CPU time, and no less.
        crew: Whose processes these are.
    """

    def make(trial: int) -> Timeline:
        return trial_timeline(task, dataset, seed, trial)

    workers = min(in_processes(task, crew), lanes, trials)
    if workers < 2 or trials * samples_of(task, len(dataset.train_targets)) < SHARED_SAMPLES:
        return [make(trial) for trial in range(trials)]
    return SharedTimelines(trials, seed, make).run(crew.lease(workers), plain_task(task), dataset)


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
