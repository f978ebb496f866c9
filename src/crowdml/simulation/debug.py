"""Simulating step by step: the slow twin of `simulate`, for looking into a task."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from crowdml.algorithms import Task
from crowdml.algorithms.counting import estimated_error
from crowdml.core import NUMPY, BadInput
from crowdml.core.ops import Tree
from crowdml.simulation import accounting
from crowdml.simulation.coins import trial_seed
from crowdml.simulation.doubts import doubted
from crowdml.simulation.matrices import numbers
from crowdml.simulation.prepare import measured_errors, prepare
from crowdml.simulation.result import Average, Result, watched
from crowdml.simulation.run import Watcher, average_of, make_timelines, require_numbers
from crowdml.simulation.stepwise import run_stepwise


def simulate_stepwise(
    task: Task, *, trials: int = 1, seed: int = 0, resume: bool = False, watch: Watcher | None = None
) -> Result:
    """Simulate without compiling. Takes what `simulate` takes; `resume` has nothing to resume here."""
    if task.recipe.sliced:
        raise BadInput(f"{task.algorithm.kind} is not compiled in any case", where="--debug", hint="leave --debug out")
    require_numbers(trials, seed)
    fitted, dataset = prepare(task)
    algorithm = task.build(NUMPY, numbers(task))
    owners = [task.build(NUMPY, owner_epsilon=epsilon) for epsilon in task.crowd.owner_epsilon.values]
    timelines = make_timelines(task, dataset, trials, seed)
    began = time.perf_counter()
    ends: list[Tree] = []
    averages: list[Average] = []
    found: dict[str, list[float]] = {}
    for trial, timeline in enumerate(timelines):
        end = run_stepwise(algorithm, timeline, dataset, trial_seed(seed, trial), owners=owners)
        ends.append(algorithm.parameters(end.server))
        if algorithm.shown:
            shown = algorithm.shown(end.server)
            averages.append(average_of(timeline, shown["weights"], shown["accepted"]))
        errors = measured_errors(task, ends[-1], dataset, trial)
        if algorithm.totals:
            errors["estimated_error"] = float(estimated_error(algorithm.totals(end.server), NUMPY))
        for name, error in errors.items():
            found.setdefault(name, []).append(error)
        if watch:
            watch((trial + 1) / trials, float(np.mean(watched(found))))
    result = Result(
        task=task,
        seed=seed,
        trials=trials,
        samples=np.array([np.mean([timeline.samples[-1] for timeline in timelines])]),
        measured={name: np.array([errors]) for name, errors in found.items()},
        parameters=_stack(ends),
        privacy=accounting.report(task, timelines),
        updates=sum(len(timeline) for timeline in timelines),
        compile_seconds=0.0,
        run_seconds=time.perf_counter() - began,
        notes=accounting.notes(task, dataset, fitted, timelines),
        averages=tuple(averages),
    )
    return doubted(result, dataset)


def _stack(states: list[Tree]) -> Any:
    from crowdml.core import trees

    return trees.map(lambda *leaves: np.stack(leaves), *states)
