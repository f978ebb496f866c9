"""Splits: which rows a trial trains on and which it is tested on, where every trial splits a dataset anew.

The split of a trial depends on its number alone, so that the same trials of different tasks have the same rows, and can
be compared one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.algorithms import Task
from crowdml.core import record

Ints = npt.NDArray[Any]


@record
class Split:
    """Row numbers of one trial.

    Attributes:
        train: Rows to train on.
        measured: Rows to measure on, by the name of the measurement.
    """

    train: Ints
    measured: dict[str, Ints]


def trial_split(task: Task, rows: int, trial: int) -> Split | None:
    """Return the split of a trial; None where all trials have the same."""
    split = task.data.split
    if split is None or split.seed is not None:
        return None
    order = np.random.default_rng([trial]).permutation(rows).astype(np.int32)
    train, test = order[: split.train], order[split.train : split.train + split.test]
    kept = split.train - task.data.validation
    measured = {"test_error": test} | ({"validation_error": train[kept:]} if task.data.validation else {})
    return Split(train=train[:kept], measured=measured)
