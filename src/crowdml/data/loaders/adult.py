"""Adult: does a person earn more than 50000 dollars a year? Census data of 1994, one person per row.

The recipe of Section V of the asynchronous ADMM paper, taken literally: rows with a missing value are dropped
(45222 of 48842 stay), an attribute with two values becomes 0 or 1, one with more values is spread over one column
per value, numbers are brought into 0..1. Categories are those of the public `adult.names`, including one that no
complete row has; that makes 104 columns, and 105 as in the paper with an `intercept` transform behind it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crowdml.core.errors import BadInput
from crowdml.data.dataset import Dataset, Floats, Ints
from crowdml.data.loaders.adult_schema import COLUMNS, LABELS, Category, Numeric
from crowdml.data.loaders.reading import DAMAGED, read_plain_or_gz

LIMIT = 8 << 20


def load(folder: Path) -> Dataset:
    """Load Adult with the split of its own files: 30162 training and 15060 test rows without missing values."""
    train_rows, train_labels = _read(folder / "adult.data")
    test_rows, test_labels = _read(folder / "adult.test")
    return Dataset(
        name="adult",
        train_rows=train_rows,
        train_labels=train_labels,
        test_rows=test_rows,
        test_labels=test_labels,
        label_names=LABELS,
        note="Complete rows only. A quarter of the people earn more than 50K, so always saying no errs on 25 %.",
    )


def _read(path: Path) -> tuple[Floats, Ints]:
    text = read_plain_or_gz(path, LIMIT).decode("ascii", errors="replace")
    # The test file begins with a line that is not data.
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("|")]
    table = [[word.strip() for word in line.split(",")] for line in lines]
    for number, words in enumerate(table, start=1):
        if len(words) != len(COLUMNS) + 1:
            raise BadInput(
                f"row {number} has {len(words)} values instead of {len(COLUMNS) + 1}", where=str(path), hint=DAMAGED
            )
    complete = [words for words in table if "?" not in words]
    if not complete:
        raise BadInput("holds no complete row", where=str(path), hint=DAMAGED)
    columns = list(zip(*complete, strict=True))
    blocks = [_encode(path, column, words) for column, words in zip(COLUMNS, columns[:-1], strict=True)]
    return np.concatenate(blocks, axis=1), _labels(path, columns[-1])


def _encode(path: Path, column: Numeric | Category, words: tuple[str, ...]) -> Floats:
    if isinstance(column, Numeric):
        return _numbers(path, column, words)
    places = _places(path, column.name, column.words, words)
    if len(column.words) == 2:
        return places.astype(np.float32)[:, None]
    return np.eye(len(column.words), dtype=np.float32)[places]


def _numbers(path: Path, column: Numeric, words: tuple[str, ...]) -> Floats:
    try:
        values = np.array(words, dtype=np.float64)
    except ValueError as fault:
        raise BadInput(f"{column.name}: {fault}", where=str(path), hint=DAMAGED) from None
    scaled = (values - column.low) / (column.high - column.low)
    if not np.isfinite(scaled).all():
        raise BadInput(f"{column.name} has a value that is not a finite number", where=str(path), hint=DAMAGED)
    return np.clip(scaled, 0, 1).astype(np.float32)[:, None]


def _labels(path: Path, words: tuple[str, ...]) -> Ints:
    # Labels of the test file end in a full stop.
    return _places(path, "label", LABELS, tuple(word.rstrip(".") for word in words))


def _places(path: Path, name: str, choices: tuple[str, ...], words: tuple[str, ...]) -> Ints:
    number = {word: place for place, word in enumerate(choices)}
    try:
        return np.array([number[word] for word in words], np.int32)
    except KeyError as fault:
        raise BadInput(f"{name} has the unknown value {fault}", where=str(path), hint=DAMAGED) from None
