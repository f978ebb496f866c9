"""A model of the owner's own. Nothing of it leaves the device.

    model = personal_of(Home("home"), "rows.csv", PersonalSettings(steps=20))
    model.predictions(rows)

It is the common model, and some steps on the owner's rows; or where the task's algorithm teaches every device a model
of its own (ditto), that one, as the device has it by now. Neither has noise of its own: it says much about the rows,
and is for the owner alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.algorithms.solitary import PersonalSettings, personal_model
from crowdml.core import NUMPY, BadInput, record, trees
from crowdml.core.files import write_whole
from crowdml.core.ops import Tree
from crowdml.data.rows.row_contract import Warn
from crowdml.data.rows.row_tables import Table
from crowdml.device.calls import connected
from crowdml.device.device_home import Home, Member
from crowdml.device.rows.row_sources import KeptRows, source_of
from crowdml.device.server_connection import Connection
from crowdml.device.task_memory import kept_state
from crowdml.models import Own
from crowdml.task.live_task import LiveTask
from crowdml.task.model_files import model_file
from crowdml.wire import Layout

SECRET = "learnt from its owner's rows without noise: not to be given away"  # noqa: S105  what the file says of itself


@record
class HeldOut:
    """How both models did on rows that the owner's steps had not seen; of a model that was kept, on all rows given.

    Attributes:
        rows: So many rows.
        common: How many the common model got wrong; of numbers, the sum of relative errors.
        personal: The same of the owner's model.
    """

    rows: int
    common: float
    personal: float


@record
class Personal:
    """A model of the owner's own.

    Attributes:
        live: The task.
        parameters: The model's parameters.
        version: Version of the common model below it.
        steps: The owner's steps on top; None: it is the model that the device has kept for the task.
        held_out: How it compares with the common model; None where no rows were held out.
    """

    live: LiveTask
    parameters: Tree
    version: int
    steps: int | None
    held_out: HeldOut | None

    def predictions(self, rows: npt.NDArray[Any]) -> list[Any]:
        """Return the label of each row, or the number; rows are as the owner has them."""
        found = self.live.task.model_for(NUMPY).predict(self.parameters, self.live.transform(rows))
        return list(self.live.task.target.decode(found))

    def save(self, path: Path | str, arrays: tuple[Mapping[str, npt.NDArray[Any]], ...] | None = None) -> None:
        """Write the model into a file that only the owner can read.

        Args:
            path: Ends in .safetensors; or in .onnx, with the task's transforms inside.
            arrays: What the transforms have learnt, as in the signed task: for ONNX.
        """
        path = Path(path)
        content = model_file(path, self.live.task, arrays or (), self.parameters, self._metadata())
        write_whole(path, content, secret=True)

    def _metadata(self) -> dict[str, str]:
        task = self.live.task
        told = {"crowdml": "1", "task": task.name, **task.target.metadata, "privacy": SECRET}
        steps = "kept" if self.steps is None else str(self.steps)
        return told | {"version": str(self.version), "personal-steps": steps}


def personal_of(
    home: Home,
    rows: Any,
    settings: PersonalSettings | None = None,
    *,
    task: str | None = None,
    held_out: float = 0.0,
    label_column: str | None = None,
    warn: Warn = lambda line: None,
    connect: Callable[..., Connection] = Connection,
) -> Personal:
    """Ask the server for the common model, as any device of the task may at any time, and adapt it to the rows.

    Args:
        home: The device's folder.
        rows: A file or arrays, as for `Device.run`.
        settings: How many steps, and how large; None: none are taken, and the model is the one that the device has kept
            for the task. `keeps_model` says whether there is one.
        task: Which task, if the device has joined several.
        held_out: Part of the rows that is not learnt from, to compare both models on.
        label_column: Which column of a file holds the labels; None: the one that the task names.
        warn: Told where numbers are taken by position, although the task names its columns.
        connect: For tests: makes the connection.
    """
    member = home.member(task)
    if member.state != "joined":
        raise BadInput(f"this device is not in the crowd of {member.task}", hint="crowdml device join URL")
    live = home.live(member)
    kept = _kept_model(home, member, live) if settings is None else None
    model = _common_model(home, member, live, connect)
    if settings is not None:
        return personal(live, model, rows, settings, held_out=held_out, label_column=label_column, warn=warn)
    common, version = _read(live, model)
    compared = _compare(live, _table(live, rows, label_column, warn), common, kept)
    return Personal(live=live, parameters=kept, version=version, steps=None, held_out=compared)


def _common_model(home: Home, member: Member, live: LiveTask, connect: Callable[..., Connection]) -> bytes:
    """Ask for the model that all devices share; in a net of pieces each group has one, which its members have."""
    if live.sliced is not None:
        from crowdml.device.slice_member import group_model

        return group_model(home.folder(member))
    with connected(member, connect) as calls:
        return calls.model(trees.size(live.task.model_for(NUMPY).zeros()) * 4)


def keeps_model(home: Home, task: str | None = None) -> bool:
    """Tell whether the algorithm of a task teaches every device a model of its own."""
    phase = home.live(home.member(task)).algorithm.last
    return phase.device.model(phase.begin().work) is not None


def _kept_model(home: Home, member: Member, live: LiveTask) -> Tree:
    """Read the model that a device has kept for a task."""
    phase = live.algorithm.last
    begun = phase.begin()
    if phase.device.model(begun.work) is None:
        what = f"{live.task.algorithm.kind} keeps no model on a device"
        raise BadInput(what, where="--steps", hint="say how many steps to take on the common model, such as 20")
    stored = kept_state(home.memory_path(member))
    if stored is None:
        what = "this device has not contributed yet: its own model begins with its first contribution"
        raise BadInput(what, hint="crowdml device run --rows FILE; or --steps 20 for steps on the common model")
    return phase.device.model(Layout({"device": begun}).decode(stored)["device"].work)


def _table(live: LiveTask, rows: Any, label_column: str | None, warn: Warn) -> Table:
    """Read the owner's rows; all of them must be there."""
    source = source_of(rows, live.task.data.contract, label_column, warn)
    if not isinstance(source, KeptRows):
        raise BadInput("a model of one's own needs rows that are all there: a file, or arrays")
    return source.table()


def personal(
    live: LiveTask,
    model: Path | str | bytes,
    rows: Any,
    settings: PersonalSettings,
    *,
    held_out: float = 0.0,
    label_column: str | None = None,
    warn: Warn = lambda line: None,
) -> Personal:
    """Adapt an exported model to the owner's own rows.

    Args:
        live: The task, such as a device's `live`.
        model: What `crowdml task export -o model.safetensors` wrote: the file, or what is in it.
        rows: A file or arrays, as for `Device.run`.
        settings: How many steps, and how large.
        held_out: Part of the rows that is not learnt from, to compare both models on.
        label_column: Which column of a file holds the labels; None: the one that the task names.
        warn: Told where numbers are taken by position, although the task names its columns.
    """
    table = _table(live, rows, label_column, warn)
    common, version = _read(live, model)
    learnt, aside = _apart(table, held_out)
    adapted = personal_model(live.task.model_for(NUMPY), common, live.transform(learnt.rows), learnt.targets, settings)
    compared = _compare(live, aside, common, adapted) if len(aside) else None
    return Personal(live=live, parameters=adapted, version=version, steps=settings.steps, held_out=compared)


def _apart(table: Table, held_out: float) -> tuple[Table, Table]:
    """Shuffle, always alike: files are often sorted by label. The first rows are held out."""
    order = np.random.default_rng(0).permutation(len(table))
    count = round(held_out * len(table))
    return table.take(order[count:]), table.take(np.sort(order[:count]))


def _compare(live: LiveTask, aside: Table, common: Tree, adapted: Tree) -> HeldOut:
    model, rows = live.task.model_for(NUMPY), live.transform(aside.rows)
    target = live.task.target
    before, after = (
        float(target.measures(model.predict(parameters, rows), aside.targets, NUMPY)["test_error"])
        for parameters in (common, adapted)
    )
    return HeldOut(rows=len(aside), common=round(before * len(aside), 6), personal=round(after * len(aside), 6))


def _read(live: LiveTask, model: Path | str | bytes) -> tuple[Tree, int]:
    """Read an exported model of this task, and its version; -1 where the file does not say."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    name = "what the server sent" if isinstance(model, bytes) else str(model)
    like = live.task.model_for(NUMPY).zeros()
    try:
        raw = model if isinstance(model, bytes) else Path(model).read_bytes()
        # The names of a model of the operator's own are its library's.
        layer = "0/" if isinstance(live.task.model, Own) else ""
        arrays = {layer + path: leaf for path, leaf in load(raw).items()}
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{name} is not a model: {error}", hint="crowdml task export -o model.safetensors") from None
    shapes = {path: leaf.shape for path, leaf in trees.paths(like)}
    if {path: leaf.shape for path, leaf in arrays.items()} != shapes:
        raise BadInput(f"{name} is a model of another task")
    if not all(np.isfinite(leaf).all() for leaf in arrays.values()):
        raise BadInput(f"{name} has numbers that are not finite")
    return trees.map_paths(lambda path, _: arrays[path].astype(np.float32), like), _version(raw)


def _version(raw: bytes) -> int:
    """Read the version out of the header, which the parser has checked."""
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    told = header.get("__metadata__", {}).get("version", "")
    return int(told) if told.isdecimal() else -1
