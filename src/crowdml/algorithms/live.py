"""What server and devices share about a live task: the algorithm over NumPy, its messages, its terms.

Both build it from the same sheet, so that they cannot disagree about the one legal shape of a check-in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.algorithms.attacks.contract import UPDATES
from crowdml.algorithms.contract import Algorithm
from crowdml.algorithms.masked_form import MaskedForm, make_masked_form
from crowdml.algorithms.public_file import read_public
from crowdml.algorithms.task import Task
from crowdml.core import NUMPY, Array, BadInput, Batch, record
from crowdml.core.ops import Tree
from crowdml.data.transforms import Fitted, compose, fit_rows
from crowdml.models import flatten
from crowdml.privacy import Plan
from crowdml.protocol import Layout, Messages, Sheet, layouts, message

LIVE_MODES = ("sound", "none")
Rows = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
"""Turns rows into rows."""


@record
class LiveTask:
    """A task as server and devices run it.

    Attributes:
        task: The settings.
        algorithm: Its functions, over NumPy.
        server: The same functions with parameters as one vector, for the server.
        plan: Bound, noise and promise.
        messages: Layout of both messages.
        server_messages: The same bytes with parameters as one vector.
        state: Layout of the server's state.
        row: Layout of what the server keeps for one device.
        transform: Turns an owner's rows into the model's.
        masked: How check-ins become masked sums; None where each is sent by itself.
    """

    task: Task
    algorithm: Algorithm
    server: Algorithm
    plan: Plan
    messages: Messages
    server_messages: Messages
    state: Layout
    row: Layout
    transform: Rows
    masked: MaskedForm | None = None


def definition_of(task: Task) -> dict[str, Any]:
    """Return what a sheet says of a task: everything but the simulated crowd and the dataset's name."""
    content: dict[str, Any] = task.model_dump(mode="json", by_alias=True, exclude={"crowd": True})
    for name in ("dataset", "validation", "split"):
        content["data"].pop(name)
    return content


def open_task(sheet: Sheet, public: Mapping[str, Array] | None = None) -> LiveTask:
    """Build a task from its sheet; what cannot be run live is refused.

    Args:
        sheet: The sheet.
        public: Public rows as `public_file.require_public` returns them, on a server whose task needs some.
    """
    task = Task.model_validate(sheet.definition, by_alias=True, by_name=False)
    require_live(task)
    if task.name != sheet.task:
        raise BadInput(f"the sheet of {sheet.task} defines {task.name}")
    if len(sheet.arrays) != len(task.data.transform):
        raise BadInput(f"{len(task.data.transform)} transforms, but arrays for {len(sheet.arrays)}")
    fitted = [transform.restore(own) for transform, own in zip(task.data.transform, sheet.arrays, strict=True)]
    return assemble(task, fitted, public)


def assemble(task: Task, fitted: list[Fitted], public: Mapping[str, Array] | None = None) -> LiveTask:
    """Build a task whose transforms are ready."""
    model = task.model_for(NUMPY)
    hyper = task.hyper(task.plan(model)) | dict(public or {})
    algorithm, server = task.build(NUMPY), task.build(NUMPY, hyper, flat=True)
    broadcast = algorithm.check_out(algorithm.init(StillCoins()))
    check_in = example_check_in(algorithm, broadcast, task.features)
    messages = layouts(broadcast, check_in)
    begun = server.init(StillCoins())
    flat = Messages(
        check_out=Layout(message(0, server.check_out(begun)), messages.check_out),
        check_in=Layout(message(0, _flat_update(check_in)), messages.check_in),
    )
    plan = task.plan(model)
    return LiveTask(
        task=task,
        algorithm=algorithm,
        server=server,
        plan=plan,
        messages=messages,
        server_messages=flat,
        state=Layout(begun),
        row=Layout({"row": algorithm.row_init()}),
        transform=_fitting(task, compose(fitted)),
        masked=make_masked_form(task, algorithm, plan, _flat_update(check_in)),
    )


def assemble_form(task: Task) -> MaskedForm | None:
    """Work out the masked form of a task alone."""
    algorithm = task.build(NUMPY)
    check_in = example_check_in(algorithm, algorithm.check_out(algorithm.init(StillCoins())), task.features)
    return make_masked_form(task, algorithm, task.plan(task.model_for(NUMPY)), _flat_update(check_in))


def _fitting(task: Task, transform: Rows) -> Rows:
    """Refuse transforms whose arrays were learnt from rows of another length."""
    made = transform(np.zeros((1, task.data.features), np.float32))
    if made.shape != (1, task.features):
        raise BadInput(f"rows have {made.shape[1]} numbers after the transforms, not {task.features}", where="arrays")
    return transform


def _flat_update(check_in: Tree) -> Tree:
    """Make one vector of whatever has the model's shape."""
    return {name: flatten(own) if name in UPDATES else own for name, own in check_in.items()}


def fit_public(task: Task, path: Path | None) -> tuple[dict[str, npt.NDArray[Any]], ...]:
    """Fit the transforms of a task on a file of public rows; return what each learnt, for the sheet."""
    chain = task.data.transform
    learning = [transform.kind for transform in chain if transform.learns]
    if not learning:
        return tuple({} for _ in chain)
    if path is None:
        raise BadInput(
            f"{', '.join(learning)} must be fitted, and what it learns travels to everybody",
            where="data.transform",
            hint='give public rows: --public FILE.npz, with an array "rows"',
        )
    rows, _ = read_public(path, task.data.features)
    return tuple(fitted.arrays for fitted in fit_rows(chain, rows))


def require_live(task: Task) -> None:
    """Refuse what exists in simulation only."""
    if task.privacy.mode not in LIVE_MODES:
        raise BadInput(
            f'mode = "{task.privacy.mode}" exists in simulation only',
            where="privacy.mode",
            hint='use "sound", or "none" to say openly that nothing is promised',
        )
    if not task.recipe.live:
        raise BadInput(
            f"{task.algorithm.kind} exists in simulation only",
            where="algorithm.kind",
            hint='use "crowd-sgd", "local-sgd", "fedavg" or "fedsgd"',
        )


def example_check_in(algorithm: Algorithm, broadcast: Tree, features: int) -> Tree:
    """Make one check-in of an empty batch, for its shape."""
    size = max(algorithm.batch, algorithm.rounds.multiple if algorithm.rounds else 1)
    rows = np.zeros((size, features), np.float32)
    batch = Batch(rows=rows, labels=np.zeros(size, np.int32), mask=np.zeros(size, np.float32))
    release, _ = algorithm.device_step(broadcast, algorithm.device_init(), batch, StillCoins())
    return algorithm.sanitise(release, StillCoins())


class StillCoins:
    """Coins that always fall the same way, where only shapes matter."""

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Array:
        """One half."""
        return np.full(shape, 0.5, np.float32)

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Zero."""
        return np.zeros(shape, np.float32)

    gaussian = laplace

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Zero."""
        return np.zeros(shape, np.int32)

    discrete_gaussian = discrete_laplace
    skellam = discrete_laplace

    def retry(self, number: Array) -> StillCoins:
        """Fall the same way."""
        return self
