"""decentral as a plain loop: each device takes its own steps."""

from typing import Any

import numpy as np

from crowdml.data import Dataset
from crowdml.simulation.timeline import Timeline
from crowdml.task import Task


def run(task: Task, dataset: Dataset, timeline: Timeline, seed: Any) -> Any:
    """Return the parameters of all devices."""
    classes, devices = len(task.data.labels), task.crowd.devices
    w = np.zeros((devices, classes, dataset.features))
    steps = np.zeros(devices)
    for device, chosen in zip(timeline.device, timeline.rows, strict=True):
        x, y = dataset.train_rows[chosen], dataset.train_targets[chosen]
        scores = np.exp(x @ w[device].T)
        p = scores / scores.sum(axis=1, keepdims=True)
        g = (p - np.eye(classes)[y]).T @ x / len(x) + task.model.regularisation * w[device]
        steps[device] += 1
        w[device] -= task.algorithm.rate.c / np.sqrt(steps[device]) * g
        w[device] *= min(1.0, task.algorithm.radius / np.linalg.norm(w[device]))
    return ({"w": w},)
