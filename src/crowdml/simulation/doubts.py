"""Doubts about a result: figures that are right, and say that something went wrong on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.algorithms import Task
from crowdml.core import NUMPY, trees
from crowdml.data import Dataset
from crowdml.simulation.result import Floats, Result

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
    shares = np.bincount(dataset.test_labels) / max(len(dataset.test_labels), 1)
    guessing = 1 - float(shares.max(initial=0.0))
    found = [*_runaway(result, guessing), *_idle_delta(result.task, len(dataset.train_labels))]
    return replace(result, warnings=(*result.warnings, *found))


def _runaway(result: Result, guessing: float) -> list[str]:
    """Say in how many trials nothing was learnt, and whether the parameters tell why.

    Args:
        result: The result.
        guessing: Error of whoever always says the most frequent label.
    """
    errors = result.measured["test_error"][-1]
    lengths = _lengths(result.task, result.parameters, result.trials)
    radius = getattr(result.task.algorithm, "radius", None)
    # A step that is too large even for the ball's arithmetic ends at zero.
    gone = ~np.isfinite(lengths) | (lengths == 0) | (lengths >= EDGE * (radius or np.inf))
    gone &= ~np.isfinite(lengths) | (errors >= guessing / 2)
    lost = (errors >= guessing - NEARLY) | np.isnan(errors)
    told = f"the test error is {np.mean(errors):.3f}, and that of guessing {guessing:.3f}"
    if gone.any():
        held = "no longer finite, or held by algorithm.radius alone" if radius else "no longer finite"
        return [
            f"the parameters ran away in {gone.sum()} of {result.trials} trials ({held}), and {told}: "
            "algorithm.rate is too large; try a tenth of it"
        ]
    if lost.any():
        return [
            f"nothing was learnt in {lost.sum()} of {result.trials} trials: {told}; algorithm.rate may be too large or "
            "too small, or the noise too strong"
        ]
    return []


def _lengths(task: Task, parameters: Any, trials: int) -> Floats:
    """Return the length of all parameters together, of each trial; 1 where each device has its own."""
    pairs = [(np.asarray(leaf, np.float64), zero.ndim) for leaf, zero in _beside(task, parameters)]
    if any(leaf.ndim != ndim + 1 for leaf, ndim in pairs):
        return np.ones(trials)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = sum(np.sum(leaf.reshape(trials, -1) ** 2, axis=1) for leaf, _ in pairs)
    return np.sqrt(np.asarray(squares, np.float64))


def _beside(task: Task, parameters: Any) -> list[tuple[Any, npt.NDArray[Any]]]:
    zeros = [np.asarray(leaf) for _, leaf in trees.paths(task.model_for(NUMPY).zeros())]
    return list(zip((leaf for _, leaf in trees.paths(parameters)), zeros, strict=True))


def _idle_delta(task: Task, rows: int) -> list[str]:
    """Say where δ lets one of the rows be given away whole; sound terms are refused long before."""
    delta = task.privacy.delta
    if task.privacy.mode == "sound" or not delta or delta * rows < 1:
        return []
    return [
        f"privacy.delta = {delta:g} is not below 1 / {rows}, one over the training rows: such a promise allows to give "
        "one of them away whole; try 1e-6"
    ]
