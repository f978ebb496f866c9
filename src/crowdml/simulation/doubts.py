"""Doubts about a result: figures that are right, and say that something went wrong on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from crowdml.core import NUMPY, trees
from crowdml.data import Dataset
from crowdml.simulation.result import Floats, Result
from crowdml.task import Task

NEARLY = 0.01
"""An error that is less than this below that of guessing is no better."""
EDGE = 0.99
"""Parameters of this part of `radius` are held by it alone."""


def doubted(result: Result, dataset: Dataset) -> Result:
    """Add what casts doubt on a result as its warnings.

    Args:
        result: The result.
        dataset: What it was measured on.
    """
    guessing = result.task.target.guessing(dataset.test_targets)
    found = [*_outside(dataset), *_runaway(result, guessing), *_idle_delta(result.task, len(dataset.train_targets))]
    return replace(result, warnings=(*result.warnings, *found))


def _outside(dataset: Dataset) -> list[str]:
    """Say how many numbers lie beyond the bounds of the task."""
    if not dataset.outside:
        return []
    return [
        f"{dataset.outside} targets of {dataset.name} lie beyond the task's bounds and count as the nearer one: the "
        f"task predicts {dataset.target.described}; see data.target"
    ]


def _runaway(result: Result, guessing: float) -> list[str]:
    """Say in how many trials nothing was learnt, and whether the parameters tell why.

    Args:
        result: The result.
        guessing: Error of whoever always says the same.
    """
    errors = result.measured["test_error"][-1]
    lengths = _lengths(result.task, result.parameters, result.trials)
    radius = getattr(result.task.algorithm, "radius", None)
    # A step that is too large even for the ball's arithmetic ends at zero.
    gone = ~np.isfinite(lengths) | (lengths == 0) | (lengths >= EDGE * (radius or np.inf))
    gone &= ~np.isfinite(lengths) | (errors >= guessing / 2)
    lost = (errors >= guessing - NEARLY) | np.isnan(errors)
    compared = f"the test error is {np.mean(errors):.3f}, and that of guessing {guessing:.3f}"
    if gone.any():
        held = "no longer finite, or held by algorithm.radius alone" if radius else "no longer finite"
        return [
            f"the parameters ran away in {gone.sum()} of {result.trials} trials ({held}), and {compared}: "
            "algorithm.rate is too large; try a tenth of it"
        ]
    if lost.any():
        return [
            f"nothing was learnt in {lost.sum()} of {result.trials} trials: {compared}; algorithm.rate may be too "
            "large or too small, or the noise too strong"
        ]
    return []


def _lengths(task: Task, parameters: Any, trials: int) -> Floats:
    """Return the length of all parameters together, of each trial; 1 where each device has its own."""
    leaves = [np.asarray(leaf, np.float64) for leaf in trees.leaves(parameters)]
    zeros = trees.leaves(task.model_for(NUMPY).zeros())  # without an axis of trials
    if any(leaf.ndim != np.ndim(zero) + 1 for leaf, zero in zip(leaves, zeros, strict=True)):
        return np.ones(trials)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = sum(np.sum(leaf.reshape(trials, -1) ** 2, axis=1) for leaf in leaves)
    return np.sqrt(np.asarray(squares, np.float64))


def _idle_delta(task: Task, rows: int) -> list[str]:
    """Say where δ lets one of the rows be given away whole; sound terms are refused long before."""
    delta = task.privacy.delta
    if task.calibrated.terms.promised or not delta or delta * rows < 1:
        return []
    return [
        f"privacy.delta = {delta:g} is not below 1 / {rows}, one over the training rows: such a promise allows to give "
        "one of them away whole; try 1e-6"
    ]
