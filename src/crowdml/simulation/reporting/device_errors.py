"""How well the model does on each device: errors on the rows that a device holds, device by device.

One forward pass over all training rows for each trial: as much as one pass of learning, a third of it at best. So it is
done where the task asks for it (`crowd.measure = ["devices"]`), and once, of the model at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crowdml.core import NUMPY, trees
from crowdml.core.ops import Tree
from crowdml.data import Dataset
from crowdml.simulation.timeline.timeline import Timeline
from crowdml.task import Task

Floats = npt.NDArray[np.float64]


def device_errors(
    task: Task, dataset: Dataset, timelines: Sequence[Timeline], parameters: Tree
) -> npt.NDArray[np.float64] | None:
    """Return the error on every device's rows, shape (trials, devices); None where the task does not ask for it.

    Rows that a device holds out (`crowd.personal.held-out`) are taken where there are some, otherwise those that it
    trained on. A device that holds none has no number. Where every device has a model of its own, that is measured.

    Args:
        task: The task.
        dataset: Rows after transforms.
        timelines: Who holds which rows, trial by trial.
        parameters: The models, with trials as the first axis, and devices as the second where each has its own.
    """
    if "devices" not in task.crowd.measure:
        return None
    shapes = zip(trees.leaves(parameters), trees.leaves(task.model_for(NUMPY).zeros()), strict=True)
    each_its_own = any(np.ndim(leaf) > np.ndim(zero) + 1 for leaf, zero in shapes)
    return np.stack(
        [
            _of_trial(task, dataset, timeline, trees.map(lambda leaf, at=at: leaf[at], parameters), each_its_own)
            for at, timeline in enumerate(timelines)
        ]
    )


def _of_trial(task: Task, dataset: Dataset, timeline: Timeline, learnt: Tree, each_its_own: bool) -> Floats:
    owner = timeline.held if task.crowd.personal.held_out else timeline.owner
    rows = np.flatnonzero(owner >= 0)
    holder, model = owner[rows], task.model_for(NUMPY)
    if not each_its_own:
        predicted = model.predict(learnt, dataset.train_rows[rows])
        return _shares(task, predicted, dataset.train_targets[rows], holder)
    found = np.full(task.crowd.devices, np.nan)
    for device in np.unique(holder).tolist():
        of = rows[holder == device]
        predicted = model.predict(trees.map(lambda leaf, at=device: leaf[at], learnt), dataset.train_rows[of])
        found[device] = _shares(task, predicted, dataset.train_targets[of], holder[holder == device])[device]
    return found


def _shares(task: Task, predicted: Floats, targets: Floats, holder: npt.NDArray[np.int64]) -> Floats:
    """Return the mean error of every device: the share that is wrong, or the mean distance as a share of the range."""
    wrong = (predicted != targets) if task.target.has_accuracy else np.abs(predicted - targets) / 2
    devices = task.crowd.devices
    count = np.bincount(holder, minlength=devices)
    total = np.bincount(holder, weights=wrong.astype(np.float64), minlength=devices)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def spread_of(errors: Floats) -> dict[str, Floats]:
    """Summarise errors of devices, trial by trial: mean, spread, and the mean of the worst tenth.

    >>> spread_of(np.array([[0.0, 0.1, 0.2, 0.5]]))["worst_tenth"].tolist()
    [0.5]
    """
    found: dict[str, list[float]] = {"mean": [], "std": [], "worst_tenth": []}
    for trial in errors:
        known = np.sort(trial[np.isfinite(trial)])
        found["mean"].append(float(known.mean()))
        found["std"].append(float(known.std(ddof=1)) if len(known) > 1 else 0.0)
        found["worst_tenth"].append(float(known[-max(1, len(known) // 10) :].mean()))
    return {name: np.array(values) for name, values in found.items()}
