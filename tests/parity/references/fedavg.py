"""fedavg as a plain loop: in each round a weighted mean of what the invited devices have learnt."""

from typing import Any

import numpy as np

from crowdml.algorithms import Task
from crowdml.data import Dataset
from crowdml.simulation.timeline import Timeline


def run(task: Task, dataset: Dataset, timeline: Timeline, seed: Any) -> Any:
    """Return the parameters after the last round."""
    settings, classes = task.algorithm, len(task.data.labels)
    rate, size = settings.rate, settings.local_batch
    w = np.zeros((classes, dataset.features))
    steps = np.zeros(task.crowd.devices)
    models: list[Any] = []
    sizes: list[int] = []
    for device, line, count, commits in zip(
        timeline.device, timeline.rows, timeline.counts, timeline.commits, strict=True
    ):
        own = w
        for begin in range(0, count, size):
            chosen = line[begin : min(begin + size, count)]
            x, y = dataset.train_rows[chosen].astype(float), dataset.train_labels[chosen]
            scores = np.exp(x @ own.T)
            p = scores / scores.sum(axis=1, keepdims=True)
            g = (p - np.eye(classes)[y]).T @ x / len(x) + task.model.regularisation * own
            steps[device] += 1
            own = own - rate.c / (np.sqrt(steps[device]) if rate.kind == "inverse-sqrt" else 1.0) * g
        models.append(own)
        sizes.append(count)
        if commits:
            w = sum(n * model for n, model in zip(sizes, models, strict=True)) / sum(sizes)
            models, sizes = [], []
    return ({"w": w},)
