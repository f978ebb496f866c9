"""dp-fedavg as a plain loop, from algorithm 1 of Andrew and others (2021): clip at S, and S ← S exp(-η(b̄ - γ)).

Noise of a given scale is on what is sent: the change in units of S, times √(1-s), and the bit, ±√s.
"""

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
    settings, size, share = task.algorithm, task.algorithm.local_batch, task.algorithm.bit_share
    w, clip = np.zeros((len(task.data.labels), dataset.features)), settings.first_clip
    changes, bits = [], []
    for i in range(len(timeline)):
        line, count, local = timeline.rows[i], int(timeline.counts[i]), w
        for begin in range(0, count, size):
            local = local - settings.rate.c * gradient(task, dataset, line[begin : min(begin + size, count)], local)
        change, length = local - w, np.linalg.norm(local - w)
        change = change * min(1.0, clip / length)
        bit = float(length <= clip)
        if task.privacy.noise_scale is not None:
            coins, scale = HashCoins(seed, i + 1, NUMPY), task.privacy.noise_scale
            change = change + scale * coins.gaussian("change/change/0/w", w.shape) * clip / np.sqrt(1 - share)
            bit = bit + scale * float(coins.gaussian("change/below", ())) / np.sqrt(share) / 2
        changes.append(change)
        bits.append(bit)
        if timeline.commits[i]:
            w = w + settings.server.c * sum(changes) / len(changes)
            below = min(max(sum(bits) / len(bits), 0.0), 1.0)
            clip = clip * np.exp(-settings.clip_rate * (below - settings.quantile))
            changes, bits = [], []
    return ({"w": w},)
