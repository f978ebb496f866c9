"""central-sgd as a plain loop: steps on rows that were perturbed once (equations 15 and 16)."""

from typing import Any

import numpy as np

from crowdml.core import NUMPY
from crowdml.data import Dataset
from crowdml.simulation.engine.hash_coins import HashCoins
from crowdml.simulation.timeline import Timeline
from crowdml.task import Task


def run(task: Task, dataset: Dataset, timeline: Timeline, seed: Any) -> Any:
    """Return the parameters after the last step."""
    classes = len(task.data.labels)
    x_all, y_all = dataset.train_rows.astype(float), dataset.train_targets.copy()
    if task.privacy.epsilon is not None:
        half = task.privacy.epsilon / 2
        coins = HashCoins(seed, np.arange(len(x_all)), NUMPY)
        x_all += 2 / half * coins.laplace("rows", (dataset.features,))
        keep = np.exp(half / 2) / (np.exp(half / 2) + classes - 1)
        for row, u in enumerate(coins.uniform("labels", ()).astype(float)):
            if u >= keep:
                others = [label for label in range(classes) if label != y_all[row]]
                others = others[y_all[row] :] + others[: y_all[row]]  # counted on from the true label
                y_all[row] = others[min(int((u - keep) / (1 - keep) * (classes - 1)), classes - 2)]
    w = np.zeros((classes, dataset.features))
    for t in range(1, len(timeline) + 1):
        chosen = timeline.rows[t - 1]
        x, y = x_all[chosen], y_all[chosen]
        scores = np.exp(x @ w.T)
        p = scores / scores.sum(axis=1, keepdims=True)
        g = (p - np.eye(classes)[y]).T @ x / len(x) + task.model.regularisation * w
        w = w - task.algorithm.rate.c / np.sqrt(t) * g
        w = w * min(1.0, task.algorithm.radius / np.linalg.norm(w))
    return ({"w": w},)
