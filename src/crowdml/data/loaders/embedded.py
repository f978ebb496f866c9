"""Datasets that come with scikit-learn and need no download: digits and diabetes.

Their files are read without importing scikit-learn, which would take seconds.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import BadInput, install
from crowdml.core.targets import Labels, Number
from crowdml.data.dataset import Dataset, Rows, Targets
from crowdml.data.loaders.reading import read_plain_or_gz

TRAIN_DIGITS, TRAIN_PATIENTS = 1400, 342
SPLIT_SEED = 2015
"""Part of the public split: changing it changes every published figure on these datasets."""

MEASUREMENTS = {
    "age": (19.0, 79.0),
    "sex": (1.0, 2.0),
    "bmi": (18.0, 42.2),
    "blood-pressure": (62.0, 133.0),
    "cholesterol": (97.0, 301.0),
    "ldl": (41.6, 242.4),
    "hdl": (22.0, 99.0),
    "cholesterol-hdl-ratio": (2.0, 9.09),
    "log-triglycerides": (3.2581, 6.107),
    "glucose": (58.0, 124.0),
}
"""Columns of the diabetes data in their order, with the ranges of the published file.

They are written here rather than looked up: what a device does to its rows must not depend on anybody's rows.
"""

PROGRESSION = Number(low=25.0, high=346.0, name="progression")
"""The target of the diabetes data: a clinical score of how far the disease has gone one year later."""


def load_digits(folder: Path | None = None) -> Dataset:
    """Load the digits, split by a fixed permutation into 1400 training and 397 test rows.

    The original order groups digits by writer, so the first rows and the last rows are different people; a fixed
    permutation makes both halves alike.

    Args:
        folder: Ignored: scikit-learn carries the data inside its package.

    >>> digits = load_digits()
    >>> digits.train_rows.shape, int(digits.train_rows.max()), np.bincount(digits.test_targets).size
    ((1400, 64), 16, 10)
    """
    table = _table("digits.csv", (1797, 65)).astype(np.uint8)
    note = "1797 small digits (8x8, values 0 to 16); 397 test rows, so differences below 0.02 mean little."
    train, test = _split(table[:, :-1], table[:, -1].astype(np.int32), TRAIN_DIGITS)
    return Dataset.of_halves("digits", train, test, Labels(names=tuple("0123456789")), note=note)


def _split(rows: Rows, targets: Targets, size: int) -> tuple[tuple[Rows, Targets], tuple[Rows, Targets]]:
    """Split rows by the public permutation: so many to learn from, the others to test on."""
    # RandomState, unlike newer generators, promises the same numbers in every NumPy version.
    order = np.random.RandomState(SPLIT_SEED).permutation(len(rows))
    train, test = order[:size], order[size:]
    return (rows[train], targets[train]), (rows[test], targets[test])


def home() -> Path | None:
    """Find the folder inside scikit-learn, without importing it; None if it is not installed."""
    package = importlib.util.find_spec("sklearn")
    return None if package is None or package.origin is None else Path(package.origin).parent / "datasets" / "data"


def load_diabetes(folder: Path | None = None) -> Dataset:
    """Load 442 patients with ten measurements each, split by a fixed permutation into 342 and 100.

    Measurements are brought from their published ranges to -1 .. 1, so that a row is no longer than √10. The usual
    transform behind it is `{ kind = "norm", order = 2, at-most = 2.0 }`, which shortens one row in thirteen and gives
    private tasks their bound; the constant of a linear model is its `bias`. Ordinary least squares then explains
    r2 = 0.47 of the variance of the test rows.

    Args:
        folder: Ignored: scikit-learn carries the data inside its package.

    >>> diabetes = load_diabetes()
    >>> diabetes.train_rows.shape, diabetes.target.decode(diabetes.test_targets[:3]).round(3).tolist()
    ((342, 10), [148.0, 61.0, 77.0])
    """
    raw, outcome = _table("diabetes_data_raw.csv", (442, 10)), _table("diabetes_target.csv", (442, 1))
    low, high = np.array(list(MEASUREMENTS.values())).T
    rows = ((raw - (low + high) / 2) / ((high - low) / 2)).astype(np.float32)
    note = "442 patients; 100 test rows, so differences in r2 below 0.1 mean little."
    train, test = _split(rows, PROGRESSION.encode(outcome[:, 0]), TRAIN_PATIENTS)
    return Dataset.of_halves("diabetes", train, test, PROGRESSION, note=note)


def _table(name: str, shape: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Read a table of numbers of which the shape is known."""
    folder = home()
    if folder is None:
        raise BadInput(f"{name} comes with scikit-learn, which is not installed", hint=install("simulation"))
    path = folder / name
    lines = read_plain_or_gz(path, 1 << 20).decode("ascii", errors="replace").splitlines()
    try:
        table = np.array([line.replace(",", " ").split() for line in lines], dtype=np.float64)
    except ValueError as fault:
        raise BadInput(f"is not a table of numbers: {fault}", where=str(path)) from None
    if table.shape != shape:
        raise BadInput(f"holds a table of shape {table.shape} instead of {shape}", where=str(path))
    return table
