"""A model of the user's own in a task: handed in, registered, or known by its layout alone; and its first weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from crowdml.algorithms.rates import Constant
from crowdml.core import NUMPY, BadInput
from crowdml.core.ops import Array
from crowdml.models import Own
from crowdml.models.adapters import TrainingLoop, adapt
from crowdml.models.adapters.start_files import read_start, to_text, write_start
from crowdml.task.averaging_terms import public_rows_needed
from crowdml.task.task import Task


def device_model(task: Task, model: Any) -> Task:
    """Return a signed task with the model that a device brings; its layout must be the signed one.

    Raises:
        BadInput: The task learns another kind of model, or the device's has another layout.
    """
    if not isinstance(task.model, Own):
        raise BadInput(
            f'the task learns a model of kind "{task.model.kind}", which every device has',
            where="model",
            hint="leave model out",
        )
    made = task.model_copy(update={"model": task.model.holding(adapt(model))})
    made.model_for(NUMPY)  # which compares layouts
    return made


def require_present(task: Task) -> None:
    """Refuse to work on rows for a task whose model this machine does not have."""
    if isinstance(task.model, Own) and not task.model.present:
        raise BadInput(
            f'the task learns a model of its operator\'s own, "{task.model.name}", which this device does not have',
            where="model",
            hint="crowdml.Device(home, model=…) in Python, or a file that registers it: CROWDML_PLUGINS=FILE.py",
        )
    require_loop_terms(task)


def require_loop_terms(task: Task) -> None:
    """Refuse a training loop where its change would not be what is sent, or where single rows are promised something.

    A loop may look at a row as often as it likes, and remember it: no ledger can count how often a sample was used.
    """
    if not isinstance(task.model, Own) or not isinstance(task.model.found, TrainingLoop):
        return
    if task.releases.sends != "change" or task.algorithm.rate != Constant(c=1.0) or task.model.regularisation:
        raise BadInput(
            "a training loop of your own takes its steps itself: what it has changed is sent as it is",
            where="algorithm",
            hint='kind = "fedavg" with rate = { kind = "constant", c = 1.0 } and no regularisation',
        )
    if task.calibrated.terms.promised and task.privacy.unit != "device":
        raise BadInput(
            "nobody knows which rows a training loop of your own has used, so nothing can be promised to single ones",
            where="privacy.unit",
            hint='unit = "device", with stop.max-releases; or mode = "none"',
        )


def require_live_model(task: Task) -> None:
    """Refuse a live task whose server would have to look into a model that it does not have."""
    if not isinstance(task.model, Own):
        return
    if not task.model.layout or not task.model.start:
        raise BadInput(
            "a server begins with first weights whose layout is signed, and the task has none",
            where="model.start",
            hint="crowdml task create FILE --start WEIGHTS.safetensors; crowdml.save_start writes such a file",
        )
    if public_rows_needed(task):
        raise BadInput(
            "a server does not look into a model of your own, so it cannot learn on public rows",
            where="model.kind",
            hint="use another way of averaging, or a model of crowdml",
        )


def start_changes(path: Path | str) -> list[str]:
    """Return the changes to a task file that give it the layout and the weights of a file."""
    arrays = read_start(path)
    shapes = ", ".join(f'"{_escaped(name)}" = {list(array.shape)}' for name, array in arrays.items())
    return [f"model.layout={{ {shapes} }}", f"model.start='{to_text(arrays)}'"]


def _escaped(name: str) -> str:
    if not name.isprintable():
        raise BadInput(f"{name!r} is no name for an array", where="start")
    return name.replace("\\", "\\\\").replace('"', '\\"')


def save_start(task: Task, model: Any, path: Path | str, seed: int = 0) -> None:
    """Write first weights of a model as a safetensors file, for `crowdml task create --start`.

    Args:
        task: Says what rows and targets are.
        model: As in `task_checks.with_model`.
        path: The file, which ends in .safetensors.
        seed: Draws the weights, where the model draws some.
    """
    if Path(path).suffix != ".safetensors":
        raise BadInput(f"{path} is no file of weights", where="start", hint="it ends in .safetensors")
    (arrays,) = adapt(model).build(task.features, task.target, NUMPY).init(SeededCoins(seed))
    write_start(path, arrays)


class SeededCoins:
    """Uniform numbers from a seed, to begin models with. Implements what `init` asks of `Coins`."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Uniform on (0, 1)."""
        return np.maximum(self._generator.random(shape, dtype=np.float32), np.float32(2.0**-25))

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Refuse: nothing is hidden by these coins."""
        raise TypeError("these coins begin models, and hide nothing")

    gaussian = laplace

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Refuse: nothing is hidden by these coins."""
        raise TypeError("these coins begin models, and hide nothing")
