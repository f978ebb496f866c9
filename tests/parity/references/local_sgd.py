"""local-sgd as a plain loop: softmax regression, written out from algorithm 1 of the paper."""

from typing import Any

import numpy as np

from crowdml.core import NUMPY
from crowdml.data import Dataset
from crowdml.simulation.engine.hash_coins import HashCoins
from crowdml.simulation.prepare import banded_columns
from crowdml.simulation.timeline import Timeline
from crowdml.task import Task


def eta(rate: Any, t: float) -> float:
    """The rate at count t."""
    return float(rate.c / {"constant": 1.0, "inverse": t, "inverse-sqrt": np.sqrt(t)}[rate.kind])


def noise(task: Task, seed: Any, number: int, shape: tuple[int, int], factor: float) -> Any:
    """Noise of the given standard deviation on a change."""
    terms, size = task.privacy, shape[0] * shape[1]
    assert terms.noise_scale is not None
    deviation = terms.noise_scale / (np.sqrt(size) if terms.noise_unit == "vector" else 1.0) * factor
    coins = HashCoins(seed, number, NUMPY)
    if terms.mechanism == "gaussian":
        return deviation * coins.gaussian("change/0/w", shape)
    if terms.mechanism == "laplace":
        return deviation / np.sqrt(2) * coins.laplace("change/0/w", shape)
    z = coins.gaussian("change/direction", (size,)).astype(float)
    radius = np.abs(coins.laplace("change/radius", (size,)).astype(float)).sum()
    return (deviation / np.sqrt(size + 1) * radius * z / np.linalg.norm(z)).reshape(shape)


def correlated(task: Task, timeline: Timeline, seed: Any, shape: tuple[int, int], stage: str) -> dict[int, Any]:
    """Noise of every check-in by solving C x = z for each device, z being its fresh noise of scale 1."""
    columns = banded_columns(task.stop.max_releases or 0, task.privacy.noise_bands or 0)
    matrix: Any = sum(np.diag(columns[: len(columns) - a, a], -a) for a in range(columns.shape[1]))
    found: dict[int, Any] = {}
    for device in np.unique(timeline.device):
        mine = np.flatnonzero(timeline.device == device)
        z = np.stack([HashCoins(seed, i + 1, NUMPY).gaussian(stage, shape).reshape(-1) for i in mine]).astype(float)
        x = np.linalg.solve(matrix[: len(mine), : len(mine)], z)
        found |= {int(i): noise.reshape(shape) for i, noise in zip(mine, x, strict=True)}
    return found


def run(task: Task, dataset: Dataset, timeline: Timeline, seed: Any) -> Any:
    """Return the parameters after the last commit."""
    settings, terms, classes, devices = task.algorithm, task.privacy, len(task.data.labels), task.crowd.devices
    rate, steps, size = settings.rate, settings.local_steps, settings.local_batch

    def gradient(w: Any, chosen: Any) -> Any:
        x, y = dataset.train_rows[chosen].astype(float), dataset.train_targets[chosen]
        scores = np.exp(x @ w.T)
        p = scores / scores.sum(axis=1, keepdims=True)
        return (p - np.eye(classes)[y]).T @ x / len(x) + task.model.regularisation * w

    w = np.zeros((classes, dataset.features))
    past, received_at, received = [w], [0], 0
    t_d, s_d = np.zeros(devices), np.zeros(devices)
    squares = np.zeros((devices, *w.shape))
    window: list[Any] = []
    banded = terms.noise_sequence == "banded"
    added = correlated(task, timeline, seed, w.shape, "change/0/w" if steps else "gradient/0/w") if banded else {}
    for i in range(len(timeline)):
        d, age, chosen = timeline.device[i], timeline.staleness[i], timeline.rows[i]
        read = len(past) - 1 - age
        t_d[d] += 1
        count = {"versions": read + 1, "check-ins": received_at[read] + 1, "device-contacts": t_d[d]}
        if steps == 0:
            update = gradient(past[read], chosen)
            if banded:
                noise_of_sum = task.calibrated.noise
                update = update + noise_of_sum / len(chosen) * added[i]
            elif terms.epsilon is not None:
                draws = HashCoins(seed, i + 1, NUMPY).laplace("gradient/0/w", w.shape)
                update = update + 4 / terms.epsilon / len(chosen) * draws
        else:
            local, first = past[read], s_d[d] + 1
            for s in range(steps):
                s_d[d] += 1
                g = gradient(local, chosen[s * size : (s + 1) * size])
                if rate.kind in ("adagrad", "rmsprop"):
                    kept, new = (1.0, 1.0) if rate.kind == "adagrad" else (rate.decay, 1 - rate.decay)
                    squares[d] = kept * squares[d] + new * g**2
                    local = local - rate.c * g / (np.sqrt(squares[d]) + rate.floor)
                else:
                    local = local - eta(rate, count.get(rate.counter, s_d[d])) * g
            update = local - past[read]
            if banded:
                update = update + (terms.noise_scale or 0.0) * added[i]
            elif terms.noise_scale is not None:
                slower = {"geometric": (terms.noise_factor or 1) ** (t_d[d] - 1), "rate": 0.0}.get(
                    terms.noise_sequence, 1.0
                )
                if terms.noise_sequence == "rate":
                    slower = eta(rate, count.get(rate.counter, first)) / rate.c
                update = update + noise(task, seed, i + 1, w.shape, slower)
        received += 1
        window.append(update / np.sqrt(1.0 + age) if settings.stale == "weight" else update)
        if timeline.commits[i]:
            assert len(window) == settings.server_batch
            mean = sum(window) / len(window)
            t = received if rate.counter == "check-ins" else len(past)
            w = w + mean if steps else w - eta(rate, t) * mean
            w = w * min(1.0, settings.radius / np.linalg.norm(w))
            past.append(w)
            received_at.append(received)
            window = []
    return ({"w": w},)
