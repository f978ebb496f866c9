"""A dataset: rows and targets, already split into what the crowd learns from and what it is tested on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import BadInput
from crowdml.core.ops import NUMPY
from crowdml.core.records import record
from crowdml.core.targets import Labels, Target
from crowdml.data.held_out import TEST_SHARE, held_out_note, hold_out
from crowdml.data.rows.array_rows import read_owners, read_rows, read_targets
from crowdml.data.rows.row_columns import columns_are, frame_columns, is_frame

Rows: TypeAlias = npt.NDArray[Any]
"""A table of numbers, one row per example: uint8 for images, float32 otherwise."""

Floats: TypeAlias = npt.NDArray[np.float32]
"""A float32 array."""

Ints: TypeAlias = npt.NDArray[np.int32]
"""An int32 array: labels, owners, device numbers."""

Targets: TypeAlias = npt.NDArray[Any]
"""Encoded targets: class numbers as int32, or numbers from -1 to 1 as float32."""


@record
class Dataset:
    """Training and test rows with their targets.

    >>> rows = np.zeros((3, 2), np.float32)
    >>> labels = np.array([0, 1, 1], np.int32)
    >>> toy = Dataset(name="toy", train_rows=rows, train_targets=labels, test_rows=rows, test_targets=labels,
    ...               target=Labels(names=("no", "yes")))
    >>> toy.features, toy.label_names
    (2, ('no', 'yes'))

    Attributes:
        name: What the dataset is called in task files.
        train_rows: Features to learn from, shape (rows, features).
        train_targets: Encoded targets of `train_rows`, shape (rows,).
        test_rows: Features to test on, same columns.
        test_targets: Encoded targets of `test_rows`.
        target: What rows are mapped to: names of labels, or the bounds of a number.
        train_owners: Who produced each training row, if that is known; the `writer` partition needs it.
        validation_rows: Rows held back from training, to watch and to choose by; None where there are none.
        validation_targets: Their encoded targets.
        public_rows: Rows that belong to nobody in the crowd, for the server; None where there are none.
        public_targets: Their encoded targets.
        outside: How many numbers lie beyond the bounds of `target`, and count as the nearer one.
        note: Caveats to print beside any result obtained with this data.
        columns: Names of the columns, where they have some: a task that names its own finds them by name.
    """

    name: str
    train_rows: Rows
    train_targets: Targets
    test_rows: Rows
    test_targets: Targets
    target: Target
    train_owners: Ints | None = None
    validation_rows: Rows | None = None
    validation_targets: Targets | None = None
    public_rows: Rows | None = None
    public_targets: Targets | None = None
    outside: int = 0
    note: str = ""
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse tables whose parts do not fit together."""
        _same_length(self.name, "training", self.train_rows, self.train_targets)
        _same_length(self.name, "test", self.test_rows, self.test_targets)
        if self.train_rows.shape[1] != self.test_rows.shape[1]:
            raise ValueError(f"{self.name}: training and test rows have different numbers of features")
        if self.train_owners is not None:
            _same_length(self.name, "training", self.train_rows, self.train_owners)
        for targets in (self.train_targets, self.test_targets):
            if problem := self.target.problem(targets):
                raise ValueError(f"{self.name}: {problem}")

    @staticmethod
    def of_halves(
        name: str,
        train: tuple[Rows, Targets],
        test: tuple[Rows, Targets],
        target: Target,
        owners: Ints | None = None,
        note: str = "",
    ) -> Dataset:
        """Make a dataset of rows and targets to learn from, and of those to test on."""
        return Dataset(
            name=name,
            train_rows=train[0],
            train_targets=train[1],
            test_rows=test[0],
            test_targets=test[1],
            target=target,
            train_owners=owners,
            note=note,
        )

    @staticmethod
    def from_arrays(
        rows: Any,
        targets: Any,
        *,
        owners: Any = None,
        test: float | tuple[Any, Any] = TEST_SHARE,
        labels: Sequence[str] = (),
        target: Target | None = None,
        seed: int = 0,
        name: str = "arrays",
    ) -> Dataset:
        """Make a dataset of arrays, or of a data frame and a column, for `crowdml.simulate(task, data=…)`.

        Words are labels, whole numbers are class numbers or values, and other numbers are values; the task says which.

        >>> toy = Dataset.from_arrays(np.eye(10), ["no", "yes"] * 5, owners=list("aabbccddee"))
        >>> toy.label_names, len(toy.train_rows), len(toy.test_rows)
        (('no', 'yes'), 8, 2)

        Args:
            rows: Numbers, shape (rows, features). Columns of a data frame keep their names.
            targets: One for each row.
            owners: Whose each row is: every owner becomes a device.
            test: The share of rows that is held out to test on, or rows and targets to test on.
            labels: Names of the classes, in the order of their numbers; not given: from the targets, or the task.
            target: What is predicted, where that is to be fixed here.
            seed: Decides which rows are held out.
            name: What the dataset is called in messages.
        """
        table, columns = read_rows(rows)
        encoded = read_targets(targets, labels, target)
        if len(encoded.values) != len(table):
            raise BadInput(f"{len(table)} rows, but {len(encoded.values)} targets", where=name)
        whose, note = read_owners(owners, len(table)), ""
        if isinstance(test, tuple):
            train, held = (table, encoded.values), _tested(test, table, columns, encoded.target)
        else:
            out = hold_out(len(table), test, whose, seed)
            train, held = (table[~out], encoded.values[~out]), (table[out], encoded.values[out])
            whose, note = None if whose is None else whose[~out], held_out_note(out)
        made = Dataset.of_halves(name, train, held, encoded.target, owners=whose, note=note)
        return dataclasses.replace(made, columns=columns, outside=encoded.outside)

    @staticmethod
    def from_frame(frame: Any, target: str = "label", *, owner: str | None = None, **more: Any) -> Dataset:
        """Make a dataset of a data frame: one column is the target, one may be the owner, all others are numbers.

        Args:
            frame: The data frame.
            target: The column that is predicted.
            owner: The column that says whose each row is.
            more: As `from_arrays` takes it.
        """
        if not is_frame(frame):
            raise BadInput(f"{type(frame).__name__} is no data frame", hint="Dataset.from_arrays(rows, targets)")
        if target == owner:
            raise BadInput(f'the owner "{owner}" is predicted', where="owner", hint="a column of its own")
        names = frame_columns(frame)
        for column in filter(None, (target, owner)):
            if names.count(column) != 1:
                raise BadInput(
                    f'{columns_are(names.count(column))} called "{column}"', hint=f"there are: {', '.join(names)}"
                )
        others = frame.iloc[:, [at for at, name in enumerate(names) if name not in (target, owner)]]
        whose = None if owner is None else frame.iloc[:, names.index(owner)]
        return Dataset.from_arrays(others, frame.iloc[:, names.index(target)], owners=whose, **{"name": "frame"} | more)

    @property
    def features(self) -> int:
        """The number of columns."""
        return int(self.train_rows.shape[1])

    @property
    def label_names(self) -> tuple[str, ...]:
        """The name of each class number; none where the target is a number."""
        return self.target.label_names

    @property
    def classes(self) -> int:
        """The number of different labels; 0 where the target is a number."""
        return len(self.label_names)

    @property
    def train_bins(self) -> Ints:
        """Class of each training row, or the bin of its number: what partitions tell rows apart by."""
        bins: Ints = self.target.bin_of(self.train_targets, NUMPY)
        return bins

    def with_target(self, target: Target) -> Dataset:
        """Return the same rows for another target of the same kind: other names, or other bounds of the number."""
        if isinstance(self.target, Labels) or self.target == target:
            return dataclasses.replace(self, target=target)
        parts = ("train_targets", "test_targets", "validation_targets", "public_targets")
        given = {name: getattr(self, name) for name in parts}
        coded: dict[str, Any] = {
            name: target.encode(self.target.decode(part)) for name, part in given.items() if part is not None
        }
        beyond = sum(target.outside(self.target.decode(part)) for part in given.values() if part is not None)
        return dataclasses.replace(self, target=target, outside=beyond, **coded)


def _tested(given: tuple[Any, ...], table: Rows, columns: Sequence[str], target: Target) -> tuple[Rows, Targets]:
    """Read rows and targets to test on; columns of a data frame are found by their names.

    Args:
        given: Rows and targets.
        table: The rows to learn from.
        columns: Names of their columns, where they have some.
        target: What is predicted.
    """
    if len(given) != 2:
        raise BadInput(f"{len(given)} things to test on", where="test", hint="rows and their targets: (rows, targets)")
    rows, names = read_rows(given[0], "test rows")
    if columns and names and names != tuple(columns):
        if sorted(names) != sorted(columns) or len(set(names)) < len(names):
            raise BadInput(
                f"the columns are {', '.join(names)}",
                where="test rows",
                hint=f"those of the rows to learn from, in any order: {', '.join(columns)}",
            )
        rows = rows[:, [names.index(name) for name in columns]]
    if rows.shape[1] != table.shape[1]:
        raise BadInput(f"{rows.shape[1]} numbers in a row, {table.shape[1]} in one to learn from", where="test rows")
    targets = read_targets(given[1], target.label_names, target).values
    if len(targets) != len(rows) or not len(rows):
        raise BadInput(
            f"{len(rows)} rows to test on, with {len(targets)} targets", where="test", hint="one target for each row"
        )
    return rows, targets


def _same_length(name: str, half: str, rows: Rows, column: npt.NDArray[Any]) -> None:
    if rows.ndim != 2 or column.shape != (len(rows),):
        raise ValueError(f"{name}: {half} rows {rows.shape} and their column {column.shape} do not fit together")


def resplit(dataset: Dataset, train: int, test: int, generator: np.random.Generator) -> Dataset:
    """Put all rows together, draw some without replacement, and split those anew.

    Some papers do this instead of keeping the split of the files. Nobody says who
    produced the test rows, so the result has no owners.

    >>> rows, labels = np.arange(8.0, dtype=np.float32).reshape(4, 2), np.zeros(4, np.int32)
    >>> toy = Dataset(name="toy", train_rows=rows, train_targets=labels, test_rows=rows, test_targets=labels,
    ...               target=Labels(names=("only",)))
    >>> resplit(toy, 5, 2, np.random.default_rng(0)).train_rows.shape
    (5, 2)
    """
    total = len(dataset.train_rows) + len(dataset.test_rows)
    if train < 1 or test < 1 or train + test > total:
        raise BadInput(
            f"{dataset.name} has {total} rows; {train} for training and {test} for testing cannot be drawn from them"
        )
    rows = np.concatenate([dataset.train_rows, dataset.test_rows])
    targets = np.concatenate([dataset.train_targets, dataset.test_targets])
    order = generator.permutation(total)
    first, second = order[:train], order[train : train + test]
    return dataclasses.replace(
        dataset,
        train_rows=rows[first],
        train_targets=targets[first],
        test_rows=rows[second],
        test_targets=targets[second],
        train_owners=None,
    )
