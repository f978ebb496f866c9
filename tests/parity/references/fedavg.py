"""fedavg as a plain loop: in each round a weighted mean of what the invited devices have learnt.

The recipes that differ from it in one line hand that line in.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from crowdml.core import NUMPY
from crowdml.data import Dataset
from crowdml.simulation.engine.hash_coins import HashCoins
from crowdml.simulation.timeline import Timeline
from crowdml.task import Task


def gradient(task: Task, dataset: Dataset, chosen: Any, w: Any) -> Any:
    """Softmax regression over some rows."""
    classes = len(task.data.labels)
    x, y = dataset.train_rows[chosen].astype(float), dataset.train_targets[chosen]
    scores = np.exp(x @ w.T)
    p = scores / scores.sum(axis=1, keepdims=True)
    return (p - np.eye(classes)[y]).T @ x / len(x) + task.model.regularisation * w


def run(
    task: Task,
    dataset: Dataset,
    timeline: Timeline,
    seed: Any,
    pull: Callable[[Any, Any], Any] = lambda local, w: 0.0,
    serve: Callable[[Any, Any], Any] = lambda w, mean: mean,
) -> Any:
    """Return the parameters after the last round.

    `pull(local, w)` is added to every gradient; `serve(w, mean)` is what the server makes of the devices' mean model.
    """
    rate, size = task.algorithm.rate, task.algorithm.local_batch
    w = np.zeros((len(task.data.labels), dataset.features))
    steps = np.zeros(task.crowd.devices)
    velocities: dict[int, Any] = {}
    models: list[Any] = []
    sizes: list[int] = []
    for i in range(len(timeline)):
        device, line, count = int(timeline.device[i]), timeline.rows[i], int(timeline.counts[i])
        local = w
        velocity = velocities.get(device, 0.0) if task.algorithm.rate_memory == "keep" else 0.0
        for begin in range(0, count, size):
            g = gradient(task, dataset, line[begin : min(begin + size, count)], local) + pull(local, w)
            steps[device] += 1
            if rate.kind == "momentum":
                g = velocity = rate.momentum * velocity + g
            local = local - rate.c / (np.sqrt(steps[device]) if rate.kind == "inverse-sqrt" else 1.0) * g
        velocities[device] = velocity
        if task.privacy.noise_scale is not None:
            local = local + task.privacy.noise_scale * HashCoins(seed, i + 1, NUMPY).gaussian("change/0/w", w.shape)
        models.append(local)
        sizes.append(count)
        if timeline.commits[i]:
            w = serve(w, sum(n * model for n, model in zip(sizes, models, strict=True)) / sum(sizes))
            models, sizes = [], []
    return ({"w": w},)
