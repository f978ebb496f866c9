"""Which words the columns of a file hold: read once, written down, and from then on part of the task."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from crowdml.core import BadInput
from crowdml.core.registry import nearest
from crowdml.data.rows import parquet_files
from crowdml.data.rows.row_columns import is_missing
from crowdml.data.rows.row_files import undecodable_line
from crowdml.data.rows.word_columns import as_word

MOST_WORDS = 1000
"""A column with more is no category: an id, a name, or a text."""


def list_words(path: Path, columns: Sequence[str] = (), leave_out: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return the words of columns, in order.

    Args:
        path: The file.
        columns: Which columns; none: all in which something is no number.
        leave_out: Columns that are passed over.
    """
    readers = {".csv": _csv_values, ".parquet": _parquet_values}
    if path.suffix.lower() not in readers:
        raise BadInput(f"{path} has no known ending", where="FILE", hint="a .csv or .parquet file")
    if not path.is_file():
        raise BadInput(f"there is no file {path}", where="FILE", hint="a .csv or .parquet file")
    found = dict[str, set[str] | None]()
    for name, values in readers[path.suffix.lower()](path):
        if name in leave_out or (columns and name not in columns):
            found[name] = None
            continue
        known = found.setdefault(name, set())
        if known is not None:
            known |= {as_word(value) for value in values if not is_missing(value)}
            found[name] = _category(name, known, asked=name in columns, where=str(path))
    for name in (*columns, *leave_out):
        if name not in found:
            raise BadInput(f"no column is called {name}", where=str(path), hint=nearest(name, list(found)))
    listed = {name: sorted(some) for name, some in found.items() if some is not None}
    chosen = {name: some for name, some in listed.items() if columns or not all(map(_is_number, some))}
    if not chosen:
        raise BadInput("no column holds words", where=str(path), hint="leave data.words out")
    return chosen


def words_toml(words: Mapping[str, Sequence[str]]) -> str:
    """Write words as the table that a task reads."""
    lines = (
        f"{json.dumps(name, ensure_ascii=False)} = {json.dumps(list(some), ensure_ascii=False)}\n"
        for name, some in words.items()
    )
    return "".join(lines)


def _category(name: str, known: set[str], *, asked: bool, where: str) -> set[str] | None:
    """Return the words so far; None where there are many different numbers, so that they are no category."""
    if len(known) <= MOST_WORDS:
        return known
    if not asked and all(map(_is_number, known)):
        return None
    raise BadInput(
        f"column {name} has more than {MOST_WORDS} different words: it is no category",
        where=where,
        hint=f"--except {name}, and leave it out of data.columns",
    )


def _csv_values(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Read a file part by part; for each, every column with its values."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream)
            header, rows = [name.strip() for name in next(reader, [])], list[list[str]]()
            for fields in reader:
                rows += [fields] if fields else []
                if len(rows) == parquet_files.ROWS_AT_ONCE:
                    yield from _turned(header, rows)
                    rows = []
            yield from _turned(header, rows)
    except UnicodeDecodeError:
        where = f"{path}, line {undecodable_line(path)}"
        raise BadInput("not text in UTF-8", where=where, hint="save it as CSV in UTF-8") from None
    except csv.Error as error:
        raise BadInput(f"{path} is not a CSV file: {error}", hint="fields are separated by commas") from None


def _turned(header: list[str], rows: list[list[str]]) -> Iterator[tuple[str, list[str]]]:
    for at, name in enumerate(header):
        yield name, [fields[at] for fields in rows if at < len(fields)]


def _parquet_values(path: Path) -> Iterator[tuple[str, list[Any]]]:
    for name, values in parquet_files.each_column(path):
        yield name.strip(), values


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
