"""What a row must look like: the numbers by name or by position, the label, and the id where samples have one."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput, record
from crowdml.core.targets import Target
from crowdml.data.rows.row_columns import FILL, Where, columns_are, is_missing, require_finite, to_number
from crowdml.data.rows.row_tables import Places, Table
from crowdml.data.rows.word_columns import Slot, Words, read_array, read_row, slots_of

Pair = tuple[Any, ...]
"""A row and its label; where samples have ids, the id as a third."""
Warn = Callable[[str], None]
"""Is told what the owner should know."""
LONGEST_ID = 1000
DEFAULT_COLUMN = "label"
SHOWN = 10
"""Names of columns that a message lists at most."""


def joined(tables: Sequence[Table], contract: Contract) -> Table:
    """Put tables below each other."""
    if not tables:
        return contract.table((), str)
    if len(tables) == 1:
        return tables[0]
    ids = [table.ids for table in tables if table.ids is not None]
    owners = [table.owners for table in tables if table.owners is not None]
    return Table(
        rows=np.concatenate([table.rows for table in tables]),
        targets=np.concatenate([table.targets for table in tables]),
        ids=tuple(chain.from_iterable(ids)) if ids else None,
        outside=sum(table.outside for table in tables),
        owners=tuple(chain.from_iterable(owners)) if owners else None,
    )


@record
class Contract:
    """What a row must look like: the `[data]` section of the task.

    Attributes:
        features: Numbers in a row.
        target: What a row is mapped to.
        columns: Names of the numbers, in their order; none: they are known by position alone.
        described: The same with their units, for messages.
        words: Columns of words, each with all it may hold; other columns hold numbers.
        leaves_out: Whether rows of a file that lack a value are left out; otherwise they are a mistake.
        id: Name of the column that tells samples apart; None: their content does.
        owner: Name of the column that says whose a row is; None: all rows are one owner's, as on a device.
        owner_optional: Whether a file may do without that column.
        owner_known: Whether that column was read before, and is passed over.
        refuses_outside: Whether a target beyond its bounds is a mistake; otherwise it counts as the nearer one.
        label_setting: What names the column of the targets, for messages.
        label_column: Which column holds the targets, where the task says so.
    """

    features: int
    target: Target
    columns: tuple[str, ...] = ()
    described: tuple[str, ...] = ()
    words: Words = ()
    leaves_out: bool = False
    id: str | None = None
    owner: str | None = None
    owner_optional: bool = False
    owner_known: bool = False
    refuses_outside: bool = False
    label_setting: str = "--label-column"
    label_column: str = DEFAULT_COLUMN

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Where the numbers of each column stand in a row."""
        return slots_of(self.columns or [f"number {at + 1}" for at in range(self.features)], self.words)

    def looked_at(self, places: Places) -> list[tuple[int, Slot]]:
        """Return the columns of a file that a row needs, each with what it may hold."""
        others = (*(getattr(self.target, "names", ()) or ()),)
        more = [(places.label, Slot(name="", begin=0, words=others))]
        more += [(at, Slot(name="", begin=0)) for at in (places.id, places.owner) if at is not None]
        return [*zip(places.features, self.slots, strict=True), *more]

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

    def find(self, header: Sequence[str], where: str, label_column: str) -> Places:
        """Find label, id, owner and features in a header, or raise `BadInput` with what is missing.

        Args:
            header: Names of all columns of a file.
            where: File and line, for messages.
            label_column: What the column of the targets is called.
        """
        if header.count(label_column) != 1:
            raise BadInput(
                f'{columns_are(header.count(label_column))} called "{label_column}"',
                where=where,
                hint=f"the first line names the columns; {self.label_setting} says which one holds the "
                f"{self.target.noun}s; there are: {_list(list(header))}",
            )
        if self.id is not None and (header.count(self.id) != 1 or self.id == label_column):
            raise BadInput(
                f'{columns_are(header.count(self.id))} called "{self.id}", beside that of the {self.target.noun}s',
                where=where,
                hint="the task tells samples apart by this column (data.id)",
            )
        owner = self.find_owner(header, where) if self.wants_owner(header) else None
        others = [at for at, column in enumerate(header) if column not in (label_column, self.id, self.owner)]
        if self.columns:
            found = self.places([header[at] for at in others], where)
            others = [others[at] for at in found]
        elif len(others) != self.features:
            named = [self.target.noun, *(["id"] if self.id else []), *(["owner"] if self.owner else [])]
            beside = f"the {named[0]}" if len(named) == 1 else " and ".join((", ".join(named[:-1]), named[-1]))
            raise BadInput(
                f"{len(others)} columns beside {beside}, but a row of this task has {self.features} numbers",
                where=where,
                hint=f"data.features = {len(others)} takes all of them: {_list([header[at] for at in others])}",
            )
        return Places(
            label=header.index(label_column),
            features=tuple(others),
            id=None if self.id is None else header.index(self.id),
            owner=owner,
        )

    def wants_owner(self, names: Container[str]) -> bool:
        """Tell whether one of these columns must say whose a row is."""
        wanted = self.owner is not None and not self.owner_known
        return wanted and (self.owner in names or not self.owner_optional)

    def find_owner(self, header: Sequence[str], where: str) -> int:
        """Find the column that says whose a row is."""
        count = header.count(str(self.owner))
        if count != 1:
            raise BadInput(
                f'{columns_are(count)} called "{self.owner}"',
                where=where,
                hint=f"data.owner names the column that says whose a row is; there are: {_list(list(header))}",
            )
        return header.index(str(self.owner))

    def beyond(self, table: Table, name: str) -> str:
        """Say how many targets lie beyond the bounds, which is often another unit; empty where none do."""
        if not table.outside:
            return ""
        return (
            f"{name}: {table.outside} of {len(table)} targets lie beyond the task's bounds and count as the nearer "
            f"one; the task predicts {self.target.described}. Is the unit right?"
        )

    def column_of_targets(self, asked: str | None = None) -> str:
        """Return which column of a file holds the targets: the one asked for, the task's, or that of the target."""
        named = self.target.column if self.label_column == DEFAULT_COLUMN else self.label_column
        return named if asked is None else asked

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
        if self.words and np.shape(values) == (len(self.columns),) and np.asarray(values).dtype.kind not in "fiub":
            return read_row(self.slots, values, where)
        try:
            # What is too large for 32 bits becomes infinite, and is refused as such.
            with np.errstate(over="ignore"):
                row = np.asarray(values, np.float32)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadInput(f"a row must be {self.features} numbers: {error}", where=where) from None
        if row.shape != (self.features,):
            raise BadInput(f"a row must be {self.features} numbers, not {_shape(row)}", where=where)
        require_finite(row[None], lambda _, at: f"{where}, {self.column(at)}")
        return row

    def column(self, at: int) -> str:
        """Name a number of a row by its place."""
        if self.words:
            return next(f"column {slot.name}" for slot in self.slots if slot.place.start <= at < slot.place.stop)
        return f"column {self.columns[at]}" if self.columns else f"number {at + 1} of the row"

    def table(self, pairs: Iterable[Pair], where: Callable[[int], str]) -> Table:
        """Check pairs one by one; `where(n)` names the n-th in messages."""
        rows, targets, ids, outside = [], [], [], 0
        for number, pair in enumerate(pairs):
            values, target, *identity = self._parts(pair, where(number))
            rows.append(self.row(values, where(number)))
            targets.append(self.target.parse(target, where(number)))
            outside += self._outside([target], lambda _, number=number: where(number))  # type: ignore[misc]
            ids += [self.identity(one, where(number)) for one in identity]
        stacked = np.stack(rows) if rows else np.zeros((0, self.features), np.float32)
        return Table(
            rows=stacked,
            targets=np.array(targets, self.target.dtype),
            ids=None if self.id is None else tuple(ids),
            outside=outside,
        )

    def from_arrays(
        self, name: str, rows: Any, targets: Any, ids: Any = None, owners: Any = None, numbers: Any = None
    ) -> Table:
        """Check arrays: numbers of shape (count, features), one label each, and one id each where samples have one.

        Args:
            name: What they are called in messages.
            rows: The numbers.
            targets: Labels or numbers.
            ids: Which sample each row is.
            owners: Whose each row is, where the task asks for it.
            numbers: Numbers of the rows, from 0, where others were left out before.
        """
        rows, targets = np.asarray(rows), np.asarray(targets)

        def row(at: int) -> str:
            return f"{name}, row {(at if numbers is None else int(numbers[at])) + 1}"

        if self.words and rows.ndim == 2 and rows.shape[1] == len(self.columns) and rows.dtype.kind not in "fiub":
            rows = read_array(rows, self.slots, row)
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
        require_finite(rows, lambda at, place: f"{row(at)}, {self.column(place)}")
        return self.block(
            rows,
            targets.tolist(),
            row,
            ids=self._ids(name, ids, len(rows), row),
            owners=self._owners(name, owners, len(rows), row),
        )

    def block(
        self,
        rows: npt.NDArray[np.float32],
        targets: Sequence[Any],
        where: Where,
        *,
        ids: tuple[str, ...] | None = None,
        owners: tuple[str, ...] | None = None,
    ) -> Table:
        """Make a table of rows that were looked at, and of targets as they were given.

        Args:
            rows: Finite numbers in the task's order.
            targets: One for each row.
            where: Names the target of a row in messages.
            ids: Which sample each row is.
            owners: Whose each row is.
        """
        try:
            encoded = self.target.parse_all(targets, where)
        except BadInput:
            self._require_targets(targets, where)
            raise
        return Table(rows=rows, targets=encoded, ids=ids, outside=self._outside(targets, where), owners=owners)

    def _require_targets(self, targets: Sequence[Any], where: Where) -> None:
        """Refuse the first target that is missing, which is no wrong one."""
        names = getattr(self.target, "names", ())
        for at, value in enumerate(targets):
            if is_missing(value) and not (isinstance(value, str) and value in names):
                raise BadInput(f"the {self.target.noun} is missing", where=where(at), hint=FILL) from None

    def _outside(self, targets: Sequence[Any], where: Where) -> int:
        """Count targets beyond their bounds, or refuse the first where the task says so."""
        count = self.target.outside(targets)
        if count and self.refuses_outside:
            at = next(at for at, target in enumerate(targets) if self.target.outside([target]))
            raise BadInput(
                f"{to_number(targets[at], where(at)):g} lies beyond the bounds of the target",
                where=where(at),
                hint=f"the task predicts {self.target.described}: correct the value or the bounds; or "
                'data.target.outside = "clip" counts it as the nearer one',
            )
        return count

    def owner_of(self, value: Any, where: str) -> str:
        """Return an owner's name as text, or refuse a row that is nobody's."""
        whole = isinstance(value, float) and value.is_integer()  # a column with gaps elsewhere is read as fractions
        text = str(int(value)) if whole else "" if is_missing(value) else str(value).strip()
        if not text:
            raise BadInput(
                "the owner is missing", where=where, hint="every row is somebody's: fill it in, or leave the row out"
            )
        return text

    def _owners(self, name: str, owners: Any, count: int, row: Where) -> tuple[str, ...] | None:
        if self.owner is None or owners is None:
            return None
        found = np.asarray(owners)
        if found.shape != (count,):
            raise BadInput(
                f"{count} rows, but owners of shape {found.shape}",
                where=name,
                hint=f'data.owner = "{self.owner}" says whose each row is: one owner for each row',
            )
        return tuple(self.owner_of(value, f"{row(at)}, {self.owner}") for at, value in enumerate(found.tolist()))

    def _ids(self, name: str, ids: Any, count: int, row: Where) -> tuple[str, ...] | None:
        if self.id is None:
            return None
        found = np.zeros(0) if ids is None else np.asarray(ids)
        if found.shape != (count,):
            raise BadInput(
                f"{count} rows, but {'no ids' if ids is None else f'ids of shape {found.shape}'}",
                where=name,
                hint=f"the task tells samples apart by {self.id!r}: one id for each row",
            )
        return tuple(self.identity(value, row(at)) for at, value in enumerate(found.tolist()))

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
    """Add which of the missing columns may be meant, or where a column without a name comes from."""
    if not name:
        return "a column without a name (frame.to_csv(path, index=False) writes none)"
    folded = {column.casefold(): column for column in missing}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    return f'{name} (did you mean "{folded[close[0]]}"?)' if close else name


def _list(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _shape(row: npt.NDArray[Any]) -> str:
    return f"{row.size}" if row.ndim == 1 else f"an array of shape {row.shape}, {math.prod(row.shape)} in all"
