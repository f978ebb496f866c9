"""Personal models of a simulated crowd: measured on rows of the same owners that nobody trained on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crowdml.algorithms import Task
from crowdml.algorithms.personal import personal_model
from crowdml.core import NUMPY, trees
from crowdml.core.ops import Tree
from crowdml.data import Dataset
from crowdml.simulation.timeline import Timeline

COMMON = "common model on rows that devices held out"
"""Name of the error that personal models are compared with."""


def personal_errors(
    task: Task, dataset: Dataset, timelines: Sequence[Timeline], parameters: Tree
) -> dict[str, npt.NDArray[np.float64]]:
    """Return errors on held-out rows by name, of shape (trials,); nothing where none are held out.

    Args:
        task: The task.
        dataset: Rows after transforms.
        timelines: Who holds which rows, trial by trial.
        parameters: The common models, with trials as the first axis.
    """
    if not task.crowd.personal.held_out:
        return {}
    found = [
        _of_trial(task, dataset, timeline, trees.map(lambda leaf, at=at: leaf[at], parameters))
        for at, timeline in enumerate(timelines)
    ]
    name = f"with {task.crowd.personal.steps} steps of each device's own"
    return {own: np.array([pair[at] for pair in found]) for at, own in enumerate((COMMON, name))}


def _of_trial(task: Task, dataset: Dataset, timeline: Timeline, common: Tree) -> tuple[float, float]:
    model, wrong, total = task.model_for(NUMPY), np.zeros(2), 0
    for device in range(task.crowd.devices):
        held, own = np.flatnonzero(timeline.held == device), np.flatnonzero(timeline.owner == device)
        rows, labels = dataset.train_rows[held], dataset.train_labels[held]
        mine = personal_model(model, common, dataset.train_rows[own], dataset.train_labels[own], task.crowd.personal)
        total += len(held)
        for at, parameters in enumerate((common, mine)):
            wrong[at] += np.sum(model.predict(parameters, rows) != labels) if len(held) else 0
    return float(wrong[0] / total), float(wrong[1] / total)
