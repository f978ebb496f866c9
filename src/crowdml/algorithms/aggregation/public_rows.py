"""Public rows on the server: the loss of a model on them, and what follows from it.

They belong to nobody in the crowd: looking at them costs no privacy. A driver hands them in beside the
hyper-parameters. Half of them are learnt from where something is chosen, the other half judges the choice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from crowdml.core import Array, BadInput, Batch, Ops, Settings, Target, record, trees
from crowdml.core.ops import joined
from crowdml.models import Model

ROWS, TARGETS = "public-rows", "public-targets"
"""Among the hyper-parameters: the rows as the model sees them, and their targets."""

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
        targets: What they are mapped to.
        model: The model.
        ops: Array operations.
    """

    rows: Array
    targets: Array
    model: Model
    ops: Ops

    @staticmethod
    def of(model: Any, hyper: Mapping[str, Array], ops: Ops) -> Public:
        """Take what the driver handed in."""
        if ROWS not in hyper:
            raise ValueError(f'this task needs public rows: the driver hands them in as hyper["{ROWS}"]')
        targets = hyper[TARGETS].astype(full_model(model).loss.target.dtype)
        return Public(rows=hyper[ROWS], targets=targets, model=full_model(model), ops=ops)

    def first(self, count: int | None) -> Public:
        """Return the first rows alone; all of them where no number is given."""
        return Public(rows=self.rows[:count], targets=self.targets[:count], model=self.model, ops=self.ops)

    def halves(self) -> tuple[Public, Public]:
        """Split into rows to learn from and rows to judge by; they are in random order."""
        middle = len(self.rows) // 2
        first, second = (
            Public(rows=self.rows[part], targets=self.targets[part], model=self.model, ops=self.ops)
            for part in (slice(0, middle), slice(middle, None))
        )
        return first, second

    def losses(self, vector: Array) -> Array:
        """Return the loss of each row."""
        return self.model.losses(trees.cut(vector, self.model.zeros()), self.rows, self.targets)

    def gradient(self, vector: Array) -> Array:
        """Return the gradient of the mean loss."""
        ones = self.ops.xp.ones(len(self.rows), dtype=self.ops.xp.float32)
        batch = Batch(rows=self.rows, targets=self.targets, mask=ones)
        found = self.model.gradients(trees.cut(vector, self.model.zeros()), batch)
        return joined(found.total(ones / len(self.rows)), self.ops)

    def finetuned(self, vector: Array, settings: FinetuneSettings) -> Array:
        """Take steps on all rows."""
        return minimise(self.gradient, vector, settings.steps, settings.rate, self.ops)


def full_model(model: Any) -> Model:
    """Return the model behind the parameters, also where a server holds them as one vector."""
    found: Model = getattr(model, "model", model)
    return found


Per = Literal["layer", "tensor"]
"""What has a weight of its own: a layer, or each of its arrays, weights and biases apart (as in ODPFL)."""


def layer_spans(model: Model, per: Per = "layer") -> tuple[slice, ...]:
    """Return where the numbers of each layer, or of each array, stand in the vector of all parameters."""
    parts = model.zeros() if per == "layer" else trees.leaves(model.zeros())
    sizes = [trees.size(part) for part in parts]
    ends = list(itertools.accumulate(sizes))
    return tuple(slice(end - size, end) for size, end in zip(sizes, ends, strict=True) if size)


def require_targets(targets: npt.NDArray[Any], target: Target, least: int) -> None:
    """Refuse public rows that are too few to learn from, or that lack a label."""
    if len(targets) < least:
        raise BadInput(
            f"{len(targets)} public rows are too few: at least {least} are needed",
            where="data.public",
            hint=f"public = {least} or more",
        )
    missing = [name for number, name in enumerate(target.label_names) if not (np.asarray(targets) == number).any()]
    if missing:
        raise BadInput(
            f"no public row has the label {', '.join(missing)}: what is chosen on them would forget it",
            where="data.public",
            hint="more public rows, with every label among them",
        )


FIRST, SECOND = 0.9, 0.999


def minimise(gradient: Callable[[Array], Array], start: Array, steps: int, rate: float, ops: Ops) -> Array:
    """Take Adam's steps (Kingma and Ba, 2015) from `start`; `gradient(point)` has the point's shape."""
    xp = ops.xp

    def step(carry: tuple[Array, Array, Array], count: Array) -> tuple[Array, Array, Array]:
        point, mean, square = carry
        slope = gradient(point)
        mean = xp.float32(FIRST) * mean + xp.float32(1 - FIRST) * slope
        square = xp.float32(SECOND) * square + xp.float32(1 - SECOND) * slope * slope
        first = mean / (1 - xp.float32(FIRST) ** count)
        second = square / (1 - xp.float32(SECOND) ** count)
        return point - xp.float32(rate) * first / (xp.sqrt(second) + xp.float32(1e-8)), mean, square

    counts = xp.arange(1, steps + 1).astype(xp.float32)
    return ops.fold(step, (start, xp.zeros_like(start), xp.zeros_like(start)), counts)[0]
