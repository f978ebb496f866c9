"""Columns of words: what each becomes in a row, the same on every device, because the task lists the words.

Two words are one number: 0 for the first and 1 for the second. More words are as many numbers, of which the one at the
word's place is 1. All other columns are one number each, so a row has as many numbers as all columns together.

    columns = ["age", "sex", "work"]
    words = { sex = ["Female", "Male"], work = ["none", "state", "private"] }
    40, Male, state  ->  40, 1, 0, 1, 0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput, record
from crowdml.core.registry import nearest
from crowdml.data.rows.row_columns import Floats, Where, column_values, frame_place, is_missing, to_floats

Words = tuple[tuple[str, tuple[str, ...]], ...]
"""Columns of words, each with all it may hold."""

LEAVE = 'fill it in, or leave the row out, as data.missing = "leave-out" does'


@record
class Slot:
    """Where the numbers of one column stand in a row.

    >>> Slot(name="work", begin=1, words=("none", "state", "private")).read(["state", " none"], str).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]

    Attributes:
        name: The column.
        begin: Place of its first number.
        words: What it may hold; none: a number.
    """

    name: str
    begin: int
    words: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """How many numbers the column becomes."""
        return len(self.words) if len(self.words) > 2 else 1

    @property
    def place(self) -> slice:
        """Where they stand."""
        return slice(self.begin, self.begin + self.width)

    def read(self, values: Any, where: Where) -> Floats:
        """Return the numbers of a column, shape (rows, width), or name the first value that is none of the words.

        Args:
            values: What stands in it.
            where: Names a row in messages.
        """
        if not self.words:
            return to_floats(values, where)[:, None]
        number = {word: at for at, word in enumerate(self.words)}
        listed = list(values)
        found = np.fromiter((number.get(as_word(value), -1) for value in listed), np.int64, len(listed))
        if (found < 0).any():
            at = int(np.flatnonzero(found < 0)[0])
            raise self._unknown(listed[at], where(at))
        if self.width == 1:
            return found.astype(np.float32)[:, None]
        spread = np.zeros((len(found), self.width), np.float32)
        spread[np.arange(len(found)), found] = 1
        return spread

    def _unknown(self, value: Any, where: str) -> BadInput:
        if is_missing(value):
            return BadInput(
                "a value is missing", where=where, hint=f"{LEAVE}; or list it among the words of {self.name}"
            )
        close = nearest(as_word(value), list(self.words))
        return BadInput(f"{value!r} is none of the words of this column", where=where, hint=close)

    def lacks(self, value: Any) -> bool:
        """Tell whether a value is missing here: a mark such as ? is none where it is one of the words."""
        return is_missing(value) and as_word(value) not in self.words


def as_word(value: Any) -> str:
    """Write a value as a word.

    >>> [as_word(value) for value in (" Private", 3.0, True, None)]
    ['Private', '3', 'True', '']
    """
    if value is None or (isinstance(value, float) and value != value):
        return ""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def slots_of(columns: Sequence[str], words: Words) -> tuple[Slot, ...]:
    """Return where the numbers of each column stand."""
    known, slots, begin = dict(words), list[Slot](), 0
    for name in columns:
        slots.append(Slot(name=name, begin=begin, words=known.get(name, ())))
        begin += slots[-1].width
    return tuple(slots)


def width_of(columns: Iterable[str], words: Mapping[str, Sequence[Any]]) -> int:
    """Count the numbers of a row.

    >>> width_of(["age", "sex", "work"], {"sex": ["f", "m"], "work": ["none", "state", "private"]})
    5
    """
    return sum(len(words[name]) if len(words.get(name, ())) > 2 else 1 for name in columns)


def read_row(slots: Sequence[Slot], values: Sequence[Any], where: str) -> Floats:
    """Return the numbers of one row."""
    parts = [
        slot.read([value], lambda _, slot=slot: f"{where}, column {slot.name}")[0]  # type: ignore[misc]
        for slot, value in zip(slots, values, strict=True)
    ]
    return np.concatenate(parts)


def read_array(table: npt.NDArray[Any], slots: Sequence[Slot], where: Where) -> Floats:
    """Return the rows of an array that has a column for each slot."""
    parts = [
        slot.read(table[:, at].tolist(), lambda row, slot=slot: f"{where(row)}, column {slot.name}")  # type: ignore[misc]
        for at, slot in enumerate(slots)
    ]
    return np.concatenate(parts, axis=1)


def read_frame(
    frame: Any,
    slots: Sequence[Slot],
    places: Sequence[int],
    name: str,
    numbers: npt.NDArray[Any] | None = None,
) -> Floats:
    """Return the rows of a data frame, whose columns stand at these places; `numbers` as in `frame_floats`."""
    rows = np.empty((len(frame), sum(slot.width for slot in slots)), np.float32)
    for slot, place in zip(slots, places, strict=True):
        values = column_values(frame.iloc[:, place])
        if slot.words:
            values = values.tolist()
        rows[:, slot.place] = slot.read(values, frame_place(frame, place, name, numbers))
    return rows


def complete_rows(columns: Sequence[Sequence[Any]], slots: Sequence[Slot]) -> npt.NDArray[np.bool_]:
    """Tell which rows lack nothing.

    Args:
        columns: The values of each column.
        slots: What each holds.
    """
    whole = np.ones(len(columns[0]) if columns else 0, bool)
    for values, slot in zip(columns, slots, strict=True):
        whole &= ~np.fromiter((slot.lacks(value) for value in values), bool, len(values))
    return whole
