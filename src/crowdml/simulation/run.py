"""Running a simulation: timeline, compile, run, measure."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from crowdml.algorithms import Task
from crowdml.core import NUMPY, BadInput
from crowdml.data import Dataset
from crowdml.simulation import accounting, checkpoint, memory
from crowdml.simulation.chunks import Chunks, cut_chunks
from crowdml.simulation.coins import trial_seed
from crowdml.simulation.cores import Blocks, cut, join
from crowdml.simulation.doubts import doubted
from crowdml.simulation.jax_setup import CORES
from crowdml.simulation.lane import Carry, Lanes
from crowdml.simulation.matrices import numbers
from crowdml.simulation.personal import personal_errors
from crowdml.simulation.prepare import prepare
from crowdml.simulation.program import Program, compile_program
from crowdml.simulation.result import Average, Result, watched
from crowdml.simulation.splits import trial_split
from crowdml.simulation.timeline import Timeline, make_timeline

SAVE_EVERY_S = 10.0

Watcher = Callable[[float, float], None]
"""Told the share done and the mean error after each point of the curve: on rows held back where there are some, else on
the test rows."""


def simulate(
    task: Task,
    *,
    trials: int = 1,
    seed: int = 0,
    resume: bool = False,
    watch: Watcher | None = None,
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
        watch: Told how far the run is.
    """
    return simulate_cells([task], trials=trials, seed=seed, resume=resume, watch=watch)[0]


def simulate_cells(
    tasks: Sequence[Task],
    *,
    trials: int = 1,
    seed: int = 0,
    resume: bool = False,
    watch: Watcher | None = None,
) -> list[Result]:
    """Simulate several tasks that differ in hyper-parameters only, with one compilation, side by side."""
    require_numbers(trials, seed)
    for task in tasks:
        if not isinstance(task, Task):
            raise BadInput(
                f"should be a Task, not {type(task).__name__}",
                where="task",
                hint="read a file: crowdml.Task.load(path)",
            )
    return _simulate_cells(tasks, trials=trials, seed=seed, resume=resume, watch=watch)


def require_numbers(trials: int, seed: int) -> None:
    """Refuse numbers that no run can have."""
    if trials < 1:
        raise BadInput(f"{trials} trials: at least one is needed", where="trials")
    if not 0 <= seed < 1 << 63:
        raise BadInput(f"{seed} is no seed", where="seed", hint="a whole number from 0 to 2⁶³ − 1")


def _simulate_cells(
    tasks: Sequence[Task], *, trials: int, seed: int, resume: bool, watch: Watcher | None
) -> list[Result]:
    if tasks[0].recipe.pooled:
        from crowdml.simulation.pooled import simulate_pooled

        return [simulate_pooled(task, trials=trials, seed=seed, watch=watch) for task in tasks]
    if tasks[0].recipe.sliced:
        from crowdml.simulation.sliced import simulate_sliced

        return [simulate_sliced(task, trials=trials, seed=seed, watch=watch) for task in tasks]
    if len({task.structure() for task in tasks}) != 1:
        raise ValueError("the cells of one sweep may differ in hyper-parameters only")
    fitted, dataset = prepare(tasks[0])
    timelines = make_timelines(tasks[0], dataset, trials, seed)
    places = _places(len(tasks), trials)
    opens = tasks[0].build(NUMPY).opening is not None
    chunks = cut_chunks([timelines[trial] for _, trial in places], tasks[0].crowd.curve, opens)
    program, lanes = _compile(tasks, seed, places, dataset, chunks)
    path = checkpoint.run_path(tasks, trials, seed)
    began = time.perf_counter()
    notes = accounting.notes(tasks[0], dataset, fitted, timelines)
    with checkpoint.in_use(path) as kept:
        if not kept:
            notes += (f"{path.parent} cannot be written: an interrupted run would have to begin anew",)
        try:
            carries, measured = _go(program, lanes, chunks, path if kept else None, resume, watch)
        except KeyboardInterrupt as interrupt:
            if path.exists():
                interrupt.add_note("the same command with --resume goes on from the last checkpoint")
            raise
        if kept:
            path.unlink(missing_ok=True)
    common: dict[str, Any] = {
        "seed": seed,
        "trials": trials,
        "samples": np.array([chunks.samples(number) for number in range(len(measured["test_error"]))]),
        "compile_seconds": program.compile_seconds,
        "run_seconds": time.perf_counter() - began,
        "notes": notes,
    }
    ended = _ended(tasks[0], carries, chunks)
    times = np.stack([chunks.times(number) for number in range(len(measured["test_error"]))])

    def of_cell(cell: int) -> Result:
        own = slice(cell * trials, (cell + 1) * trials)
        return Result(
            task=tasks[cell],
            measured={name: values[:, own] for name, values in measured.items()},
            parameters=jax.tree.map(lambda leaf: leaf[own], ended["parameters"]),
            counts=jax.tree.map(lambda leaf: leaf[own], ended["counts"]),
            privacy=accounting.report(tasks[cell], timelines),
            updates=int(ended["updates"][own].sum()),
            times=times[:, own],
            averages=_averages(tasks[cell], carries, timelines, own),
            beside=personal_errors(
                tasks[cell], dataset, timelines, jax.tree.map(lambda leaf: leaf[own], ended["parameters"])
            ),
            **common,
        )

    return [doubted(of_cell(cell), dataset) for cell in range(len(tasks))]


def _places(cells: int, trials: int) -> list[tuple[int, int]]:
    """Return cell and trial of every lane. The last one is repeated until all cores have as many lanes."""
    places = [(cell, trial) for cell in range(cells) for trial in range(trials)]
    spare = -len(places) % CORES if len(places) > 1 else 0
    return places + places[-1:] * spare


def _ended(task: Task, carries: Carry, chunks: Chunks) -> dict[str, Any]:
    """Read parameters, counts per device and updates made out of the last carry."""
    algorithm = task.build(NUMPY)
    learnt = algorithm.of_device(carries.tables[1]) if algorithm.of_device else algorithm.parameters(carries.server)
    done = chunks.ends[-1]
    if not isinstance(carries.stopped, tuple):
        done = np.minimum(_stops(carries), done)
    return {
        "parameters": jax.tree.map(np.asarray, learnt),
        "counts": jax.tree.map(np.asarray, carries.tables[0]) if algorithm.totals else {},
        "updates": done,
    }


def _averages(task: Task, carries: Carry, timelines: Sequence[Timeline], lanes: slice) -> tuple[Average, ...]:
    """Read how each trial of a cell was averaged out of the last carry."""
    algorithm = task.build(NUMPY)
    if algorithm.shown is None:
        return ()
    shown = jax.tree.map(lambda leaf: np.asarray(leaf)[lanes], algorithm.shown(carries.server))
    return tuple(
        average_of(timeline, shown["weights"][at], shown["accepted"][at]) for at, timeline in enumerate(timelines)
    )


def average_of(timeline: Timeline, weights: Any, used: Any) -> Average:
    """Say whose weights they are: those of the check-ins before the last commit."""
    ends = np.flatnonzero(timeline.commits)
    begin = int(ends[-2]) + 1 if len(ends) > 1 else 0
    devices = tuple(int(own) for own in timeline.device[begin : int(ends[-1]) + 1])
    return Average(versions=len(ends), used=int(used), devices=devices, weights=np.asarray(weights, np.float64))


def make_timelines(task: Task, dataset: Dataset, trials: int, seed: int) -> list[Timeline]:
    """Work out the course of every trial."""
    algorithm = task.build(NUMPY)
    return [
        make_timeline(task, dataset, algorithm, np.random.default_rng([seed, trial]), trial) for trial in range(trials)
    ]


def _compile(
    tasks: Sequence[Task], seed: int, places: list[tuple[int, int]], dataset: Dataset, chunks: Chunks
) -> tuple[Program, Lanes]:
    hyper = [numbers(task) for task in tasks]
    lanes = Lanes(
        hyper={name: np.array([hyper[cell][name] for cell, _ in places], np.float32) for name in hyper[0]},
        seeds=np.stack([trial_seed(seed, trial) for _, trial in places]),
        scales=_scales([tasks[cell] for cell, _ in places]) if chunks.choosing else {},
        measured=_measured(tasks[0], dataset, [trial for _, trial in places]),
    )
    memory.require(memory.estimate(tasks[0].build(NUMPY), dataset, chunks, tasks[0].crowd.devices))
    first, _ = chunks.events(0)
    program = compile_program(tasks[0], dataset, lanes, first, chunks.ring, chunks.even, chunks.per_commit)
    return program, lanes


def _measured(task: Task, dataset: Dataset, trials: Sequence[int]) -> dict[str, Any]:
    """Return the rows to measure every lane on, where every trial has its own."""
    splits = [trial_split(task, len(dataset.train_labels), trial) for trial in trials]
    known = [split.measured for split in splits if split]
    return {name: np.stack([own[name] for own in known]) for name in known[0]} if known else {}


def _scales(tasks: Sequence[Task]) -> dict[str, Any]:
    """Return the scales of noise for every ε that owners have chosen, with lanes as the first axis."""
    plans = [task.plan(task.model_for(NUMPY)) for task in tasks]
    chosen = [
        [plan.for_owner(epsilon).scales for epsilon in task.crowd.owner_epsilon.values]
        for plan, task in zip(plans, tasks, strict=True)
    ]
    return {name: np.array([[own[name] for own in lane] for lane in chosen], np.float32) for name in plans[0].scales}


def _go(
    program: Program, lanes: Lanes, chunks: Chunks, path: Path | None, resume: bool, watch: Watcher | None
) -> tuple[Carry, dict[str, Any]]:
    """Run all chunks, measuring at the points of the curve and saving now and then."""
    carries = program.start(lanes)
    measured: dict[str, list[Any]] = {}
    begin, saved = 0, time.monotonic()
    if resume and path and path.exists():
        progress = checkpoint.load(path)
        whole = jax.tree.unflatten(jax.tree.structure(carries[0]), progress.leaves)
        carries = cut(whole, program.blocks)
        begin, measured = progress.chunk, {name: list(values) for name, values in progress.measured.items()}
    for number in range(begin, len(chunks)):
        events, counts = chunks.events(number)
        carries = program.chunk(lanes, carries, events, counts, first=number == 0)
        for name, values in program.measure(lanes, carries).items():
            measured.setdefault(name, []).append(np.asarray(values, np.float64))
        if watch:
            watch((number + 1) / len(chunks), float(watched(measured)[-1].mean()))
        if path and time.monotonic() - saved > SAVE_EVERY_S:
            checkpoint.save(path, _progress(number + 1, carries, measured))
            saved = time.monotonic()
        if program.all_stopped(carries):
            break
    return program.finish(carries), {name: np.stack(values) for name, values in measured.items()}


def _stops(carries: Carry) -> Any:
    """Return the version at which each lane met `error-below`; very large where it never did."""
    stopped = np.asarray(carries.stopped).astype(np.int64)
    return np.where(stopped >= 0, stopped, np.iinfo(np.int64).max)


def _progress(chunk: int, carries: Blocks, measured: dict[str, list[Any]]) -> checkpoint.Progress:
    leaves = tuple(jax.tree.leaves(join(carries)))
    return checkpoint.Progress(
        chunk=chunk, leaves=leaves, measured={name: np.stack(values) for name, values in measured.items()}
    )
