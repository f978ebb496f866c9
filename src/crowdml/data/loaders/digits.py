"""Digits: 1797 handwritten digits of 8x8 pixels, which come with scikit-learn and need no download."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import BadInput
from crowdml.data.dataset import Dataset
from crowdml.data.loaders.reading import read_plain_or_gz

TRAIN_ROWS = 1400
SPLIT_SEED = 2015
"""Part of the public split: changing it changes every published figure on this dataset."""


def load(folder: Path | None = None) -> Dataset:
    """Load the digits, split by a fixed permutation into 1400 training and 397 test rows.

    The original order groups digits by writer, so the first rows and the last rows are different people; a fixed
    permutation makes both halves alike.

    Args:
        folder: Ignored: scikit-learn carries the data inside its package.

    >>> digits = load()
    >>> digits.train_rows.shape, int(digits.train_rows.max()), np.bincount(digits.test_labels).size
    ((1400, 64), 16, 10)
    """
    table = _table()
    # RandomState, unlike newer generators, promises the same numbers in every NumPy version.
    order = np.random.RandomState(SPLIT_SEED).permutation(len(table))
    train, test = table[order[:TRAIN_ROWS]], table[order[TRAIN_ROWS:]]
    return Dataset(
        name="digits",
        train_rows=train[:, :-1],
        train_labels=train[:, -1].astype(np.int32),
        test_rows=test[:, :-1],
        test_labels=test[:, -1].astype(np.int32),
        label_names=tuple("0123456789"),
        note="1797 small digits (8x8, values 0 to 16); 397 test rows, so differences below 0.02 mean little.",
    )


def home() -> Path | None:
    """Find the folder inside scikit-learn, without importing it; None if it is not installed."""
    package = importlib.util.find_spec("sklearn")
    return None if package is None or package.origin is None else Path(package.origin).parent / "datasets" / "data"


def _table() -> npt.NDArray[np.uint8]:
    """Read 64 pixels and a label per row from the file; importing scikit-learn would take seconds."""
    folder = home()
    if folder is None:
        raise BadInput(
            "the digits dataset comes with scikit-learn, which is not installed",
            hint="pip install 'crowdml[simulation]'",
        )
    path = folder / "digits.csv"
    lines = read_plain_or_gz(path, 1 << 20).split()
    table = np.array([line.split(b",") for line in lines], dtype=np.float64)
    if table.shape != (1797, 65):
        raise BadInput(f"holds a table of shape {table.shape} instead of (1797, 65)", where=str(path))
    return table.astype(np.uint8)
