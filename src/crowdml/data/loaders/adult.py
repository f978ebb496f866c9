"""Adult: does a person earn more than 50000 dollars a year? Census data of 1994, one person per row.

The recipe of Section V of the asynchronous ADMM paper, taken literally: rows with a missing value are dropped
(45222 of 48842 stay), an attribute with two values becomes 0 or 1, one with more values is spread over one column
per value, numbers are brought into 0..1. Categories are those of the public description `adult.names`, including one
that no complete row has; that makes 104 columns, and 105 as in the paper with an `intercept` transform behind it.

Categories and ranges are written here rather than looked up while loading: what a device does to its rows must not
depend on anybody's rows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crowdml.core.records import record
from crowdml.core.targets import Labels
from crowdml.data.dataset import Dataset, Floats, Ints
from crowdml.data.loaders.reading import damaged, read_plain_or_gz


@record
class Numeric:
    """A number, brought into 0..1 by a public range; values outside are cut off."""

    name: str
    low: float
    high: float


@record
class Category:
    """One of a few words: 0 or 1 if there are two, otherwise one column per word."""

    name: str
    words: tuple[str, ...]


def _category(name: str, words: str) -> Category:
    return Category(name=name, words=tuple(words.split()))


COLUMNS: tuple[Numeric | Category, ...] = (
    Numeric(name="age", low=17, high=90),
    _category(
        "workclass",
        "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked",
    ),
    Numeric(name="fnlwgt", low=12285, high=1490400),
    _category(
        "education",
        "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters 1st-4th 10th "
        "Doctorate 5th-6th Preschool",
    ),
    Numeric(name="education-num", low=1, high=16),
    _category(
        "marital-status",
        "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse",
    ),
    _category(
        "occupation",
        "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
        "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv Armed-Forces",
    ),
    _category("relationship", "Wife Own-child Husband Not-in-family Other-relative Unmarried"),
    _category("race", "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black"),
    _category("sex", "Female Male"),
    Numeric(name="capital-gain", low=0, high=99999),
    Numeric(name="capital-loss", low=0, high=4356),
    Numeric(name="hours-per-week", low=1, high=99),
    _category(
        "native-country",
        "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India Japan Greece "
        "South China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland France "
        "Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand "
        "Yugoslavia El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands",
    ),
)
LABELS = ("<=50K", ">50K")


LIMIT = 8 << 20


def load(folder: Path) -> Dataset:
    """Load Adult with the split of its own files: 30162 training and 15060 test rows without missing values."""
    note = "Complete rows only. A quarter of the people earn more than 50K, so always saying no errs on 25 %."
    train, test = _read(folder / "adult.data"), _read(folder / "adult.test")
    return Dataset.of_halves("adult", train, test, Labels(names=LABELS), note=note)


def _read(path: Path) -> tuple[Floats, Ints]:
    text = read_plain_or_gz(path, LIMIT).decode("ascii", errors="replace")
    # The test file begins with a line that is not data.
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("|")]
    table = [[word.strip() for word in line.split(",")] for line in lines]
    for number, words in enumerate(table, start=1):
        if len(words) != len(COLUMNS) + 1:
            raise damaged(path, f"row {number} has {len(words)} values instead of {len(COLUMNS) + 1}")
    complete = [words for words in table if "?" not in words]
    if not complete:
        raise damaged(path, "holds no complete row")
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
        raise damaged(path, f"{column.name}: {fault}") from None
    scaled = (values - column.low) / (column.high - column.low)
    if not np.isfinite(scaled).all():
        raise damaged(path, f"{column.name} has a value that is not a finite number")
    return np.clip(scaled, 0, 1).astype(np.float32)[:, None]


def _labels(path: Path, words: tuple[str, ...]) -> Ints:
    # Labels of the test file end in a full stop.
    return _places(path, "label", LABELS, tuple(word.rstrip(".") for word in words))


def _places(path: Path, name: str, choices: tuple[str, ...], words: tuple[str, ...]) -> Ints:
    number = {word: place for place, word in enumerate(choices)}
    try:
        return np.array([number[word] for word in words], np.int32)
    except KeyError as fault:
        raise damaged(path, f"{name} has the unknown value {fault}") from None
