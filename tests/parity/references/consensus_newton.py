"""consensus-newton as a plain loop: squares of all rows first, then steps along the inverse of what they give."""

from typing import Any

import numpy as np

from crowdml.data import Dataset
from crowdml.simulation.timeline import Timeline
from crowdml.task import Task


def run(task: Task, dataset: Dataset, timeline: Timeline, seed: Any) -> Any:
    """Return the parameters after the last round."""
    settings, classes, d = task.algorithm, len(task.data.labels), dataset.features
    w, matrix = np.zeros((classes, d)), np.zeros((d, d))
    squares, total, rows, version = np.zeros((d, d)), np.zeros((classes, d)), 0, 0
    for i in range(len(timeline)):
        chosen = timeline.rows[i, : timeline.counts[i]]
        x, y = dataset.train_rows[chosen].astype(float), dataset.train_targets[chosen]
        rows += len(x)
        if version == 0:
            squares += x.T @ x
        else:
            scores = np.exp(x @ w.T)
            total += (scores / scores.sum(axis=1, keepdims=True) - np.eye(classes)[y]).T @ x
        if timeline.commits[i]:
            if version == 0:
                matrix = settings.curvature * squares / rows + settings.floor * np.eye(d)
            else:
                w = w - settings.rate * np.linalg.solve(matrix, (total / rows + task.model.regularisation * w).T).T
            total, rows, version = np.zeros((classes, d)), 0, version + 1
    return ({"w": w},)
