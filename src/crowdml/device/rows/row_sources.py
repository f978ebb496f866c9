"""Where a device's rows come from: tables that stay, and streams that pass.

A *kept* row can be used again, in as many releases as the terms allow. A *passing* row is used once and forgotten; if
it comes again it is the same sample, with the uses it has had (see `crowdml.device.rows.sample_numbers`).

    "rows.csv", "rows.npz"      a file, read when the device starts
    (rows, labels)              arrays, or a list of (row, label) pairs; where the task has ids, ids as a third
    a function                  called before each release; what it returns are the rows the device has now
    "-", an iterator            a stream: JSON lines on standard input, or pairs from any generator
    a `RowBuffer`               a stream that somebody else fills, from another thread

Files are CSV with a header, NPZ with arrays, and JSON lines; a mistake is named with its line. Where the task names its
columns, they are found by name in whichever order they stand: in the header of a CSV file, in the array `columns` of an
NPZ file, in a row of JSON lines that is an object. What does not fit is refused. Numbers without names are taken by
position, with a warning.
"""

from __future__ import annotations

import csv
import json
import sys
import threading
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from crowdml.core import BadInput
from crowdml.device.rows.row_contract import Contract, Pair, Table, Warn

Look = Callable[[Table], None]
"""Is shown rows as they come in."""
_ENDINGS = 'a .csv or .npz file, or "-" for JSON lines on standard input'


class KeptRows:
    """Rows that stay.

    Args:
        load: Returns them as they are now.
        fixed: Whether they stay the same while the device runs, so that they are loaded once.
        look: Is shown every table that was loaded.
    """

    def __init__(self, load: Callable[[], Table], *, fixed: bool, look: Look = lambda table: None) -> None:
        self._load, self.fixed, self._look = load, fixed, look
        self._loaded: Table | None = None

    def table(self) -> Table:
        """Return all rows."""
        if self._loaded is None or not self.fixed:
            self._loaded = self._load()
            self._look(self._loaded)
        return self._loaded


class PassingRows:
    """Rows that pass, read only when they are needed: whoever produces them waits meanwhile.

    Args:
        pairs: The stream.
        contract: What a row must look like.
        look: Is shown every table that was taken.
    """

    def __init__(self, pairs: Iterator[Pair] | RowBuffer, contract: Contract, look: Look = lambda table: None) -> None:
        self._pairs, self._contract, self._passed, self._look = pairs, contract, 0, look

    def take(self, least: int, most: int) -> Table | None:
        """Take the next `least` rows, of a buffer up to `most` that have gathered; None when it ends before."""
        if isinstance(self._pairs, RowBuffer):
            pairs, begun, name = self._pairs.drain(least, most), 0, "buffer"
        else:
            pairs, begun, name = list(islice(self._pairs, least)), self._passed, "stream"
            self._passed += len(pairs)
        found = self._contract.table(pairs, lambda number: f"row {begun + number + 1} of the {name}")
        self._look(found)
        return found if len(found) >= least else None


class RowBuffer:
    """A stream that another thread fills, such as a sensor's. It is bounded: what finds it full is lost.

    A batch grows with what has gathered while the server could not be reached.

    >>> buffer = RowBuffer(2)
    >>> [buffer.put([0.5, 1.0], "walking") for _ in range(3)]
    [True, True, False]

    Args:
        size: Rows it holds at most: the task's `buffer`, which `Device.buffer()` knows.
    """

    def __init__(self, size: int) -> None:
        self.size, self.lost = size, 0
        self._pairs: deque[Pair] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, row: Any, label: Any, id: Any = None) -> bool:
        """Add a row, with its id where the task asks for one; False if the buffer is full and the row is lost."""
        with self._changed:
            if len(self._pairs) >= self.size or self._closed:
                self.lost += 1
                return False
            self._pairs.append((row, label) if id is None else (row, label, id))
            self._changed.notify()
            return True

    def close(self) -> None:
        """Say that nothing more will come."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def drain(self, least: int, most: int) -> list[Pair]:
        """Wait for `least` rows and take up to `most`; nothing when the buffer was closed before."""
        with self._changed:
            while len(self._pairs) < least and not self._closed:
                self._changed.wait()
            if len(self._pairs) < least:
                return []
            return [self._pairs.popleft() for _ in range(min(most, len(self._pairs)))]


def source_of(
    rows: Any, contract: Contract, label_column: str = "label", warn: Warn = lambda line: None
) -> KeptRows | PassingRows:
    """Make a source of whatever was given; see the top of this file.

    Args:
        rows: Whatever was given.
        contract: What a row must look like.
        label_column: Which column of a CSV file holds the labels; that of a number has its name.
        warn: Told where numbers without names are taken by position, although the task names its columns, and once
            where targets lie beyond their bounds.
    """
    name = str(rows) if isinstance(rows, str | Path) and str(rows) != "-" else "the rows"
    look = _looking(contract, name, warn)
    if isinstance(rows, RowBuffer):
        return PassingRows(rows, contract, look)
    if isinstance(rows, str | Path):
        if str(rows) == "-":
            return PassingRows(json_lines(sys.stdin, contract, warn), contract, look)
        path = Path(rows)
        column = contract.column_of_targets(label_column)
        return KeptRows(lambda: load_file(path, contract, column, warn), fixed=True, look=look)
    if callable(rows):
        return KeptRows(lambda: _gathered(rows(), contract), fixed=False, look=look)
    if isinstance(rows, Iterator):
        return PassingRows(rows, contract, look)
    table = _gathered(rows, contract)
    return KeptRows(lambda: table, fixed=True, look=look)


def _looking(contract: Contract, name: str, warn: Warn) -> Look:
    """Warn of targets beyond their bounds, the first time there are some."""
    warned = False

    def look(table: Table) -> None:
        nonlocal warned
        words = "" if warned else contract.beyond(table, name)
        if words:
            warned = True
            warn(words)

    return look


def _gathered(rows: Any, contract: Contract) -> Table:
    """Make a table of arrays or of pairs."""
    if isinstance(rows, tuple) and len(rows) in (2, 3) and getattr(rows[0], "ndim", 0) == 2:
        return contract.from_arrays("rows", *rows)
    if not isinstance(rows, Iterable):
        raise BadInput(
            f"{type(rows).__name__} holds no rows", hint=f"give pairs of row and {contract.target.noun}, or two arrays"
        )
    return contract.table(rows, lambda number: f"row {number + 1}")


def load_file(path: Path, contract: Contract, label_column: str, warn: Warn = lambda line: None) -> Table:
    """Read a file of rows."""
    if path.is_dir():
        raise BadInput(f"{path} is a folder", where="--rows", hint=_ENDINGS)
    try:
        if path.suffix.lower() == ".csv":
            return load_csv(path, contract, label_column)
        if path.suffix.lower() == ".npz":
            return load_npz(path, contract, warn)
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}", where="--rows", hint=_ENDINGS) from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}", where="--rows") from None
    raise BadInput(f"{path} has no known ending", where="--rows", hint=_ENDINGS)


def load_csv(path: Path, contract: Contract, label_column: str) -> Table:
    """Read a table with a header: label and id by name; features by name, or all other columns in their order."""
    with open(path, newline="", encoding="utf-8-sig") as stream:
        try:
            return _read_csv(stream, str(path), contract, label_column)
        except (UnicodeDecodeError, csv.Error) as error:
            raise BadInput(f"{path} is not a CSV file: {error}") from None


def _read_csv(stream: IO[str], name: str, contract: Contract, label_column: str) -> Table:
    reader = csv.reader(stream)
    header = [column.strip() for column in next(reader, [])]
    if not header:
        raise BadInput("the file is empty", where=name, hint="a line that names the columns, then a line per row")
    label_at, id_at, places = _places(header, f"{name}, line 1", contract, label_column)
    names, pairs, lines = [header[at] for at in places], [], []
    for fields in reader:
        where = f"{name}, line {reader.line_num}"
        if len(fields) != len(header):
            raise BadInput(f"{len(fields)} fields, {len(header)} were expected", where=where)
        row = _numbers([fields[at] for at in places], names, where)
        pairs.append((row, fields[label_at].strip(), *(fields[at] for at in id_at)))
        lines.append(reader.line_num)
    return contract.table(pairs, lambda number: f"{name}, line {lines[number]}")


def _places(header: list[str], where: str, contract: Contract, label_column: str) -> tuple[int, list[int], list[int]]:
    """Find the columns of the label, of the id where there is one, and of the features."""
    if header.count(label_column) != 1:
        raise BadInput(
            f'{header.count(label_column) or "no"} column is called "{label_column}"',
            where=where,
            hint=f"the first line names the columns; --label-column says which one holds the {contract.target.noun}s",
        )
    if contract.id is not None and (header.count(contract.id) != 1 or contract.id == label_column):
        raise BadInput(
            f'{header.count(contract.id) or "no"} column is called "{contract.id}", beside that of the '
            f"{contract.target.noun}s",
            where=where,
            hint="the task tells samples apart by this column (data.id)",
        )
    others = [at for at, column in enumerate(header) if column not in (label_column, contract.id)]
    if contract.columns:
        found = contract.places([header[at] for at in others], where)
        others = [others[at] for at in found]
    elif len(others) != contract.features:
        noun = contract.target.noun
        beside = f"the {noun}" if contract.id is None else f"{noun} and id"
        raise BadInput(
            f"{len(others)} columns beside {beside}, but a row of this task has {contract.features} numbers",
            where=where,
        )
    return header.index(label_column), [] if contract.id is None else [header.index(contract.id)], others


def _numbers(fields: list[str], columns: list[str], where: str) -> list[float]:
    found = []
    for field, column in zip(fields, columns, strict=True):
        try:
            found.append(float(field))
        except ValueError:
            raise BadInput(f"{field!r} is not a number", where=f"{where}, column {column}") from None
    return found


def load_npz(path: Path, contract: Contract, warn: Warn = lambda line: None) -> Table:
    """Read arrays: `rows`, `labels` or `targets`, perhaps `columns` and `ids`. Only numbers and text are ever read."""
    try:
        # The stream is opened here, because np.load leaves it open when the file is broken.
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            noun = f"{contract.target.noun}s"
            given = next((name for name in (noun, "targets", "labels") if name in arrays), noun)
            missing = [name for name in ("rows", given) if name not in arrays]
            if missing:
                raise BadInput(f"no array is called {missing[0]}", where=str(path), hint=f"it needs rows and {noun}")
            rows, names = arrays["rows"], arrays["columns"] if "columns" in arrays else None
            if contract.columns and names is None:
                warn(by_position(str(path), contract))
            elif contract.columns:
                rows = _ordered(rows, names, contract, str(path))
            return contract.from_arrays(str(path), rows, arrays[given], arrays["ids"] if "ids" in arrays else None)
    except (ValueError, EOFError, zipfile.BadZipFile, zipfile.LargeZipFile, AttributeError) as error:
        # NumPy's own words would teach how to load what must never be loaded.
        why = "" if "pickle" in str(error) else f": {error}"
        raise BadInput(
            f"{path} is not an NPZ file of plain arrays{why}",
            hint=f"np.savez(path, rows=…, {contract.target.noun}s=…) writes one",
        ) from None


def _ordered(rows: Any, names: Any, contract: Contract, where: str) -> Any:
    """Put the columns of an array into the task's order."""
    if names.ndim != 1 or names.dtype.kind != "U" or rows.ndim != 2 or rows.shape[1] != len(names):
        raise BadInput(
            f"columns are {names.dtype} of shape {names.shape}, for rows of shape {rows.shape}",
            where=where,
            hint="one name for each column of rows",
        )
    return rows[:, contract.places([name.strip() for name in names.tolist()], where)]


def by_position(name: str, contract: Contract) -> str:
    """Say which number is taken for which column."""
    shown = ", ".join(contract.described[:20]) + (", …" if len(contract.described) > 20 else "")
    return f"{name}: numbers without names are taken by position, as {shown}"


def json_lines(stream: IO[str], contract: Contract, warn: Warn = lambda line: None) -> Iterator[Pair]:
    """Read one JSON object per line: {"row": […], "label": "…"}, or "target" for a number; empty lines are skipped.

    Where the task names its columns, a row may be an object; where samples have ids, each line has one: "id".
    """
    named, identified, noun = bool(contract.columns), contract.id is not None, contract.target.noun
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
            row, target = content["row"], content[noun]
            identity = (content["id"],) if identified else ()
        except (ValueError, KeyError, TypeError, RecursionError):
            raise BadInput(
                "not a row",
                where=f"line {number} of the stream",
                hint=f'{{"row": [0.5, 1.0], "{noun}": …' + (', "id": "…"}' if identified else "}"),
            ) from None
        if named and not isinstance(row, dict):
            warn(by_position("the stream", contract))
            named = False
        yield row, target, *identity
