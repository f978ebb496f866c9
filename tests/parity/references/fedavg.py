"""fedavg as a plain loop: in each round a weighted mean of what the invited devices have learnt."""

from typing import Any

import numpy as np

from crowdml.core import NUMPY
from crowdml.data import Dataset
from crowdml.simulation.engine.hash_coins import HashCoins
from crowdml.simulation.timeline import Timeline
from crowdml.task import Task


def run(task: Task, dataset: Dataset, timeline: Timeline, seed: Any) -> Any:
    """Return the parameters after the last round."""
    settings, classes = task.algorithm, len(task.data.labels)
    rate, size = settings.rate, settings.local_batch
    w = np.zeros((classes, dataset.features))
    steps = np.zeros(task.crowd.devices)
    models: list[Any] = []
    sizes: list[int] = []
    for i in range(len(timeline)):
        device, line, count = timeline.device[i], timeline.rows[i], int(timeline.counts[i])
        local = w
        for begin in range(0, count, size):
            chosen = line[begin : min(begin + size, count)]
            x, y = dataset.train_rows[chosen].astype(float), dataset.train_targets[chosen]
            scores = np.exp(x @ local.T)
            p = scores / scores.sum(axis=1, keepdims=True)
            g = (p - np.eye(classes)[y]).T @ x / len(x) + task.model.regularisation * local
            steps[device] += 1
            local = local - rate.c / (np.sqrt(steps[device]) if rate.kind == "inverse-sqrt" else 1.0) * g
        if task.privacy.noise_scale is not None:
            local = local + task.privacy.noise_scale * HashCoins(seed, i + 1, NUMPY).gaussian("change/0/w", w.shape)
        models.append(local)
        sizes.append(count)
        if timeline.commits[i]:
            w = sum(n * model for n, model in zip(sizes, models, strict=True)) / sum(sizes)
            models, sizes = [], []
    return ({"w": w},)
