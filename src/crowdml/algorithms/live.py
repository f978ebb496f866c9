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
        opening: The same for the first version, where an algorithm begins with another message; None elsewhere.
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
    opening: MaskedForm | None = None

    def uses(self, version: int) -> int:
        """Return how many uses a release to a version counts for."""
        sound = self.plan.sound
        return sound.opening_uses if sound and self.opening is not None and version == 0 else 1

    def form(self, version: int) -> MaskedForm:
        """Return how check-ins to a version become a masked sum."""
        found = self.opening if self.opening is not None and version == 0 else self.masked
        if found is None:
            raise ValueError("check-ins of this task are not masked")
        return found


def definition_of(task: Task) -> dict[str, Any]:
    """Return what a sheet says of a task: everything but the simulated crowd and the dataset's name."""
    content: dict[str, Any] = task.model_dump(mode="json", by_alias=True, exclude={"crowd": True})
    for name in ("dataset", "validation", "split"):
        content["data"].pop(name)
    for name in ("columns", "units", "id"):
        # Where there are none the text is as it was before there could be any: a restored task stays the same task.
        if not content["data"][name]:
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
    model, flat = task.model_for(NUMPY), not task.recipe.sums_only
    plan = task.plan(model)
    hyper = task.hyper(plan) | dict(public or {})
    algorithm, server = task.build(NUMPY), task.build(NUMPY, hyper, flat=flat)
    broadcast = algorithm.check_out(algorithm.init(StillCoins()))
    check_in = example_check_in(algorithm, broadcast, task.features)
    messages = layouts(broadcast, check_in)
    begun = server.init(StillCoins())
    shaped = Messages(
        check_out=Layout(message(0, server.check_out(begun)), messages.check_out),
        check_in=Layout(message(0, _flat_update(check_in)), messages.check_in),
    )
    return LiveTask(
        task=task,
        algorithm=algorithm,
        server=server,
        plan=plan,
        messages=messages,
        server_messages=shaped,
        state=Layout(begun),
        row=Layout({"row": algorithm.row_init()}),
        transform=_fitting(task, compose(fitted)),
        masked=masked_form_of(task, algorithm, broadcast),
        opening=masked_form_of(task, algorithm.opening, broadcast) if algorithm.opening else None,
    )


def masked_form_of(task: Task, algorithm: Algorithm, broadcast: Tree) -> MaskedForm | None:
    """Work out the masked form of a task's check-ins, or of those that open it."""
    plan = task.plan(task.model_for(NUMPY))
    check_in = example_check_in(algorithm, broadcast, task.features)
    mechanism = None
    if plan.sound:
        mechanism = plan.sound.opening if "moments" in check_in and plan.sound.opening else plan.sound.update
    example = check_in if task.recipe.sums_only else _flat_update(check_in)
    return make_masked_form(task, algorithm, plan, example, mechanism)


def assemble_form(task: Task) -> MaskedForm | None:
    """Work out the masked form of a task alone."""
    algorithm = task.build(NUMPY)
    broadcast = algorithm.check_out(algorithm.init(StillCoins()))
    if algorithm.opening:
        masked_form_of(task, algorithm.opening, broadcast)
    return masked_form_of(task, algorithm, broadcast)


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
            hint='use "crowd-sgd", "local-sgd", "fedavg", "fedsgd", "admm", "consensus-newton" or "ridge"',
        )
    if task.recipe.sums_only and not task.sums.masked:
        raise BadInput(
            f"{task.algorithm.kind} is made for sums: live, nobody may see one device's message",
            where="sums.masked",
            hint="add to the task file: [sums] and masked = true",
        )
    if getattr(task.algorithm, "devices", 0) is None:
        raise BadInput(
            "how many devices take part? A live server cannot know who will join",
            where="algorithm.devices",
            hint="such as devices = 100: the share of the crowd behind a version is counted by it",
        )


def example_check_in(algorithm: Algorithm, broadcast: Tree, features: int) -> Tree:
    """Make one check-in of an empty batch, for its shape."""
    size = max(algorithm.batch, algorithm.visit.multiple if algorithm.visit else 1)
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
