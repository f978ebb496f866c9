"""A model of the owner's own: the common model, and some steps on the owner's rows. Nothing of it leaves the device.

own = personal(device.live, "model.safetensors", "rows.csv", PersonalSettings(steps=20))
own.labels(rows)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.algorithms.live import LiveTask
from crowdml.algorithms.personal import PersonalSettings, personal_model
from crowdml.core import NUMPY, BadInput, record, trees
from crowdml.core.ops import Tree
from crowdml.device.rows import Contract, KeptRows, source_of


@record
class Personal:
    """A model of the owner's own.

    Attributes:
        live: The task.
        parameters: The model's parameters.
    """

    live: LiveTask
    parameters: Tree

    def labels(self, rows: npt.NDArray[Any]) -> list[str]:
        """Name the label of each row; rows are as the owner has them."""
        found = self.live.task.model_for(NUMPY).predict(self.parameters, self.live.transform(rows))
        return [self.live.task.data.labels[int(own)] for own in found]


def personal(
    live: LiveTask, model: Path | str, rows: Any, settings: PersonalSettings, *, label_column: str = "label"
) -> Personal:
    """Adapt an exported model to the owner's own rows.

    Args:
        live: The task, such as a device's `live`.
        model: What `crowdml task export -o model.safetensors` wrote.
        rows: A file or arrays, as for `Device.run`.
        settings: How many steps, and how large.
        label_column: Which column of a CSV file holds the labels.
    """
    data = live.task.data
    source = source_of(rows, Contract(features=data.features, labels=tuple(data.labels)), label_column)
    if not isinstance(source, KeptRows):
        raise BadInput("a model of one's own needs rows that are all there: a file, or arrays")
    table, common = source.table(), _read(live, Path(model))
    own = personal_model(live.task.model_for(NUMPY), common, live.transform(table.rows), table.labels, settings)
    return Personal(live=live, parameters=own)


def _read(live: LiveTask, path: Path) -> Tree:
    """Read an exported model of this task."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    like = live.task.model_for(NUMPY).zeros()
    try:
        arrays = load_file(path)
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{path} is not a model: {error}", hint="crowdml task export -o model.safetensors") from None
    shapes = {name: leaf.shape for name, leaf in trees.paths(like)}
    if {name: leaf.shape for name, leaf in arrays.items()} != shapes:
        raise BadInput(f"{path} is a model of another task")
    return trees.map_paths(lambda name, _: arrays[name].astype(np.float32), like)
