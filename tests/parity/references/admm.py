"""admm as a plain loop: algorithms 1 and 2 of Guo and Gong, with softmax regression and bounded Newton steps."""

from typing import Any

import numpy as np

from crowdml.core import NUMPY
from crowdml.data import Dataset
from crowdml.simulation.engine.hash_coins import HashCoins
from crowdml.simulation.timeline import Timeline
from crowdml.task import Task


def local_model(task: Task, x: Any, y: Any, centre: Any, w: Any) -> Any:
    """Equation (12), from the last solution on: the softmax's Hessian is at most half that of squares."""
    rho, decay = task.algorithm.rho, len(x) * task.model.regularisation

    def slope(at: Any) -> Any:
        grown = np.exp(x @ at.T)
        p = grown / grown.sum(axis=1, keepdims=True)
        return (p - np.eye(at.shape[0])[y]).T @ x + decay * at + rho * (at - centre)

    hessian = 0.5 * x.T @ x + (rho + decay) * np.eye(x.shape[1])
    for _ in range(task.algorithm.newton_steps):
        way = -np.linalg.solve(hessian, slope(w).T).T
        first, last = (slope(w) * way).sum(), (slope(w + way) * way).sum()
        w = w + way * (first / (first - max(last, 0.0)))
    return w


def run(task: Task, dataset: Dataset, timeline: Timeline, seed: Any) -> Any:
    """Return the parameters after the last version."""
    settings, n, classes = task.algorithm, task.crowd.devices, len(task.data.labels)
    s = settings.barrier or n
    zero = np.zeros((classes, dataset.features))
    local, sent, dual = ({device: zero for device in range(n)} for _ in range(3))
    mean_w, mean_dual, versions = zero, zero, [zero]
    changes, duals = zero, zero
    for i in range(len(timeline)):
        device, chosen = int(timeline.device[i]), timeline.rows[i, : timeline.counts[i]]
        x, y = dataset.train_rows[chosen].astype(float), dataset.train_targets[chosen]
        w0 = versions[len(versions) - 1 - timeline.staleness[i]]
        local[device] = local_model(task, x, y, w0 - dual[device], local[device])
        noisy = local[device]
        if task.privacy.epsilon is not None:
            # Rows of L1 norm at most 1 have softmax gradients of L2 norm at most √2, where the paper has 1.
            sigma = (
                np.sqrt(2 * np.log(1.25 / task.privacy.delta)) * 2 * np.sqrt(2) / (settings.rho * task.privacy.epsilon)
            )
            noisy = noisy + sigma / np.sqrt(s) * HashCoins(seed, i + 1, NUMPY).gaussian("local/0/w", zero.shape)
        changes, duals = changes + noisy - sent[device], duals + noisy - w0
        sent[device], dual[device] = noisy, dual[device] + noisy - w0
        if timeline.commits[i]:
            mean_w, mean_dual = mean_w + changes / n, mean_dual + duals / n
            changes, duals = zero, zero
            ratio = n * settings.rho
            if settings.regulariser == "l2":
                versions.append(ratio / (ratio + settings.beta) * (mean_w + mean_dual))
            else:
                both = mean_w + mean_dual
                versions.append(np.sign(both) * np.maximum(np.abs(both) - settings.beta / ratio, 0))
    first = settings.average_from
    return ({"w": versions[-1] if first is None else np.mean(versions[first:], axis=0)},)
