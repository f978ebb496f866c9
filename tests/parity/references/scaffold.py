"""scaffold as a plain loop, from algorithm 1 of the paper: y ← y - η(g - cᵢ + c); cᵢ⁺ = cᵢ - c + (x - y)/(Kη)."""

from typing import Any

import numpy as np

from crowdml.core import NUMPY
from crowdml.data import Dataset
from crowdml.simulation.engine.hash_coins import HashCoins
from crowdml.simulation.timeline import Timeline
from crowdml.task import Task
from tests.parity.references.fedavg import gradient


def run(task: Task, dataset: Dataset, timeline: Timeline, seed: Any) -> Any:
    """Return the parameters after the last round."""
    settings, size, eta = task.algorithm, task.algorithm.local_batch, task.algorithm.rate.c
    x = np.zeros((len(task.data.labels), dataset.features))
    c, controls = np.zeros_like(x), np.zeros((task.crowd.devices, *x.shape))
    models, changes = [], []
    for i in range(len(timeline)):
        device, line, count = int(timeline.device[i]), timeline.rows[i], int(timeline.counts[i])
        y, steps = x, 0
        for begin in range(0, count, size):
            g = gradient(task, dataset, line[begin : min(begin + size, count)], y)
            y = y - eta * (g - controls[device] + c)
            steps += 1
        after = controls[device] - c + (x - y) / (steps * eta)
        change = after - controls[device]
        controls[device] = after
        if task.privacy.noise_scale is not None:
            coins = HashCoins(seed, i + 1, NUMPY)
            y = y + task.privacy.noise_scale * coins.gaussian("change/parameters/0/w", x.shape)
            change = change + task.privacy.noise_scale * coins.gaussian("change/control/0/w", x.shape)
        models.append(y)
        changes.append(change)
        if timeline.commits[i]:
            x = x + settings.server_rate * (sum(models) / len(models) - x)
            c = c + sum(changes) / task.crowd.devices
            models, changes = [], []
    return ({"w": x},)
