"""Parquet files: a few thousand rows at a time, so that no more of the table is in memory than what is made of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput
from crowdml.data.rows.row_columns import to_floats
from crowdml.data.rows.row_contract import Contract, Table, Warn

ROWS_AT_ONCE = 1 << 15
BUFFER = 1 << 16
"""Bytes of a column that are read ahead; without it Arrow would read the whole part of a column that a group has."""


def count_rows(path: Path) -> int:
    """Return how many rows a file has, which its end says."""
    return int(_open(path).metadata.num_rows)


def owners(path: Path, contract: Contract) -> Iterator[tuple[str, ...]]:
    """Read whose each row is, and nothing else."""
    file = _open(path)
    names = [name.strip() for name in file.schema_arrow.names]
    place = contract.find_owner(names, str(path))
    begin = 0
    for batch in _batches(file, [file.schema_arrow.names[place]]):
        yield _owners(batch.column(0), contract, str(path), begin)
        begin += batch.num_rows


def blocks(path: Path, contract: Contract, label_column: str, warn: Warn) -> Iterator[Table]:
    """Read tables: label, id and owner by name; features by name, or all other columns in their order."""
    file, name = _open(path), str(path)
    stored = file.schema_arrow.names
    header = [column.strip() for column in stored]
    places = contract.find(header, name, label_column)
    order = [*places.features, places.label, *([places.id] if places.id is not None else [])]
    order += [places.owner] if places.owner is not None else []
    begin = 0
    for batch in _batches(file, [stored[at] for at in order]):
        columns = {at: batch.column(batch.schema.get_field_index(stored[at])) for at in order}
        rows = np.empty((batch.num_rows, len(places.features)), np.float32)
        for at, place in enumerate(places.features):
            rows[:, at] = to_floats(_values(columns[place]), _where(name, begin, header[place]))
        ids = None
        if places.id is not None:
            values = enumerate(columns[places.id].to_pylist())
            ids = tuple(contract.identity(value, f"{name}, row {begin + at + 1}") for at, value in values)
        whose = None if places.owner is None else _owners(columns[places.owner], contract, name, begin)
        targets = columns[places.label].to_pylist()
        yield contract.block(rows, targets, _where(name, begin, header[places.label]), ids=ids, owners=whose)
        begin += batch.num_rows


def _where(name: str, begin: int, column: str) -> Any:
    return lambda at: f"{name}, row {begin + at + 1}, column {column}"


def _owners(column: Any, contract: Contract, name: str, begin: int) -> tuple[str, ...]:
    where = _where(name, begin, str(contract.owner))
    return tuple(contract.owner_of(value, where(at)) for at, value in enumerate(column.to_pylist()))


def _values(column: Any) -> npt.NDArray[Any]:
    """Return the numbers of a column; what is missing or no number stays as it is, to be named."""
    import pyarrow as pa

    kind = column.type
    plain = pa.types.is_floating(kind) or pa.types.is_integer(kind)
    if plain and not column.null_count:
        values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return values
    return np.array(column.to_pylist(), object)


def _batches(file: Any, columns: list[str]) -> Iterator[Any]:
    """Read batches of rows; one thread, since several would hold several batches."""
    import pyarrow as pa

    try:
        yield from file.iter_batches(batch_size=ROWS_AT_ONCE, columns=columns, use_threads=False)
    except pa.ArrowException as error:
        raise BadInput(f"the file is damaged: {error}", hint="write it anew") from None


def _open(path: Path) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError:
        raise BadInput(
            f"{path} is a Parquet file, and the package that reads those is not installed",
            hint="pip install 'crowdml[parquet]'; or save the rows as .csv or .npz",
        ) from None
    if not path.exists():
        raise FileNotFoundError(path)
    try:
        return parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False)
    except pa.ArrowException as error:
        raise BadInput(f"{path} is not a Parquet file: {error}", hint="frame.to_parquet(path) writes one") from None
