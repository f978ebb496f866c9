"""crowd-sgd as a plain loop: softmax regression, written out from the paper's formulas."""

from typing import Any

import numpy as np

from crowdml.core import NUMPY
from crowdml.data import Dataset
from crowdml.simulation.engine.hash_coins import HashCoins
from crowdml.simulation.timeline import Timeline
from crowdml.task import Task


def run(task: Task, dataset: Dataset, timeline: Timeline, seed: Any) -> Any:
    """Return the parameters after the last check-in."""
    settings, classes = task.algorithm, len(task.data.labels)
    noise = 0.0 if task.privacy.epsilon is None else 4.0 / task.privacy.epsilon  # theorem 1, for rows with L1 norm <= 1
    w = np.zeros((classes, dataset.features))
    past = [w]
    for t in range(1, len(timeline) + 1):
        old = past[t - 1 - timeline.staleness[t - 1]]
        chosen = timeline.rows[t - 1, : timeline.counts[t - 1]]
        x, y = dataset.train_rows[chosen], dataset.train_targets[chosen]
        scores = np.exp(x @ old.T)
        p = scores / scores.sum(axis=1, keepdims=True)
        g = (p - np.eye(classes)[y]).T @ x / len(x) + task.model.regularisation * old
        if noise:
            g = g + noise / len(x) * HashCoins(seed, t, NUMPY).laplace("gradient/0/w", g.shape)
        if settings.stale == "weight":
            g = g / np.sqrt(1.0 + timeline.staleness[t - 1])
        w = w - settings.rate.c / np.sqrt(t) * g
        w = w * min(1.0, settings.radius / np.linalg.norm(w))
        past.append(w)
    return ({"w": w},)
