"""Files of rows: CSV with a header, NPZ with two arrays, and JSON lines. A mistake is named with its line."""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from crowdml.core import BadInput
from crowdml.device.rows import Contract, Pair, Table, from_arrays

_ENDINGS = 'a .csv or .npz file, or "-" for JSON lines on standard input'


def load(path: Path, contract: Contract, label_column: str) -> Table:
    """Read a file of rows."""
    readers: dict[str, Callable[[], Table]] = {
        ".csv": lambda: load_csv(path, contract, label_column),
        ".npz": lambda: load_npz(path, contract),
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
    """Read a table with a header: one column of labels by name, all others are the features, in their order."""
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
    if header.count(label_column) != 1:
        raise BadInput(
            f'{header.count(label_column) or "no"} column is called "{label_column}"',
            where=f"{name}, line 1",
            hint="the first line names the columns; --label-column says which one holds the labels",
        )
    if len(header) - 1 != contract.features:
        raise BadInput(
            f"{len(header) - 1} columns beside the label, but a row of this task has {contract.features} numbers",
            where=f"{name}, line 1",
        )
    at, pairs, lines = header.index(label_column), [], []
    for fields in reader:
        where = f"{name}, line {reader.line_num}"
        if len(fields) != len(header):
            raise BadInput(f"{len(fields)} fields, {len(header)} were expected", where=where)
        label = fields.pop(at).strip()
        pairs.append((_numbers(fields, [*header[:at], *header[at + 1 :]], where), label))
        lines.append(reader.line_num)
    return contract.table(pairs, lambda number: f"{name}, line {lines[number]}")


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


def load_npz(path: Path, contract: Contract) -> Table:
    """Read two arrays, `rows` and `labels`. Nothing but numbers and text is ever read from such a file."""
    try:
        # The stream is opened here, because np.load leaves it open when the file is broken.
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            missing = [name for name in ("rows", "labels") if name not in arrays]
            if missing:
                raise BadInput(f"no array is called {missing[0]}", where=str(path), hint="it needs rows and labels")
            return from_arrays(arrays["rows"], arrays["labels"], contract, str(path))
    except (ValueError, EOFError, zipfile.BadZipFile, zipfile.LargeZipFile, AttributeError) as error:
        # NumPy's own words would teach how to load what must never be loaded.
        why = "" if "pickle" in str(error) else f": {error}"
        raise BadInput(
            f"{path} is not an NPZ file of plain arrays{why}", hint="np.savez(path, rows=…, labels=…) writes one"
        ) from None


def json_lines(stream: IO[str]) -> Iterator[Pair]:
    """Read one JSON object per line: {"row": […], "label": "…"}; empty lines are skipped."""
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
            yield content["row"], content["label"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise BadInput(
                "not a row", where=f"line {number} of the stream", hint='{"row": [0.5, 1.0], "label": "…"}'
            ) from None
