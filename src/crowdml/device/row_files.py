"""Files of rows: CSV with a header, NPZ with arrays, and JSON lines. A mistake is named with its line.

Where the task names its columns, they are found by name in whichever order they stand: in the header of a CSV file, in
the array `columns` of an NPZ file, in a row of JSON lines that is an object. What does not fit is refused. Numbers
without names are taken by position, with a warning.
"""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from crowdml.core import BadInput
from crowdml.device.row_contract import Contract, Pair, Table
from crowdml.device.rows import Warn

_ENDINGS = 'a .csv or .npz file, or "-" for JSON lines on standard input'


def load(path: Path, contract: Contract, label_column: str, warn: Warn = lambda line: None) -> Table:
    """Read a file of rows."""
    readers: dict[str, Callable[[], Table]] = {
        ".csv": lambda: load_csv(path, contract, label_column),
        ".npz": lambda: load_npz(path, contract, warn),
    }
    if path.is_dir():
        raise BadInput(f"{path} is a folder", where="--rows", hint=_ENDINGS)
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise BadInput(f"{path} has no known ending", where="--rows", hint=_ENDINGS)
    try:
        return reader()
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}", where="--rows", hint=_ENDINGS) from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}", where="--rows") from None


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
            hint="the first line names the columns; --label-column says which one holds the labels",
        )
    if contract.id is not None and (header.count(contract.id) != 1 or contract.id == label_column):
        raise BadInput(
            f'{header.count(contract.id) or "no"} column is called "{contract.id}", beside that of the labels',
            where=where,
            hint="the task tells samples apart by this column (data.id)",
        )
    others = [at for at, column in enumerate(header) if column not in (label_column, contract.id)]
    if contract.columns:
        found = contract.places([header[at] for at in others], where)
        others = [others[at] for at in found]
    elif len(others) != contract.features:
        beside = "the label" if contract.id is None else "label and id"
        raise BadInput(
            f"{len(others)} columns beside {beside}, but a row of this task has {contract.features} numbers",
            where=where,
        )
    return header.index(label_column), [] if contract.id is None else [header.index(contract.id)], others


def _numbers(fields: list[str], columns: list[str], where: str) -> list[float]:
    try:
        return [float(field) for field in fields]
    except ValueError:
        for field, column in zip(fields, columns, strict=True):
            if not _is_number(field):
                raise BadInput(f"{field!r} is not a number", where=f"{where}, column {column}") from None
        raise


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def load_npz(path: Path, contract: Contract, warn: Warn = lambda line: None) -> Table:
    """Read arrays, `rows` and `labels`, perhaps `columns` and `ids`. Nothing but numbers and text is ever read."""
    try:
        # The stream is opened here, because np.load leaves it open when the file is broken.
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            missing = [name for name in ("rows", "labels") if name not in arrays]
            if missing:
                raise BadInput(f"no array is called {missing[0]}", where=str(path), hint="it needs rows and labels")
            rows, names = arrays["rows"], arrays["columns"] if "columns" in arrays else None
            if contract.columns and names is None:
                warn(by_position(str(path), contract))
            elif contract.columns:
                rows = _ordered(rows, names, contract, str(path))
            return contract.from_arrays(str(path), rows, arrays["labels"], arrays["ids"] if "ids" in arrays else None)
    except (ValueError, EOFError, zipfile.BadZipFile, zipfile.LargeZipFile, AttributeError) as error:
        # NumPy's own words would teach how to load what must never be loaded.
        why = "" if "pickle" in str(error) else f": {error}"
        raise BadInput(
            f"{path} is not an NPZ file of plain arrays{why}", hint="np.savez(path, rows=…, labels=…) writes one"
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


def json_lines(stream: IO[str], contract: Contract | None = None, warn: Warn = lambda line: None) -> Iterator[Pair]:
    """Read one JSON object per line: {"row": […], "label": "…"}; empty lines are skipped.

    Where the task names its columns, a row may be an object; where samples have ids, each line has one: "id".
    """
    named = contract is not None and bool(contract.columns)
    identified = contract is not None and contract.id is not None
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
            row, label = content["row"], content["label"]
            identity = (content["id"],) if identified else ()
        except (ValueError, KeyError, TypeError, RecursionError):
            raise BadInput(
                "not a row",
                where=f"line {number} of the stream",
                hint='{"row": [0.5, 1.0], "label": "…"' + (', "id": "…"}' if identified else "}"),
            ) from None
        if named and contract is not None and not isinstance(row, dict):
            warn(by_position("the stream", contract))
            named = False
        yield row, label, *identity
