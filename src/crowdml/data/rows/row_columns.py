"""Columns of numbers as people have them: the first value that is none is named with its place and a remedy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import BadInput

Floats = npt.NDArray[np.float32]
Where = Callable[[int], str]
"""Names a row by its number, from 0, in messages."""

MISSING = {"", "?", "-", "na", "n/a", "nan", "null", "none", "<na>", "nat"}
"""What people write where they have no value, in small letters."""

DIGITS = "digits without marks between them, and a point in decimals, as in 1234.5"
FILL = "fill it in, or leave the row out"
WORDS = (
    "a row holds numbers: list the words of such a column in data.words, as crowdml data words FILE does; or turn them "
    "into numbers first, such as one column of 0 and 1 for each word"
)


def is_missing(value: Any) -> bool:
    """Tell whether a value stands for none.

    >>> [is_missing(value) for value in (None, " NA ", float("nan"), 0, "no")]
    [True, True, True, False, False]
    """
    if isinstance(value, str):
        return value.strip().casefold() in MISSING
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def columns_are(count: int) -> str:
    """Begin a sentence about columns of one name, where there should be one.

    >>> columns_are(0), columns_are(2)
    ('no column is', '2 columns are')
    """
    return f"{count} columns are" if count else "no column is"


def to_number(value: Any, where: str) -> float:
    """Read one value, or raise `BadInput` with what it is instead of a number."""
    if is_missing(value):
        raise BadInput("a value is missing", where=where, hint=FILL)
    try:
        number = float(value)
    except OverflowError:  # a whole number has as many digits as it likes
        number = math.inf
    except (TypeError, ValueError):
        marked = isinstance(value, str) and value.strip(" +-").replace(",", "").replace(".", "").isdecimal()
        raise BadInput(f"{value!r} is not a number", where=where, hint=DIGITS if marked else WORDS) from None
    if not math.isfinite(number) or abs(number) > float(np.finfo(np.float32).max):
        raise BadInput(f"{value!r} is not a finite number of 32 bits", where=where, hint=FILL)
    return number


def to_floats(values: Any, where: Where) -> Floats:
    """Read a column, of numbers or of anything that holds numbers, as float32.

    Args:
        values: One-dimensional: an array, or what can be made one.
        where: Names a row in messages.
    """
    given = np.asarray(values)
    if given.dtype.kind not in "fiub":
        return np.array([to_number(value, where(at)) for at, value in enumerate(given.tolist())], np.float32)
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as such
        found: Floats = given.astype(np.float32)
    if given.dtype.kind == "f":
        require_finite(found[:, None], lambda at, _: where(at), given[:, None])
    return found


def require_finite(rows: Floats, where: Callable[[int, int], str], given: Any = None) -> None:
    """Refuse the first number that is missing or not finite.

    Args:
        rows: Shape (count, columns).
        where: Names a number by its row and its column.
        given: The same numbers as they were given, for the message.
    """
    if np.isfinite(rows).all():
        return
    at, column = (int(one) for one in np.argwhere(~np.isfinite(rows))[0])
    to_number(float((rows if given is None else given)[at, column]), where(at, column))


def frame_columns(frame: Any) -> list[str]:
    """Return the names of a data frame's columns, as text."""
    return [str(name) for name in frame.columns]


def is_frame(value: Any) -> bool:
    """Tell whether this is a data frame, without importing a library that has some."""
    return hasattr(value, "iloc") and hasattr(value, "columns") and getattr(value, "ndim", 0) == 2


def frame_floats(frame: Any, places: Sequence[int], name: str, numbers: npt.NDArray[Any] | None = None) -> Floats:
    """Read columns of a data frame, by their places, as float32 of shape (rows, columns).

    Args:
        frame: The data frame.
        places: The columns.
        name: What it is called in messages.
        numbers: Numbers of its rows, from 0, where others were left out before.
    """
    found = np.empty((len(frame), len(places)), np.float32)
    for at, place in enumerate(places):
        found[:, at] = to_floats(column_values(frame.iloc[:, place]), frame_place(frame, place, name, numbers))
    return found


def frame_place(frame: Any, place: int, name: str, numbers: npt.NDArray[Any] | None = None) -> Where:
    """Name the rows of one column of a data frame."""
    column = str(frame.columns[place])
    return lambda at: f"{name}, row {(at if numbers is None else int(numbers[at])) + 1}, column {column}"


def column_values(column: Any) -> npt.NDArray[Any]:
    """Return the values of one column; what is missing stays visible, and words are Python's."""
    if getattr(getattr(column, "dtype", None), "kind", "O") in "fiub" and not _nullable(column):
        return np.asarray(column)
    return np.array(column.tolist() if hasattr(column, "tolist") else list(column), object)


def _nullable(column: Any) -> bool:
    return not isinstance(column.dtype, np.dtype)
