"""Public rows on the server: the loss of a model on them, and what follows from it.

They belong to nobody in the crowd: looking at them costs no privacy. A driver hands them in beside the
hyper-parameters. Half of them are learnt from where something is chosen, the other half judges the choice.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from crowdml.algorithms.contract import Parts
from crowdml.algorithms.minimising import minimise
from crowdml.core import Array, BadInput, Batch, Ops, Settings, record, trees
from crowdml.models import Model

ROWS, LABELS = "public-rows", "public-labels"
"""Among the hyper-parameters: the rows as the model sees them, and their labels."""

LEAST_TO_LEARN = 200
"""Public rows below this cannot tell a better average from luck: half of them judge, with an error of some 7 %."""


class FinetuneSettings(Settings):
    """Steps that the server takes on public rows after every version."""

    steps: int = Field(0, ge=0, description="steps on all public rows after every version; 0: none")
    rate: float = Field(0.01, gt=0, description="Adam's rate")


@record
class Public:
    """Labelled rows that belong to nobody, and the model whose loss they measure. Parameters are one vector here.

    Attributes:
        rows: The rows as the model sees them.
        labels: Their class numbers.
        model: The model.
        ops: Array operations.
    """

    rows: Array
    labels: Array
    model: Model
    ops: Ops

    @staticmethod
    def of(parts: Parts) -> Public:
        """Take what the driver handed in."""
        if ROWS not in parts.hyper:
            raise ValueError(f'this task needs public rows: the driver hands them in as hyper["{ROWS}"]')
        labels = parts.hyper[LABELS].astype(parts.ops.xp.int32)
        return Public(rows=parts.hyper[ROWS], labels=labels, model=full_model(parts), ops=parts.ops)

    def first(self, count: int | None) -> Public:
        """Return the first rows alone; all of them where no number is given."""
        return Public(rows=self.rows[:count], labels=self.labels[:count], model=self.model, ops=self.ops)

    def halves(self) -> tuple[Public, Public]:
        """Split into rows to learn from and rows to judge by; they are in random order."""
        middle = len(self.rows) // 2
        first, second = (
            Public(rows=self.rows[part], labels=self.labels[part], model=self.model, ops=self.ops)
            for part in (slice(0, middle), slice(middle, None))
        )
        return first, second

    def losses(self, vector: Array) -> Array:
        """Return the loss of each row."""
        return self.model.losses(trees.cut(vector, self.model.zeros()), self.rows, self.labels)

    def gradient(self, vector: Array) -> Array:
        """Return the gradient of the mean loss."""
        ones = self.ops.xp.ones(len(self.rows), dtype=self.ops.xp.float32)
        batch = Batch(rows=self.rows, labels=self.labels, mask=ones)
        found = self.model.gradients(trees.cut(vector, self.model.zeros()), batch)
        return trees.joined(found.total(ones / len(self.rows)), self.ops)

    def finetuned(self, vector: Array, settings: FinetuneSettings) -> Array:
        """Take steps on all rows."""
        return minimise(self.gradient, vector, settings.steps, settings.rate, self.ops)


def full_model(parts: Parts) -> Model:
    """Return the model behind the parameters, also where a server holds them as one vector."""
    model: Model = getattr(parts.model, "model", parts.model)
    return model


def layer_spans(model: Model) -> tuple[slice, ...]:
    """Return where each layer's numbers stand in the vector of all parameters."""
    sizes = [trees.size(layer) for layer in model.zeros()]
    ends = list(itertools.accumulate(sizes))
    return tuple(slice(end - size, end) for size, end in zip(sizes, ends, strict=True) if size)


def require_labels(labels: npt.NDArray[Any], names: list[str], least: int) -> None:
    """Refuse public rows that are too few to learn from, or that lack a class."""
    if len(labels) < least:
        raise BadInput(
            f"{len(labels)} public rows are too few: at least {least} are needed",
            where="data.public",
            hint=f"public = {least} or more",
        )
    missing = [name for number, name in enumerate(names) if not (np.asarray(labels) == number).any()]
    if missing:
        raise BadInput(
            f"no public row has the label {', '.join(missing)}: what is chosen on them would forget it",
            where="data.public",
            hint="more public rows, with every label among them",
        )
