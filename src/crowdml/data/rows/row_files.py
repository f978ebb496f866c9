"""Files of rows, read block by block: CSV with a header, NPZ with arrays, Parquet.

A mistake is named with its line or row and its column. Where the task names its columns, they are found by name in
whichever order they stand: in the header of a CSV or Parquet file, in the array `columns` of an NPZ file. What does not
fit is refused. Numbers without names are taken by position, with a warning where the task has names for them.

A device reads its own rows this way, and a simulation the rows of a whole crowd: there a column says whose each row is.
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Callable, Iterator
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from crowdml.core import BadInput, record
from crowdml.data.rows import parquet_files
from crowdml.data.rows.row_columns import Floats, require_finite, to_number
from crowdml.data.rows.row_contract import Contract, Warn, joined
from crowdml.data.rows.row_tables import Places, Table
from crowdml.data.rows.word_columns import Slot, complete_rows

ENDINGS = "a .csv, .npz or .parquet file"
Place = Callable[[int, int], str]
"""Names a field by the place of its line and of its column."""

NUMBERS_AT_ONCE = 1 << 17
"""Numbers of a block: as text they take some 10 MB."""


@record
class RowFile:
    """A file of rows that somebody has named.

    Attributes:
        path: The file.
        setting: What named it, for messages: an option or a key.
        endings: Which files would be right, in words.
    """

    path: Path
    setting: str
    endings: str = ENDINGS

    @property
    def ending(self) -> str:
        """What its name ends with, in small letters."""
        return self.path.suffix.lower()

    def blocks(self, contract: Contract, label_column: str, warn: Warn = lambda line: None) -> Iterator[Table]:
        """Read block after block.

        Args:
            contract: What a row must look like.
            label_column: Which column holds the targets.
            warn: Told where numbers without names are taken by position, although the task names its columns.
        """
        readers = {".csv": _csv_blocks, ".npz": _npz_blocks, ".parquet": parquet_files.blocks}
        if self.path.is_dir():
            raise BadInput(f"{self.path} is a folder", where=self.setting, hint=self.endings)
        if self.ending not in readers:
            raise BadInput(f"{self.path} has no known ending", where=self.setting, hint=self.endings)
        try:
            yield from readers[self.ending](self.path, contract, label_column, warn)
        except FileNotFoundError:
            raise BadInput(f"there is no file {self.path}", where=self.setting, hint=self.endings) from None
        except OSError as error:
            raise BadInput(f"{self.path} cannot be read: {error.strerror or error}", where=self.setting) from None

    def table(self, contract: Contract, label_column: str, warn: Warn = lambda line: None) -> Table:
        """Read all of it."""
        return joined(list(self.blocks(contract, label_column, warn)), contract)


def _csv_blocks(path: Path, contract: Contract, label_column: str, warn: Warn) -> Iterator[Table]:
    """Read a table with a header: label, id and owner by name; features by name, or all others in their order."""
    with open(path, newline="", encoding="utf-8-sig") as stream:
        reader = csv.reader(stream)
        try:
            yield from _csv_lines(reader, str(path), contract, label_column, warn)
        except UnicodeDecodeError:
            where = f"{path}, line {undecodable_line(path)}"
            raise BadInput("not text in UTF-8", where=where, hint="save it as CSV in UTF-8") from None
        except csv.Error as error:
            raise BadInput(
                f"not a line of a CSV file: {error}",
                where=f"{path}, line {reader.line_num}",
                hint="a line per row, its fields separated by commas; quotes that open must close",
            ) from None


def undecodable_line(path: Path) -> int:
    """Return the number of the first line that is not UTF-8: a stream decodes many at once."""
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1


def _csv_lines(reader: Any, name: str, contract: Contract, label_column: str, warn: Warn) -> Iterator[Table]:
    header = [column.strip() for column in next(reader, [])]
    if not header:
        raise BadInput("the file is empty", where=name, hint="a line that names the columns, then a line per row")
    _require_commas(header, f"{name}, line 1")
    places = contract.find(header, f"{name}, line 1", label_column)
    at_once = max(1, NUMBERS_AT_ONCE // len(header))
    # An empty line holds no row, as most programs have it; where a row is one field, it might be a missing value.
    numbered = ((reader.line_num, fields) for fields in reader if fields or len(header) == 1)
    seen = kept = 0
    while lines := list(islice(numbered, at_once)):
        seen += len(lines)
        lines = _complete(lines, header, places, contract) if contract.leaves_out else lines
        kept += len(lines)
        if lines:
            yield _csv_block(lines, header, places, name, contract)
    parquet_files.warn_left_out(name, seen - kept, seen, warn)


Lines = list[tuple[int, list[str]]]
"""Lines of a file, each with its number."""


def _complete(lines: Lines, header: list[str], places: Places, contract: Contract) -> Lines:
    """Leave lines out that lack a value; those of another length are kept, to be refused."""
    looked = contract.looked_at(places)
    columns = [[fields[at] if at < len(fields) else "" for _, fields in lines] for at, _ in looked]
    whole = complete_rows(columns, [slot for _, slot in looked])
    return [line for line, keep in zip(lines, whole, strict=True) if keep or len(line[1]) != len(header)]


def _require_commas(header: list[str], where: str) -> None:
    """Refuse a header whose names are separated by something else, as spreadsheets of many languages write it."""
    for mark, called in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if len(header) == 1 and mark in header[0]:
            raise BadInput(
                f"columns are separated by {called}",
                where=where,
                hint="separate them by commas, with points in decimals, as in 0.5",
            )


def _csv_block(lines: Lines, header: list[str], places: Places, name: str, contract: Contract) -> Table:
    """Make a table of lines, each with its number."""
    for number, fields in lines:
        if len(fields) != len(header):
            raise BadInput(
                f"{len(fields)} fields, {len(header)} were expected",
                where=f"{name}, line {number}",
                hint="every line has a field for each column, separated by commas",
            )

    def where(at: int, place: int) -> str:
        return f"{name}, line {lines[at][0]}, column {header[place]}"

    return contract.block(
        _csv_words(lines, places, contract, where) if contract.words else _csv_numbers(lines, places, where),
        [fields[places.label].strip() for _, fields in lines],
        lambda at: where(at, places.label),
        ids=_read_each(lines, places.id, contract.identity, lambda at, _: f"{name}, line {lines[at][0]}"),
        owners=_read_each(lines, places.owner, contract.owner_of, where),
    )


def _csv_words(lines: Lines, places: Places, contract: Contract, where: Place) -> Floats:
    """Read columns of words, and of numbers among them."""
    rows = np.empty((len(lines), contract.features), np.float32)
    for place, slot in zip(places.features, contract.slots, strict=True):
        fields = [line[place] for _, line in lines]
        rows[:, slot.place] = slot.read(fields, lambda at, place=place: where(at, place))  # type: ignore[misc]
    return rows


def _csv_numbers(lines: Lines, places: Places, where: Place) -> Floats:
    """Read columns of numbers alone, all at once."""
    pick = itemgetter(*places.features) if len(places.features) > 1 else lambda fields: (fields[places.features[0]],)
    picked = [pick(fields) for _, fields in lines]
    shape = (len(lines), len(places.features))
    try:
        numbers = np.fromiter(map(float, chain.from_iterable(picked)), np.float64, shape[0] * shape[1]).reshape(shape)
    except ValueError:
        numbers = np.array(
            [
                [to_number(field, where(at, places.features[n])) for n, field in enumerate(row)]
                for at, row in enumerate(picked)
            ]
        )
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as such
        rows = numbers.astype(np.float32)
    require_finite(rows, lambda at, n: where(at, places.features[n]), numbers)
    return rows


def _read_each(
    lines: Lines,
    place: int | None,
    read: Callable[[str, str], str],
    where: Place,
) -> tuple[str, ...] | None:
    """Read one column of text, where there is one."""
    if place is None:
        return None
    return tuple(read(fields[place], where(at, place)) for at, (_, fields) in enumerate(lines))


def _npz_blocks(path: Path, contract: Contract, label_column: str, warn: Warn) -> Iterator[Table]:
    """Read arrays: `rows`, `labels` or `targets`, perhaps `columns`, `ids` and owners. Nothing but numbers and text."""
    try:
        # The stream is opened here, because np.load leaves it open when the file is broken.
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            yield _npz_table(path, arrays, contract, label_column, warn)
    except (ValueError, EOFError, zipfile.BadZipFile, zipfile.LargeZipFile, AttributeError) as error:
        # NumPy's own words would teach how to load what must never be loaded.
        why = "" if "pickle" in str(error) else f": {error}"
        raise BadInput(
            f"{path} is not an NPZ file of plain arrays{why}",
            hint=f"np.savez(path, rows=…, {contract.target.noun}s=…) writes one",
        ) from None


def _npz_table(path: Path, arrays: Any, contract: Contract, label_column: str, warn: Warn) -> Table:
    noun = f"{contract.target.noun}s"
    given = next((name for name in (noun, "targets", "labels", label_column) if name in arrays), noun)
    missing = [name for name in ("rows", given) if name not in arrays]
    if missing:
        raise BadInput(f"no array is called {missing[0]}", where=str(path), hint=f"it needs rows and {noun}")
    asked = contract.owner if contract.wants_owner(arrays) else None
    if asked is not None and asked not in arrays:
        raise BadInput(
            f'no array is called "{asked}"',
            where=str(path),
            hint=f"data.owner names an array with an owner for each row; the file has: {', '.join(arrays)}",
        )
    rows, names = arrays["rows"], arrays["columns"] if "columns" in arrays else None
    if contract.columns and names is None:
        warn(by_position(str(path), contract))
    elif contract.columns:
        rows = _ordered(rows, names, contract, str(path))
    rest = [arrays[given], arrays["ids"] if "ids" in arrays else None, None if asked is None else arrays[asked]]
    numbers = None
    if contract.leaves_out and rows.ndim == 2:
        whole = _whole(rows, rest, contract)
        numbers = np.flatnonzero(whole)
        parquet_files.warn_left_out(str(path), int((~whole).sum()), len(rows), warn)
        rows, rest = rows[whole], [one[whole] if np.shape(one) == whole.shape else one for one in rest]
    targets, ids, owners = rest
    return contract.from_arrays(str(path), rows, targets, ids, owners, numbers)


def _whole(rows: Any, rest: list[Any], contract: Contract) -> Any:
    """Tell which rows lack nothing, nor what stands beside them; arrays that do not fit are refused later."""
    found = np.ones(len(rows), bool)
    if rows.dtype.kind == "f":
        found &= ~np.isnan(rows).any(axis=1)
    elif rows.dtype.kind == "U" and rows.shape[1] == len(contract.slots):
        found &= complete_rows([column.tolist() for column in rows.T], contract.slots)
    names = (getattr(contract.target, "names", ()), (), ())
    for words, beside in zip(names, rest, strict=True):
        if np.shape(beside) == found.shape:
            found &= complete_rows([beside.tolist()], [Slot(name="", begin=0, words=words)])
    return found


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
