"""local-fit as a plain loop: every device minimises its own regularised loss, by bounded Newton steps."""

from typing import Any

import numpy as np

from crowdml.data import Dataset
from crowdml.simulation.timeline import Timeline
from crowdml.task import Task


def run(task: Task, dataset: Dataset, timeline: Timeline, seed: Any) -> Any:
    """Return the parameters of all devices."""
    classes, settings = len(task.data.labels), task.algorithm
    w = np.zeros((task.crowd.devices, classes, dataset.features))
    for i in range(len(timeline)):
        device, chosen = timeline.device[i], timeline.rows[i, : timeline.counts[i]]
        x, y = dataset.train_rows[chosen].astype(float), dataset.train_targets[chosen]
        ridge = settings.beta + len(x) * task.model.regularisation
        hessian = 0.5 * x.T @ x + ridge * np.eye(x.shape[1])
        for _ in range(settings.newton_steps):
            scores = np.exp(x @ w[device].T)
            p = scores / scores.sum(axis=1, keepdims=True)
            slope = (p - np.eye(classes)[y]).T @ x + ridge * w[device]
            w[device] -= np.linalg.solve(hessian, slope.T).T
    return ({"w": w},)
