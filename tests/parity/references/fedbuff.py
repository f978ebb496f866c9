"""fedbuff as a plain loop: w ← w + η · mean of K changes, each over √(1 + staleness)."""

from typing import Any

import numpy as np

from crowdml.core import NUMPY
from crowdml.data import Dataset
from crowdml.simulation.engine.hash_coins import HashCoins
from crowdml.simulation.timeline import Timeline
from crowdml.task import Task
from tests.parity.references.fedavg import gradient


def run(task: Task, dataset: Dataset, timeline: Timeline, seed: Any) -> Any:
    """Return the parameters after the last commit."""
    settings, size = task.algorithm, task.algorithm.local_batch
    assert settings.rate.kind == settings.server.kind == "constant"
    w = np.zeros((len(task.data.labels), dataset.features))
    past, window = [w], []
    for i in range(len(timeline)):
        age, chosen = int(timeline.staleness[i]), timeline.rows[i]
        begun = local = past[len(past) - 1 - age]
        for s in range(settings.local_steps):
            local = local - settings.rate.c * gradient(task, dataset, chosen[s * size : (s + 1) * size], local)
        change = local - begun
        if task.privacy.noise_scale is not None:
            change = change + task.privacy.noise_scale * HashCoins(seed, i + 1, NUMPY).gaussian("change/0/w", w.shape)
        window.append(change / np.sqrt(1 + age) if settings.stale == "weight" else change)
        if timeline.commits[i]:
            assert len(window) == settings.buffer_size
            w = w + settings.server.c * sum(window) / len(window)
            past.append(w)
            window = []
    return ({"w": w},)
