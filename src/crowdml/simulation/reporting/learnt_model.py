"""The model that a simulation has learnt: predictions for rows as owners have them, and files for other tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import NUMPY, BadInput, record
from crowdml.core.files import write_whole
from crowdml.core.ops import Tree
from crowdml.data.rows.row_columns import frame_columns, is_frame, require_finite
from crowdml.data.rows.word_columns import read_frame
from crowdml.data.transforms import compose
from crowdml.models.losses import logistic, softmax
from crowdml.task import Task
from crowdml.task.model_files import model_file

Arrays = Mapping[str, npt.NDArray[Any]]


@record
class LearntModel:
    """Parameters, and the transforms in front of them.

    Attributes:
        task: The task.
        parameters: The parameters of one trial.
        arrays: For every transform what it has learnt; empty for fixed ones.
        privacy: What the result says of privacy: it goes into files.
    """

    task: Task
    parameters: Tree
    arrays: tuple[Arrays, ...]
    privacy: Mapping[str, Any]

    def predict(self, rows: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the label of each row, by name, or the number in its own unit.

        Args:
            rows: Rows before the task's transforms, shape (any, features). Columns of a data frame are found by name
                where the task names its own, and others are passed over.
        """
        found = self.task.model_for(NUMPY).predict(self.parameters, self.transformed(rows))
        return np.asarray(self.task.target.decode(found))

    def predict_proba(self, rows: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the probability of every label, shape (any, labels), in the order of the task's labels.

        Raises:
            BadInput: The model has no probabilities: a support vector machine, least squares, or a number.
        """
        model = self.task.model_for(NUMPY)
        outputs = np.asarray(model.outputs(self.parameters, self.transformed(rows)), np.float64)
        kind = _probabilities(model.loss)
        if kind == "softmax":
            grown = np.exp(outputs - outputs.max(axis=0))
            return np.asarray((grown / grown.sum(axis=0)).T)
        if kind == "logistic":
            second = 0.5 * (1.0 + np.tanh(0.5 * outputs[0]))
            return np.stack([1.0 - second, second], axis=1)
        raise BadInput(
            f'the model "{self.task.model.kind}" has no probabilities',
            hint="predict gives its labels or numbers; logistic, softmax, and nets with these losses have them",
        )

    def save(self, path: Path | str) -> None:
        """Write the model into a file for other tools: `.onnx`, with the task's transforms inside, or `.safetensors`.

        Both say in their metadata what was promised and what it adds up to.
        """
        path = Path(path)
        write_whole(path, model_file(path, self.task, self.arrays, self.parameters, self._metadata()))

    def transformed(self, rows: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return what the model sees of rows: the task's columns in their order, after its transforms."""
        contract = self.task.data.contract
        if is_frame(rows) and contract.columns and any(isinstance(name, str) for name in rows.columns):  # type: ignore[union-attr]
            names = frame_columns(rows)
            chosen = [at for at, name in enumerate(names) if name in contract.columns]
            places = [chosen[at] for at in contract.places([names[at] for at in chosen], "rows")]
            rows = read_frame(rows, contract.slots, places, "rows")
        try:
            table = np.asarray(rows)
        except ValueError:
            raise BadInput("rows differ in length", where="rows", hint="as many numbers in each") from None
        if table.ndim != 2 or table.shape[1] != self.task.data.features or table.dtype.kind not in "fiub":
            raise BadInput(
                f"rows of shape {table.shape} and type {table.dtype} are not rows of this task",
                where="rows",
                hint=f"numbers of shape (any, {self.task.data.features}), as before the task's transforms",
            )
        if table.dtype.kind == "f":
            with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as such
                found = table.astype(np.float32, copy=False)
            require_finite(found, lambda at, column: f"rows, row {at + 1}, {contract.column(column)}", table)
        chain = zip(self.task.data.transform, self.arrays, strict=True)
        return compose([transform.restore(learnt) for transform, learnt in chain])(table)

    def _metadata(self) -> dict[str, str]:
        terms = self.task.privacy.model_dump(mode="json", by_alias=True, exclude_none=True)
        return {
            "crowdml": "1",
            "task": self.task.name,
            "objective": self.task.objective,
            **self.task.target.metadata,
            "simulated": "true",
            "terms": json.dumps(terms),
            "privacy": json.dumps(dict(self.privacy), ensure_ascii=False),
        }


def _probabilities(loss: Any) -> str:
    """Tell which kind of probabilities a loss stands for; empty where it stands for none.

    Asked of what a loss computes, as losses from outside the package have names of their own.
    """
    if not loss.target.has_accuracy:
        return ""
    outputs = np.linspace(-1.5, 2.0, loss.width * 3, dtype=np.float32).reshape(loss.width, 3)
    labels = np.array([0, 1, 0], np.int32)
    for name, made in (("softmax", softmax), ("logistic", logistic)):
        if loss.width != (loss.target.bins if name == "softmax" else 1) or (name == "logistic" and not loss.by_sign):
            continue
        if np.allclose(made(loss.target, NUMPY).values(outputs, labels), loss.values(outputs, labels), atol=1e-5):
            return name
    return ""
