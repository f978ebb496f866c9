"""A dataset: rows and labels, already split into what the crowd learns from and what it is tested on."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import BadInput
from crowdml.core.records import record

Rows: TypeAlias = npt.NDArray[Any]
"""A table of numbers, one row per example: uint8 for images, float32 otherwise."""

Floats: TypeAlias = npt.NDArray[np.float32]
"""A float32 array."""

Ints: TypeAlias = npt.NDArray[np.int32]
"""An int32 array: labels, owners, device numbers."""


@record
class Dataset:
    """Training and test rows with their labels.

    >>> rows = np.zeros((3, 2), np.float32)
    >>> labels = np.array([0, 1, 1], np.int32)
    >>> toy = Dataset(name="toy", train_rows=rows, train_labels=labels, test_rows=rows, test_labels=labels,
    ...               label_names=("no", "yes"))
    >>> toy.features
    2

    Attributes:
        name: What the dataset is called in task files.
        train_rows: Features to learn from, shape (rows, features).
        train_labels: Class numbers of `train_rows`, shape (rows,).
        test_rows: Features to test on, same columns.
        test_labels: Class numbers of `test_rows`.
        label_names: The name of each class number.
        train_owners: Who produced each training row, if that is known; the `writer` partition needs it.
        validation_rows: Rows held back from training, to watch and to choose by; None where there are none.
        validation_labels: Their class numbers.
        public_rows: Rows that belong to nobody in the crowd, for the server; None where there are none.
        public_labels: Their class numbers.
        note: Caveats to print beside any result obtained with this data.
    """

    name: str
    train_rows: Rows
    train_labels: Ints
    test_rows: Rows
    test_labels: Ints
    label_names: tuple[str, ...]
    train_owners: Ints | None = None
    validation_rows: Rows | None = None
    validation_labels: Ints | None = None
    public_rows: Rows | None = None
    public_labels: Ints | None = None
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse tables whose parts do not fit together."""
        _same_length(self.name, "training", self.train_rows, self.train_labels)
        _same_length(self.name, "test", self.test_rows, self.test_labels)
        if self.train_rows.shape[1] != self.test_rows.shape[1]:
            raise ValueError(f"{self.name}: training and test rows have different numbers of features")
        if self.train_owners is not None:
            _same_length(self.name, "training", self.train_rows, self.train_owners)
        for labels in (self.train_labels, self.test_labels):
            if labels.size and not (labels.min() >= 0 and labels.max() < len(self.label_names)):
                raise ValueError(f"{self.name}: labels must lie in 0..{len(self.label_names) - 1}")

    @property
    def features(self) -> int:
        """The number of columns."""
        return int(self.train_rows.shape[1])

    @property
    def classes(self) -> int:
        """The number of different labels."""
        return len(self.label_names)


def _same_length(name: str, half: str, rows: Rows, column: Ints) -> None:
    if rows.ndim != 2 or column.shape != (len(rows),):
        raise ValueError(f"{name}: {half} rows {rows.shape} and their column {column.shape} do not fit together")


def resplit(dataset: Dataset, train: int, test: int, generator: np.random.Generator) -> Dataset:
    """Put all rows together, draw some without replacement, and split those anew.

    Some papers do this instead of keeping the split of the files. Nobody says who
    produced the test rows, so the result has no owners.

    >>> rows, labels = np.arange(8.0, dtype=np.float32).reshape(4, 2), np.zeros(4, np.int32)
    >>> toy = Dataset(name="toy", train_rows=rows, train_labels=labels, test_rows=rows, test_labels=labels,
    ...               label_names=("only",))
    >>> resplit(toy, 5, 2, np.random.default_rng(0)).train_rows.shape
    (5, 2)
    """
    total = len(dataset.train_rows) + len(dataset.test_rows)
    if train < 1 or test < 1 or train + test > total:
        raise BadInput(
            f"{dataset.name} has {total} rows; {train} for training and {test} for testing cannot be drawn from them"
        )
    rows = np.concatenate([dataset.train_rows, dataset.test_rows])
    labels = np.concatenate([dataset.train_labels, dataset.test_labels])
    order = generator.permutation(total)
    first, second = order[:train], order[train : train + test]
    return dataclasses.replace(
        dataset,
        train_rows=rows[first],
        train_labels=labels[first],
        test_rows=rows[second],
        test_labels=labels[second],
        train_owners=None,
    )
