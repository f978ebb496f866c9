"""A model of one's own: some steps on a device's own rows, on top of the common model. Nothing of it ever leaves.

The common model knows what all devices share; a few steps more adapt it to one owner's hand. They cost no privacy:
nobody but the owner sees what comes of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pydantic import Field

from crowdml.core import Batch, Settings, trees
from crowdml.core.ops import Tree
from crowdml.models import Model


class PersonalSettings(Settings):
    """Steps of a device's own, on top of the common model."""

    steps: int = Field(0, ge=0, description="steps each device takes for itself at the end; 0: none")
    batch: int = Field(10, gt=0, description="rows per step, in turn")
    rate: float = Field(0.1, gt=0, description="learning rate, constant")


def personal_model(
    model: Model,
    parameters: Tree,
    rows: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int32],
    settings: PersonalSettings,
) -> Tree:
    """Take the steps and return the device's own parameters; rows are as the model sees them.

    Args:
        model: The model, over NumPy.
        parameters: The common model.
        rows: The device's own rows, in any order: they are used in turn.
        labels: Their class numbers.
        settings: How many steps, and how large.
    """
    size = min(settings.batch, len(rows))
    for step in range(settings.steps if size else 0):
        chosen = (np.arange(size) + step * size) % len(rows)
        batch = Batch(rows=rows[chosen], labels=labels[chosen], mask=np.ones(size, np.float32))
        mean = model.gradients(parameters, batch).total(np.full(size, 1 / size, np.float32))
        parameters = trees.map(lambda own, down: own - np.float32(settings.rate) * down, parameters, mean)
    return parameters
