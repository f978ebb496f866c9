"""A dataset: rows and targets, already split into what the crowd learns from and what it is tested on."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import BadInput
from crowdml.core.ops import NUMPY
from crowdml.core.records import record
from crowdml.core.targets import Labels, Target

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

    @property
    def features(self) -> int:
        """The number of columns."""
        return int(self.train_rows.shape[1])

    @property
    def label_names(self) -> tuple[str, ...]:
        """The name of each class number; none where the target is a number."""
        return self.target.names if isinstance(self.target, Labels) else ()

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
