"""The user's own rows: what a task's `[data]` section names, or a caller hands over, bound to the task.

`bind` looks at whatever was given and returns a task whose `data.dataset` is a name for exactly these rows, made from
their content, and whose crowd has a device for every owner. The rows themselves wait here until `prepare` asks for
them by that name. So everything after it, sweeps, checkpoints and workers, knows them as it knows any other dataset.

    a `Dataset`               as `Dataset.from_arrays` and `from_frame` make it
    a data frame              columns by name, as the task says
    (rows, targets), (rows, targets, owners)
    a path                    of a .csv, .npz or .parquet file, as `data.file` names it
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from crowdml.core import BadInput
from crowdml.data import Dataset
from crowdml.data.held_out import TEST_SHARE
from crowdml.data.own_rows import OwnRows, identity
from crowdml.data.partitions import Writer
from crowdml.data.rows.array_rows import translate
from crowdml.data.rows.row_columns import is_frame
from crowdml.data.rows.row_contract import Contract
from crowdml.data.rows.row_files import RowFile
from crowdml.simulation.shared_rows import make_room
from crowdml.task import Task
from crowdml.task.task_checks import check

KEPT = 4
"""How many rows of callers are remembered, the last ones; a file is read again."""


class _Bound:
    """Rows that wait to be prepared.

    Args:
        load: Returns them.
        disposable: Whether what it returns is nobody else's, so that transforms may write into it.
    """

    def __init__(self, load: Callable[[], Dataset], disposable: bool) -> None:
        self._load, self.disposable = load, disposable
        self._loaded: Dataset | None = None
        self._owners: int | None = None

    def owners(self) -> int:
        """Count the owners; 0: nobody says whose the rows are. The rows are read for it, the first time."""
        if self._owners is None:
            self._loaded = self._load()
            whose = self._loaded.train_owners
            self._owners = 0 if whose is None else len(np.unique(whose))
        return self._owners

    def take(self) -> Dataset:
        """Return the rows; they are no longer held here."""
        found, self._loaded = self._loaded or self._load(), None
        return found


_bound: dict[str, _Bound] = {}


def bind(task: Task, data: Any = None) -> Task:
    """Return a task with rows of the user's own; the same task where it has none.

    Args:
        task: The task.
        data: What was given; None: what `data.file` of the task names.
    """
    if data is None and task.data.file is None:
        _require_no_file_keys(task)
        return task
    name, made = _named(task, RowFile(path=Path(task.data.file or ""), setting="data.file") if data is None else data)
    if name not in _bound:
        while len(_bound) >= KEPT:
            _bound.pop(next(iter(_bound)))
        _bound[name] = made
    crowd = task.crowd
    if owners := _bound[name].owners():
        _check_crowd(task, owners)
        crowd = crowd.model_copy(update={"devices": owners, "partition": Writer()})
    blank = {"dataset": name, "file": None, "owner": None, "test": None}
    bound = task.model_copy(update={"data": task.data.model_copy(update=blank), "crowd": crowd})
    # Neither depends on rows or crowd, and noise takes long to find.
    bound.__dict__.update(
        {known: task.__dict__[known] for known in ("calibrated", "releases") if known in task.__dict__}
    )
    if owners:
        check(bound)
    return bound


def take(task: Task) -> tuple[Dataset, bool] | None:
    """Return the rows that a task was bound to, and whether they may be written into; None where it has a dataset."""
    name = task.data.dataset or ""
    if name in _bound:
        return _bound[name].take(), _bound[name].disposable
    if "@" in name:
        raise BadInput(
            f"the rows of {name} are no longer in memory",
            where="data",
            hint="hand them over again: simulate(task, data=…)",
        )
    return None


def _require_no_file_keys(task: Task) -> None:
    """Refuse keys that say something of a file where there is none: what they promise would not be simulated."""
    for key in ("owner", "test"):
        if getattr(task.data, key) is not None:
            raise BadInput(
                f"data.{key} is of rows of your own, and the rows of {task.data.dataset or 'this task'} are none",
                where=f"data.{key}",
                hint='give them: file = "rows.csv", --data rows.csv or simulate(task, data=…); or leave the key out',
            )


def _require_said(task: Task, data: Any) -> None:
    """Refuse rows in memory that leave unsaid, or say otherwise, what the task says: the crowd would be another."""
    whose = data.train_owners if isinstance(data, Dataset) else data[2] if len(data) == 3 else None
    if task.data.owner is not None and whose is None:
        raise BadInput(
            f'every "{task.data.owner}" is a device of this task, and these rows do not say whose they are',
            where="data.owner",
            hint="give Dataset.from_arrays(X, y, owners=…) or (X, y, owners); or leave data.owner out, and "
            "crowd.partition deals the rows to crowd.devices",
        )
    if task.data.test is not None and isinstance(data, Dataset):
        raise BadInput(
            f"{data.name} has its rows to test on already, {len(data.test_targets)} of them",
            where="data.test",
            hint=f"leave data.test out; or say it there: Dataset.from_arrays(X, y, test={task.data.test!r})"
            if isinstance(task.data.test, float)
            else "leave data.test out; or hand those rows over: Dataset.from_arrays(X, y, test=(rows, targets))",
        )


def _check_crowd(task: Task, owners: int) -> None:
    """Refuse a crowd that cannot have a device for every owner."""
    crowd = task.crowd
    if "devices" in crowd.model_fields_set and crowd.devices != owners:
        raise BadInput(
            f"{crowd.devices} devices for rows of {owners} owners: "
            + ("some would be empty" if crowd.devices > owners else "some owners would have none"),
            where="crowd.devices",
            hint="leave it out: every owner is a device",
        )
    if "partition" in crowd.model_fields_set and not isinstance(crowd.partition, Writer):
        raise BadInput(
            f"{crowd.partition.kind} would deal rows that have owners",
            where="crowd.partition",
            hint="leave it out: every owner is a device; or leave the owners out",
        )
    if task.data.split is not None:
        raise BadInput("rows that have owners are not split anew", where="data.split", hint="data.test = 0.2")


def _named(task: Task, data: Any) -> tuple[str, _Bound]:
    """Return a name for rows, made from their content and how they are read, and how to get them."""
    if isinstance(data, str | Path):
        data = RowFile(path=Path(data), setting="data")
    if isinstance(data, RowFile):
        file = dataclasses.replace(data, path=data.path.expanduser().absolute())
        reader = _own_rows(task)
        tested = identity(reader.test.path) if isinstance(reader.test, RowFile) else reader.test
        words = repr((identity(file.path), reader.contract, reader.label_column, tested))
        return f"{file.path.name}@{_digest(words)}", _Bound(lambda: reader.of_file(file, make_room), disposable=True)
    dataset = _in_memory(task, data)
    arrays = (dataset.train_rows, dataset.train_targets, dataset.test_rows, dataset.test_targets, dataset.train_owners)
    return f"{dataset.name}@{_digest(repr(task.data.contract), *arrays)}", _Bound(lambda: dataset, disposable=False)


def _in_memory(task: Task, data: Any) -> Dataset:
    """Make a dataset of what a caller has handed over."""
    if is_frame(data):
        return _own_rows(task).of_frame(data)
    if isinstance(data, Dataset) or (isinstance(data, tuple) and len(data) in (2, 3)):
        _require_said(task, data)
    if isinstance(data, tuple) and len(data) in (2, 3):
        reader, whose = _own_rows(task), data[2] if len(data) == 3 else None
        if isinstance(reader.test, RowFile):
            table = reader.test.table(dataclasses.replace(reader.contract, owner_optional=True), reader.label_column)
            held: Any = (table.rows, reader.contract.target.decode(table.targets))
        else:
            held = reader.test
        data = Dataset.from_arrays(data[0], data[1], owners=whose, test=held)
    if not isinstance(data, Dataset):
        raise BadInput(
            f"{type(data).__name__} holds no rows",
            where="data",
            hint="give Dataset.from_arrays(X, y, owners=…), a data frame, (X, y), or the path of a file",
        )
    return _matched(task.data.contract, data)


def _own_rows(task: Task) -> OwnRows:
    data = task.data
    test: float | RowFile = TEST_SHARE
    if data.test is not None:
        test = data.test if isinstance(data.test, float) else RowFile(path=Path(data.test), setting="data.test")
    contract = dataclasses.replace(data.contract, owner=data.owner, label_setting="data.label-column")
    return OwnRows(contract=contract, label_column=data.column_of_targets, test=test)


def _matched(contract: Contract, dataset: Dataset) -> Dataset:
    """Put columns and targets of a dataset into the task's order and meaning."""
    parts: dict[str, Any] = {}
    if contract.columns and dataset.columns and dataset.columns != contract.columns:
        order = contract.places(dataset.columns, dataset.name)
        parts = {"columns": contract.columns} | {
            half: getattr(dataset, half)[:, order] for half in ("train_rows", "test_rows")
        }
    elif dataset.features != contract.features:
        raise BadInput(
            f"a row of {dataset.name} has {dataset.features} numbers, and one of the task {contract.features}",
            where="data.columns" if contract.columns else "data.features",
            hint=f"features = {dataset.features}",
        )
    targets = np.concatenate([dataset.train_targets, dataset.test_targets])
    found = translate(targets, dataset.target, contract.target, dataset.name)
    parts["train_targets"], parts["test_targets"] = np.split(found.values, [len(dataset.train_targets)])
    if found.outside and contract.refuses_outside:
        raise BadInput(
            f"{found.outside} targets of {dataset.name} lie beyond their bounds",
            where="data.target",
            hint=f'the task predicts {contract.target.described}; outside = "clip" counts them as the nearer one',
        )
    return dataclasses.replace(dataset, target=contract.target, outside=max(found.outside, dataset.outside), **parts)


def _digest(words: str, *arrays: Any) -> str:
    found = hashlib.sha256(words.encode())
    for array in arrays:
        found.update(b"none" if array is None else np.ascontiguousarray(array).data)
    return found.hexdigest()[:16]
