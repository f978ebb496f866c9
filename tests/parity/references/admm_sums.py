"""admm-sums as a plain loop: devices say where they are relative to the version they began with.

Whoever is not heard is taken to be where the model is.
"""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from crowdml.data import Dataset
from crowdml.simulation.timeline import Timeline
from crowdml.task import Task

_spec = importlib.util.spec_from_file_location("reference_of_local_models", Path(__file__).with_name("admm.py"))
assert _spec is not None and _spec.loader is not None
_admm = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_admm)


def run(task: Task, dataset: Dataset, timeline: Timeline, seed: Any) -> Any:
    """Return the parameters after the last version."""
    settings, n, classes = task.algorithm, task.crowd.devices, len(task.data.labels)
    zero = np.zeros((classes, dataset.features))
    local, dual = ({device: zero for device in range(n)} for _ in range(2))
    versions, said = [zero], list[Any]()
    strength = settings.beta / (n * settings.rho)
    for i in range(len(timeline)):
        device, chosen = int(timeline.device[i]), timeline.rows[i, : timeline.counts[i]]
        x, y = dataset.train_rows[chosen].astype(float), dataset.train_targets[chosen]
        w0 = versions[len(versions) - 1 - timeline.staleness[i]]
        local[device] = _admm.local_model(task, x, y, w0 - dual[device], local[device])
        dual[device] = dual[device] + local[device] - w0
        said.append(local[device] + dual[device])
        if timeline.commits[i]:
            mean = sum(said) / len(said)
            if settings.regulariser == "l2":
                heard = mean / (1 + strength)
            else:
                heard = np.sign(mean) * np.maximum(np.abs(mean) - strength, 0)
            versions.append(versions[-1] + len(said) / n * (heard - versions[-1]))
            said = []
    first = settings.average_from
    return ({"w": versions[-1] if first is None else np.mean(versions[first:], axis=0)},)
