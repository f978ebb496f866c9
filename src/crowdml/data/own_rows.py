"""Rows of the user's own, as a task describes them: from a file or a data frame to a dataset.

A file is read block by block into the arrays that a simulation learns from, so that a table that is as large as the
memory allows is there once. Which rows are held out is decided before: a Parquet file says how many rows it has, and
its owners can be read alone; the blocks of other files are kept until all are there, and go one by one.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput, record
from crowdml.data.dataset import Dataset
from crowdml.data.held_out import Ints, OwnerNumbers, held_out_note, hold_out
from crowdml.data.rows import parquet_files
from crowdml.data.rows.row_columns import column_values, frame_columns, frame_floats, frame_place
from crowdml.data.rows.row_contract import Contract
from crowdml.data.rows.row_files import RowFile
from crowdml.data.rows.row_tables import Table
from crowdml.data.rows.word_columns import complete_rows, read_frame

Allocate = Callable[[tuple[int, ...], Any], npt.NDArray[Any]]
"""Makes an array by shape and type, such as in memory that processes share."""


@record
class OwnRows:
    """Where rows of the user's own come from, and which of them are tested on.

    Attributes:
        contract: What a row must look like.
        label_column: The column of the targets.
        test: The share of rows that is held out, or a file of rows to test on.
        test_setting: What says so, for messages.
    """

    contract: Contract
    label_column: str
    test: float | RowFile
    test_setting: str = "data.test"

    def of_file(self, file: RowFile, allocate: Allocate = np.empty) -> Dataset:
        """Read a file.

        Args:
            file: The file.
            allocate: Makes the arrays of rows.
        """
        if isinstance(self.test, RowFile) and self.test.path.resolve() == file.path.resolve():
            raise BadInput(
                f"{file.path.name} is learnt from: an error on the same rows says little",
                where=self.test_setting,
                hint="another file, or a share of the rows such as 0.2",
            )
        notes: list[str] = []
        if file.ending == ".parquet" and file.path.is_file() and not self.contract.leaves_out:
            dataset = self._of_parquet(file, allocate)
        else:
            kept = deque(file.blocks(self.contract, self.label_column, notes.append))
            dataset = self._of_blocks(file.path.name, _sizes(kept, self.contract), _going(kept), allocate, notes)
        return dataclasses.replace(dataset, note="; ".join([*notes, *filter(None, [dataset.note])]))

    def of_frame(self, frame: Any, allocate: Allocate = np.empty) -> Dataset:
        """Read a data frame, whose columns are found as those of a file."""
        contract, names = self.contract, frame_columns(frame)
        places = contract.find(names, "the frame", self.label_column)
        notes, numbers = list[str](), np.arange(len(frame))
        if contract.leaves_out:
            looked = contract.looked_at(places)
            columns = [column_values(frame.iloc[:, at]).tolist() for at, _ in looked]
            whole = complete_rows(columns, [slot for _, slot in looked])
            parquet_files.warn_left_out("the frame", int((~whole).sum()), len(frame), notes.append)
            frame, numbers = frame[whole], numbers[whole]

        def texts(place: int | None, read_one: Callable[[Any, str], str]) -> tuple[str, ...] | None:
            if place is None:
                return None
            where = frame_place(frame, place, "the frame", numbers)
            listed = column_values(frame.iloc[:, place]).tolist()
            return tuple(read_one(value, where(at)) for at, value in enumerate(listed))

        owners = texts(places.owner, contract.owner_of)
        targets = column_values(frame.iloc[:, places.label]).tolist()
        if contract.words:
            rows = read_frame(frame, contract.slots, places.features, "the frame", numbers)
        else:
            rows = frame_floats(frame, places.features, "the frame", numbers)
        ids = texts(places.id, contract.identity)
        where = frame_place(frame, places.label, "the frame", numbers)
        table = contract.block(rows, targets, where, ids=ids, owners=owners)
        dataset = self._of_blocks("frame", _sizes([table], contract), iter([table]), allocate, notes)
        return dataclasses.replace(dataset, note="; ".join([*notes, *filter(None, [dataset.note])]))

    def _of_blocks(
        self, name: str, ahead: _Ahead, blocks: Iterator[Table], allocate: Allocate, notes: list[str]
    ) -> Dataset:
        """Lay blocks into the arrays of a dataset."""
        halves = self._halves(name, ahead, allocate)
        outside, begin, targets, seen = 0, 0, [], set[str]()
        for block in blocks:
            _require_once(block.ids or (), seen, name)
            halves.write(begin, slice(None), block.rows)
            targets.append(block.targets)
            outside, begin = outside + block.outside, begin + len(block)
        return self._made(name, ahead, halves, np.concatenate(targets), outside, notes)

    def _of_parquet(self, file: RowFile, allocate: Allocate) -> Dataset:
        """Lay columns into the arrays of a dataset."""
        name, count = file.path.name, parquet_files.count_rows(file.path)
        ahead = _Ahead(count=count, owners=None)
        if self.contract.owner is not None:
            ahead = _numbered(parquet_files.owners(file.path, self.contract))
        halves = self._halves(name, ahead, allocate)
        known = dataclasses.replace(self.contract, owner_known=True)
        rest = parquet_files.read(file.path, known, self.label_column, halves.write)
        _require_once(rest.ids or (), set(), name)
        return self._made(name, ahead, halves, rest.targets, rest.outside, [])

    def _halves(self, name: str, ahead: _Ahead, allocate: Allocate) -> _Halves:
        if not ahead.count:
            raise BadInput(f"{name} has no rows", where="data.file")
        held = np.zeros(ahead.count, bool)
        if isinstance(self.test, float):
            held = hold_out(ahead.count, self.test, ahead.owners, where=self.test_setting)
        count, width = int(held.sum()), self.contract.features
        rows = [allocate((some, width), np.float32) for some in (ahead.count - count, count)]
        return _Halves(held=held, train=rows[0], test=rows[1])

    def _made(self, name: str, ahead: _Ahead, halves: _Halves, targets: Any, outside: int, notes: list[str]) -> Dataset:
        held = halves.held
        tested = (halves.test, targets[held])
        if isinstance(self.test, RowFile):
            tested, more = self._tested(self.test, notes)
            outside += more
        whose = None if ahead.owners is None else ahead.owners[~held]
        made = Dataset.of_halves(name, (halves.train, targets[~held]), tested, self.contract.target, owners=whose)
        note = held_out_note(held) if held.any() else ""
        return dataclasses.replace(made, outside=outside, columns=self.contract.columns, note=note)

    def _tested(self, file: RowFile, notes: list[str]) -> tuple[tuple[Any, Any], int]:
        """Read the rows to test on; whose they are need not be said."""
        table = file.table(dataclasses.replace(self.contract, owner_optional=True), self.label_column, notes.append)
        if not len(table):
            raise BadInput(f"{file.path} has no rows to test on", where=self.test_setting)
        return (table.rows, table.targets), table.outside


@record
class _Halves:
    """Rows to learn from and rows to test on, into which others are written in the order they are read."""

    held: npt.NDArray[np.bool_]
    train: npt.NDArray[np.float32]
    test: npt.NDArray[np.float32]

    def write(self, begin: int, column: int | slice, values: npt.NDArray[np.float32]) -> None:
        """Write numbers of the rows from `begin` on, one column of them or all."""
        chosen = self.held[begin : begin + len(values)]
        before = self._tested_before(begin)
        learnt = values[~chosen]
        self.train[begin - before : begin - before + len(learnt), column] = learnt
        self.test[before : before + len(values) - len(learnt), column] = values[chosen]

    def _tested_before(self, begin: int) -> int:
        return int(np.count_nonzero(self.held[:begin]))


@record
class _Ahead:
    """What must be known before rows are laid out: how many there are, and whose they are."""

    count: int
    owners: Ints | None


def _sizes(tables: Iterable[Table], contract: Contract) -> _Ahead:
    if contract.owner is None:
        return _Ahead(count=sum(len(table) for table in tables), owners=None)
    return _numbered(table.owners or () for table in tables)


def _numbered(names: Iterable[tuple[str, ...]]) -> _Ahead:
    numbers = OwnerNumbers()
    codes = [numbers.of(some) for some in names]
    joined = np.concatenate(codes) if codes else np.zeros(0, np.int32)
    return _Ahead(count=len(joined), owners=numbers.by_name(joined))


def _require_once(ids: Iterable[str], seen: set[str], name: str) -> None:
    """Refuse samples of several rows: what is promised to a sample is added up row by row here."""
    for one in ids:
        if one in seen:
            raise BadInput(
                f"several rows have the id {one}",
                where=name,
                hint="a simulation counts every row as a sample: keep one row of each, or leave data.id out",
            )
        seen.add(one)


def _going(tables: deque[Table]) -> Iterator[Table]:
    """Give tables away one by one, so that each can go once it was used."""
    while tables:
        yield tables.popleft()


def identity(path: Path) -> str:
    """Return what tells a file from an older one of the same name: its size and when it was written."""
    try:
        found = path.stat()
    except OSError:
        return ""  # whoever reads it says what is wrong
    return f"{path.absolute()} {found.st_size} {found.st_mtime_ns}"
