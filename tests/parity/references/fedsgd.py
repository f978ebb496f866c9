"""fedsgd as a plain loop: in each round one step along the gradient over all rows of the invited devices."""

from typing import Any

import numpy as np

from crowdml.core import NUMPY
from crowdml.data import Dataset
from crowdml.simulation.engine.hash_coins import HashCoins
from crowdml.simulation.prepare import banded_columns
from crowdml.simulation.timeline import Timeline
from crowdml.task import Task


def run(task: Task, dataset: Dataset, timeline: Timeline, seed: Any) -> Any:
    """Return the parameters after the last round."""
    settings, classes, epsilon = task.algorithm, len(task.data.labels), task.privacy.epsilon
    w = np.zeros((classes, dataset.features))
    total, rows = np.zeros_like(w), 0
    banded = task.privacy.noise_bands is not None
    columns = banded_columns(task.stop.max_releases or 0, task.privacy.noise_bands or 0) if banded else np.zeros((0, 0))
    fresh: dict[int, list[Any]] = {}
    for i in range(len(timeline)):
        chosen = timeline.rows[i, : timeline.counts[i]]
        x, y = dataset.train_rows[chosen].astype(float), dataset.train_targets[chosen]
        scores = np.exp(x @ w.T)
        p = scores / scores.sum(axis=1, keepdims=True)
        total += (p - np.eye(classes)[y]).T @ x
        if banded:
            unseen = fresh.setdefault(int(timeline.device[i]), [])
            unseen.append(HashCoins(seed, i + 1, NUMPY).gaussian("gradient/0/w", w.shape).reshape(-1).astype(float))
            matrix: Any = sum(np.diag(columns[: len(columns) - a, a], -a) for a in range(columns.shape[1]))
            last = np.linalg.solve(matrix[: len(unseen), : len(unseen)], np.stack(unseen))[-1]
            total += task.calibrated.noise * last.reshape(w.shape)
        elif epsilon is not None:  # theorem 1 of Crowd-ML 2015, for rows with L1 norm <= 1
            total += 4.0 / epsilon * HashCoins(seed, i + 1, NUMPY).laplace("gradient/0/w", w.shape)
        rows += len(x)
        if timeline.commits[i]:
            w = w - settings.rate.c * (total / rows + task.model.regularisation * w)
            total, rows = np.zeros_like(w), 0
    return ({"w": w},)
