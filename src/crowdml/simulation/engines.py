"""Which engine runs a task: compiled code, or a NumPy loop where compiling would take longer than running.

The choice is made from the task and its rows alone. Trials, seeds and cores have no say in it, so a trial is the same
whichever others run beside it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from crowdml.core import NUMPY, BadInput, trees
from crowdml.core.registry import nearest
from crowdml.simulation.timeline.trial_crowd import rows_handed_out
from crowdml.task import Task

ENGINES = ("auto", "compiled", "numpy")
VARIABLE = "CROWDML_ENGINE"
"""Says which engine is meant where nobody says it."""

FEW_UPDATES = 500
"""Up to so many check-ins of a trial the loop takes a tenth of a second; starting JAX takes one or two."""

LITTLE_WORK = 1e9
"""Multiplications of a trial, beside which the cost of calling NumPy still counts."""


def choose(tasks: Sequence[Task], rows: int, asked: str | None) -> str:
    """Return "compiled" or "numpy".

    Args:
        tasks: The cells of a sweep, or one task.
        rows: Training rows.
        asked: What the caller wants; None: what `CROWDML_ENGINE` says, or "auto".
    """
    wanted = require_engine(asked)
    if tasks[0].model_for(NUMPY).numpy_only:
        if wanted == "compiled":
            raise BadInput("this model is not compiled", where="engine", hint='leave it out, or engine = "numpy"')
        return "numpy"
    if wanted != "auto":
        return wanted
    return "numpy" if all(is_short(task, rows) for task in tasks) else "compiled"


def require_engine(asked: str | None) -> str:
    """Return what the caller or `CROWDML_ENGINE` wants; refuse what is no engine."""
    wanted = os.environ.get(VARIABLE, "auto") if asked is None else asked
    if wanted not in ENGINES:
        hint = nearest(wanted, list(ENGINES))
        raise BadInput(f'unknown engine "{wanted}"', where=VARIABLE if asked is None else "engine", hint=hint)
    return wanted


def is_short(task: Task, rows: int) -> bool:
    """Tell whether a trial is over sooner than compiling would be: few check-ins, each of one small batch."""
    batch = getattr(task.algorithm, "batch", None)
    if not batch:
        return False
    return samples_of(task, rows) <= FEW_UPDATES * batch and work_of(task, rows) <= LITTLE_WORK


def samples_of(task: Task, rows: int) -> int:
    """Return how many rows a trial uses, those that it uses again counted again."""
    return task.passes * rows_handed_out(task, task.data.split.train if task.data.split else rows)


def work_of(task: Task, rows: int) -> float:
    """Return the multiplications of a trial, roughly: a row meets every parameter forward, backward and in a step."""
    parameters = trees.size(trees.map(np.asarray, task.model_for(NUMPY).zeros()))
    return 3.0 * samples_of(task, rows) * parameters
