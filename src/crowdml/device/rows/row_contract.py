"""What a row must look like: the numbers by name or by position, the label, and the id where samples have one."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput, record
from crowdml.core.targets import Target
from crowdml.task.sections import DataSettings

Pair = tuple[Any, ...]
"""A row and its label; where samples have ids, the id as a third."""
Warn = Callable[[str], None]
"""Is told what the owner should know."""
LONGEST_ID = 1000
DEFAULT_COLUMN = "label"
SHOWN = 10
"""Names of columns that a message lists at most."""


@record
class Table:
    """Rows as the owner has them, before the task's transforms.

    Attributes:
        rows: float32, shape (count, features).
        targets: What they are mapped to, as the model sees it: class numbers, or numbers from -1 to 1.
        ids: Which sample each row is; None where its content says so.
        outside: How many targets were beyond the task's bounds, and count as the nearer one.
    """

    rows: npt.NDArray[np.float32]
    targets: npt.NDArray[Any]
    ids: tuple[str, ...] | None = None
    outside: int = 0

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.targets)

    def take(self, at: npt.NDArray[Any]) -> Table:
        """Return some of the rows."""
        ids = None if self.ids is None else tuple(self.ids[int(one)] for one in at)
        return Table(rows=self.rows[at], targets=self.targets[at], ids=ids)


@record
class Contract:
    """What a row must look like: the `[data]` section of the task.

    Attributes:
        features: Numbers in a row.
        target: What a row is mapped to.
        columns: Names of the numbers, in their order; none: they are known by position alone.
        described: The same with their units, for messages.
        id: Name of the column that tells samples apart; None: their content does.
    """

    features: int
    target: Target
    columns: tuple[str, ...] = ()
    described: tuple[str, ...] = ()
    id: str | None = None

    @staticmethod
    def of(data: DataSettings) -> Contract:
        """Take it from a task."""
        return Contract(
            features=data.features,
            target=data.predicted,
            columns=tuple(data.columns),
            described=data.described,
            id=data.id,
        )

    def places(self, names: Sequence[str], where: str) -> list[int]:
        """Find each of the task's columns among these names, or raise `BadInput` with what is missing and unknown."""
        at, wanted = {name: at for at, name in enumerate(names)}, set(self.columns)
        if len(at) == len(names) and set(at) == wanted:
            return [at[column] for column in self.columns]
        missing = [column for column in self.columns if column not in at]
        unknown = [name for name in names if name not in wanted]
        twice = sorted(name for name, count in Counter(names).items() if count > 1 and name in wanted)
        lines = [
            f"{what}: {_list(found)}"
            for what, found in (
                ("missing", missing),
                ("unknown", [_suggested(name, missing) for name in unknown[:SHOWN]] + unknown[SHOWN:]),
                ("more than once", twice),
            )
            if found
        ]
        lines.append(f"the columns of the task, in any order: {_list(list(self.described))}")
        raise BadInput("the columns are not those of the task", where=where, hint="\n  ".join(lines))

    def beyond(self, table: Table, name: str) -> str:
        """Say how many targets lie beyond the bounds, which is often another unit; empty where none do."""
        if not table.outside:
            return ""
        return (
            f"{name}: {table.outside} of {len(table)} targets lie beyond the task's bounds and count as the nearer "
            f"one; the task predicts {self.target.described}. Is the unit right?"
        )

    def column_of_targets(self, asked: str) -> str:
        """Return which column of a file holds the targets: that of the target's name, unless another is asked for."""
        return self.target.column if asked == DEFAULT_COLUMN else asked

    def identity(self, value: Any, where: str) -> str:
        """Return an id as text: a whole number is the same id as its digits."""
        if isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_):
            return str(int(value))
        text = value.strip() if isinstance(value, str) else ""
        # Half of a character, as JSON can hold, is no text: it has no bytes.
        if not 0 < len(text) <= LONGEST_ID or any("\ud800" <= letter <= "\udfff" for letter in text):
            raise BadInput(
                "the id is missing, or is none",
                where=where,
                hint=f"the task tells samples apart by {self.id!r}: a text or a whole number, never an empty one",
            )
        return text

    def row(self, values: Any, where: str) -> npt.NDArray[np.float32]:
        """Return a row as float32; one with names is put into the task's order."""
        if isinstance(values, Mapping):
            values = self._by_name(values, where)
        try:
            # What is too large for 32 bits becomes infinite, and is refused as such.
            with np.errstate(over="ignore"):
                row = np.asarray(values, np.float32)
        except (TypeError, ValueError) as error:
            raise BadInput(f"a row must be {self.features} numbers: {error}", where=where) from None
        if row.shape != (self.features,):
            raise BadInput(f"a row must be {self.features} numbers, not {_shape(row)}", where=where)
        if not np.isfinite(row).all():
            at = int(np.flatnonzero(~np.isfinite(row))[0])
            raise BadInput(f"number {at + 1} of the row is not finite", where=where)
        return row

    def table(self, pairs: Iterable[Pair], where: Callable[[int], str]) -> Table:
        """Check pairs one by one; `where(n)` names the n-th in messages."""
        rows, targets, ids, outside = [], [], [], 0
        for number, pair in enumerate(pairs):
            values, target, *identity = self._parts(pair, where(number))
            rows.append(self.row(values, where(number)))
            targets.append(self.target.parse(target, where(number)))
            outside += self.target.outside([target])
            ids += [self.identity(one, where(number)) for one in identity]
        stacked = np.stack(rows) if rows else np.zeros((0, self.features), np.float32)
        return Table(
            rows=stacked,
            targets=np.array(targets, self.target.dtype),
            ids=None if self.id is None else tuple(ids),
            outside=outside,
        )

    def from_arrays(self, name: str, rows: Any, targets: Any, ids: Any = None) -> Table:
        """Check arrays: numbers of shape (count, features), one label each, and one id each where samples have one."""
        rows, targets = np.asarray(rows), np.asarray(targets)
        if rows.ndim != 2 or rows.shape[1] != self.features or rows.dtype.kind not in "fiub":
            raise BadInput(
                f"rows are {rows.dtype} of shape {rows.shape}",
                where=name,
                hint=f"numbers of shape (…, {self.features})",
            )
        if targets.shape != (len(rows),):
            raise BadInput(f"{len(rows)} rows, but {self.target.noun}s of shape {targets.shape}", where=name)
        with np.errstate(over="ignore"):
            rows = rows.astype(np.float32)
        wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(wrong):
            raise BadInput("a number is not finite", where=f"{name}, row {wrong[0] + 1}")
        parsed = [self.target.parse(value, f"{name}, row {at + 1}") for at, value in enumerate(targets.tolist())]
        return Table(
            rows=rows,
            targets=np.array(parsed, self.target.dtype),
            ids=self._ids(name, ids, len(rows)),
            outside=self.target.outside(targets.tolist()),
        )

    def _ids(self, name: str, ids: Any, count: int) -> tuple[str, ...] | None:
        if self.id is None:
            return None
        found = np.zeros(0) if ids is None else np.asarray(ids)
        if found.shape != (count,):
            raise BadInput(
                f"{count} rows, but {'no ids' if ids is None else f'ids of shape {found.shape}'}",
                where=name,
                hint=f"the task tells samples apart by {self.id!r}: one id for each row",
            )
        return tuple(self.identity(value, f"{name}, row {at + 1}") for at, value in enumerate(found.tolist()))

    def _parts(self, pair: Any, where: str) -> tuple[Any, ...]:
        parts = tuple(pair) if isinstance(pair, Iterable) else ()
        if self.id is not None and len(parts) == 2:
            return *parts, None
        if len(parts) != (2 if self.id is None else 3):
            noun = self.target.noun
            what = f"a pair of row and {noun}" if self.id is None else f"a row, its {noun} and its id"
            raise BadInput(f"should be {what}", where=where)
        return parts

    def _by_name(self, values: Mapping[Any, Any], where: str) -> list[Any]:
        if not self.columns:
            raise BadInput(
                "the numbers of this row have names, and the task has none",
                where=where,
                hint=f"give {self.features} numbers in their order",
            )
        names = [str(name) for name in values]
        given = list(values.values())
        return [given[at] for at in self.places(names, where)]


def _suggested(name: str, missing: list[str]) -> str:
    """Add which of the missing columns may be meant."""
    folded = {column.casefold(): column for column in missing}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    return f'{name} (did you mean "{folded[close[0]]}"?)' if close else name


def _list(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _shape(row: npt.NDArray[Any]) -> str:
    return f"{row.size}" if row.ndim == 1 else f"an array of shape {row.shape}, {math.prod(row.shape)} in all"
