"""Parquet files: a part of a column at a time, so that no more of the table is in memory than what is made of it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput
from crowdml.core.errors import install
from crowdml.data.rows.row_columns import Floats, to_floats
from crowdml.data.rows.row_contract import Contract, Warn
from crowdml.data.rows.row_tables import Places, Table
from crowdml.data.rows.word_columns import Slot, complete_rows

Write = Callable[[int, int | slice, Floats], None]
NO_ROWS = np.zeros((0, 0), np.float32)

ROWS_AT_ONCE = 1 << 15
BUFFER = 1 << 16
"""Bytes of a column that are read ahead; without it Arrow would read the whole part of a column that a group has."""


def count_rows(path: Path) -> int:
    """Return how many rows a file has, which its end says."""
    return int(_open(path).metadata.num_rows)


def owners(path: Path, contract: Contract) -> Iterator[tuple[str, ...]]:
    """Read whose each row is, and nothing else."""
    file, name = _open(path), str(path)
    stored = file.schema_arrow.names
    place = contract.find_owner([column.strip() for column in stored], name)
    for begin, column in _column(file, stored[place], name):
        where = _where(name, begin, str(contract.owner))
        yield tuple(contract.owner_of(value, where(at)) for at, value in enumerate(column.to_pylist()))


def blocks(path: Path, contract: Contract, label_column: str, warn: Warn) -> Iterator[Table]:
    """Read all rows as one table; or where some may be left out, part by part."""
    if contract.leaves_out:
        yield from _complete_blocks(path, contract, label_column, warn)
        return
    rows = np.empty((count_rows(path), contract.features), np.float32)

    def write(begin: int, column: int | slice, values: Floats) -> None:
        rows[begin : begin + len(values), column] = values

    rest = read(path, contract, label_column, write)
    yield dataclasses.replace(rest, rows=rows)


def read(path: Path, contract: Contract, label_column: str, write: Write) -> Table:
    """Read a file column by column: label, id and owner by name; features by name, or all others in their order.

    Several columns side by side would take a buffer each.

    Args:
        path: The file.
        contract: What a row must look like.
        label_column: Which column holds the targets.
        write: Is handed the numbers of rows: number of the first row, place of the numbers in a row, and the numbers.

    Returns:
        Everything but the rows.
    """
    import pyarrow as pa

    file, name = _open(path), str(path)
    stored, header = _names(file, name)
    places = contract.find(header, name, label_column)
    slots = contract.slots if contract.words else ()
    for at, place in enumerate(places.features):
        for begin, column in _column(file, stored[place], name):
            where = _where(name, begin, header[place])
            if slots and slots[at].words:
                write(begin, slots[at].place, slots[at].read(column.to_pylist(), where))
            else:
                write(begin, slots[at].begin if slots else at, to_floats(_values(column), where))
    targets, outside = [], 0
    for begin, column in _column(file, stored[places.label], name):
        found = contract.block(NO_ROWS, column.to_pylist(), _where(name, begin, header[places.label]))
        targets.append(found.targets)
        outside += found.outside
    ids = _texts(file, stored, places.id, contract.identity, name)
    whose = _texts(file, stored, places.owner, contract.owner_of, name)
    pa.default_memory_pool().release_unused()
    joined = np.concatenate(targets) if targets else np.zeros(0, contract.target.dtype)
    return Table(rows=NO_ROWS, targets=joined, ids=ids, outside=outside, owners=whose)


def _names(file: Any, name: str) -> tuple[list[str], list[str]]:
    """Return the names of columns as they are stored, by which they are read, and without spaces around them."""
    stored = list(file.schema_arrow.names)
    if len(set(stored)) < len(stored):
        twice, count = Counter(stored).most_common(1)[0]
        raise BadInput(f"{count} columns are called {twice}", where=name, hint="a name for each column")
    return stored, [column.strip() for column in stored]


def _complete_blocks(path: Path, contract: Contract, label_column: str, warn: Warn) -> Iterator[Table]:
    """Read the rows that lack nothing, all columns side by side."""
    import pyarrow as pa

    file, name = _open(path), str(path)
    stored, header = _names(file, name)
    places = contract.find(header, name, label_column)
    looked, slots, seen, kept = contract.looked_at(places), contract.slots, 0, 0
    names = [stored[at] for at, _ in looked]
    try:
        for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=names, use_threads=False):
            columns = {at: batch.column(batch.schema.get_field_index(stored[at])).to_pylist() for at, _ in looked}
            whole = np.flatnonzero(complete_rows([columns[at] for at, _ in looked], [slot for _, slot in looked]))
            picked = {at: [values[one] for one in whole] for at, values in columns.items()}
            if len(whole):
                yield _block(contract, places, slots, picked, _named(name, (whole + seen).tolist(), header))
            seen, kept = seen + batch.num_rows, kept + len(whole)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(name, error) from None
    warn_left_out(name, seen - kept, seen, warn)


def _named(name: str, numbers: list[int], header: list[str]) -> Callable[[int, int], str]:
    return lambda at, place: f"{name}, row {numbers[at] + 1}, column {header[place]}"


def _block(
    contract: Contract,
    places: Places,
    slots: tuple[Slot, ...],
    columns: dict[int, list[Any]],
    where: Callable[[int, int], str],
) -> Table:
    """Make a table of the values of columns, by their places."""
    features = [
        slot.read(columns[place], lambda at, place=place: where(at, place))  # type: ignore[misc]
        for place, slot in zip(places.features, slots, strict=True)
    ]
    texts = [
        None if place is None else tuple(read_one(value, where(at, place)) for at, value in enumerate(columns[place]))
        for place, read_one in ((places.id, contract.identity), (places.owner, contract.owner_of))
    ]
    return contract.block(
        np.concatenate(features, axis=1),
        columns[places.label],
        lambda at: where(at, places.label),
        ids=texts[0],
        owners=texts[1],
    )


def warn_left_out(name: str, count: int, seen: int, warn: Warn) -> None:
    """Say how many rows were left out, if any were."""
    if count:
        warn(f"{name}: {count} of {seen} rows lack a value and are left out")


def each_column(path: Path) -> Iterator[tuple[str, list[Any]]]:
    """Read all columns, one after the other, in parts."""
    file = _open(path)
    for name in file.schema_arrow.names:
        for _, column in _column(file, name, str(path)):
            yield name, column.to_pylist()


def _texts(
    file: Any, stored: list[str], place: int | None, read_one: Callable[[Any, str], str], name: str
) -> tuple[str, ...] | None:
    """Read a column of text, where there is one."""
    if place is None:
        return None
    found: list[str] = []
    for begin, column in _column(file, stored[place], name):
        where = _where(name, begin, stored[place].strip())
        found += [read_one(value, where(at)) for at, value in enumerate(column.to_pylist())]
    return tuple(found)


def _where(name: str, begin: int, column: str) -> Any:
    return lambda at: f"{name}, row {begin + at + 1}, column {column}"


def _values(column: Any) -> npt.NDArray[Any]:
    """Return the numbers of a column; what is missing or no number stays as it is, to be named."""
    import pyarrow as pa

    kind = column.type
    plain = pa.types.is_floating(kind) or pa.types.is_integer(kind)
    if plain and not column.null_count:
        values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return values
    return np.array(column.to_pylist(), object)


def _column(file: Any, column: str, name: str) -> Iterator[tuple[int, Any]]:
    """Read one column of the file called `name` in parts, each with the number of its first row."""
    import pyarrow as pa

    begin = 0
    try:
        for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=[column], use_threads=False):
            part = batch.column(0)
            if pa.types.is_string(part.type) or pa.types.is_large_string(part.type):
                part.validate(full=True)  # bytes that are no text would be found by whoever reads them
            yield begin, part
            begin += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise _damaged(f"{name}, column {column.strip()}", error) from None


def _damaged(where: str, error: Exception) -> BadInput:
    return BadInput(f"the file is damaged: {' '.join(str(error).split())}", where=where, hint="write it anew")


def _open(path: Path) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError:
        raise BadInput(
            f"{path} is a Parquet file, and the package that reads those is not installed",
            hint=install("parquet") + "; or save the rows as .csv or .npz",
        ) from None
    if not path.exists():
        raise FileNotFoundError(path)
    try:
        return parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False)
    except PermissionError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path} is not a Parquet file: {error}", hint="frame.to_parquet(path) writes one") from None
