"""Where a device's rows come from: tables that stay, and streams that pass.

A *kept* row can be used again, in as many releases as the terms allow. A *passing* row is used once and forgotten.

    "rows.csv", "rows.npz"      a file, read when the device starts
    (rows, labels)              arrays, or a list of (row, label) pairs
    a function                  called before each release; what it returns are the rows the device has now
    "-", an iterator            a stream: JSON lines on standard input, or pairs from any generator
    a `RowBuffer`               a stream that somebody else fills, from another thread
"""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput, record
from crowdml.core.registry import nearest

Pair = tuple[Any, Any]
"""A row and its label."""


@record
class Table:
    """Rows as the owner has them, before the task's transforms.

    Attributes:
        rows: float32, shape (count, features).
        labels: Class numbers, int32.
    """

    rows: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int32]

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.labels)


@record
class Contract:
    """What a row must look like: the `[data]` section of the task.

    Attributes:
        features: Numbers in a row.
        labels: Names of the labels, in the order of their numbers.
    """

    features: int
    labels: tuple[str, ...]

    def label(self, value: Any, where: str) -> int:
        """Return the number of a label: a text is its name, a whole number is its number."""
        if isinstance(value, str):
            if value in self.labels:
                return self.labels.index(value)
            raise BadInput(f"{value!r} is not a label", where=where, hint=nearest(value, list(self.labels)))
        if isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_):
            if 0 <= value < len(self.labels):
                return int(value)
            raise BadInput(f"label {value} is not a number from 0 to {len(self.labels) - 1}", where=where)
        raise BadInput(f"{value!r} is not a label", where=where, hint="a name, or a whole number from 0")

    def row(self, values: Any, where: str) -> npt.NDArray[np.float32]:
        """Return a row as float32."""
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
        rows, labels = [], []
        for number, pair in enumerate(pairs):
            try:
                values, label = pair
            except (TypeError, ValueError):
                raise BadInput("should be a pair of row and label", where=where(number)) from None
            rows.append(self.row(values, where(number)))
            labels.append(self.label(label, where(number)))
        stacked = np.stack(rows) if rows else np.zeros((0, self.features), np.float32)
        return Table(rows=stacked, labels=np.array(labels, np.int32))


class KeptRows:
    """Rows that stay.

    Args:
        load: Returns them as they are now.
        fixed: Whether they stay the same while the device runs, so that they are loaded once.
    """

    def __init__(self, load: Callable[[], Table], *, fixed: bool) -> None:
        """Load nothing yet."""
        self._load, self.fixed = load, fixed
        self._loaded: Table | None = None

    def table(self) -> Table:
        """Return all rows."""
        if not self.fixed:
            return self._load()
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded


class PassingRows:
    """Rows that pass, read only when they are needed: whoever produces them waits meanwhile.

    Args:
        pairs: The stream.
        contract: What a row must look like.
    """

    def __init__(self, pairs: Iterator[Pair], contract: Contract) -> None:
        """Read nothing yet."""
        self._pairs, self._contract, self._passed = pairs, contract, 0

    def take(self, least: int, most: int) -> Table | None:
        """Take the next `least` rows; None when the stream ends before."""
        pairs = []
        for pair in self._pairs:
            pairs.append(pair)
            if len(pairs) == least:
                break
        begun, self._passed = self._passed, self._passed + len(pairs)
        found = self._contract.table(pairs, lambda number: f"row {begun + number + 1} of the stream")
        return found if len(pairs) == least else None


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
        """Begin empty."""
        self.size, self.lost = size, 0
        self._pairs: deque[Pair] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, row: Any, label: Any) -> bool:
        """Add a row; False if the buffer is full and the row is lost."""
        with self._changed:
            if len(self._pairs) >= self.size or self._closed:
                self.lost += 1
                return False
            self._pairs.append((row, label))
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


class BufferedRows:
    """Rows of a `RowBuffer`, checked as they are taken."""

    def __init__(self, buffer: RowBuffer, contract: Contract) -> None:
        """Take nothing yet."""
        self._buffer, self._contract = buffer, contract

    def take(self, least: int, most: int) -> Table | None:
        """Take what has gathered, between `least` and `most` rows; None when the buffer was closed before."""
        pairs = self._buffer.drain(least, most)
        return self._contract.table(pairs, lambda number: f"row {number + 1} of the buffer") if pairs else None


Source = KeptRows | PassingRows | BufferedRows


def source_of(rows: Any, contract: Contract, label_column: str = "label") -> Source:
    """Make a source of whatever was given; see the top of this file."""
    from crowdml.device import row_files

    if isinstance(rows, KeptRows | PassingRows | BufferedRows):
        return rows
    if isinstance(rows, RowBuffer):
        return BufferedRows(rows, contract)
    if isinstance(rows, str | Path):
        if str(rows) == "-":
            return PassingRows(row_files.json_lines(sys.stdin), contract)
        path = Path(rows)
        return KeptRows(lambda: row_files.load(path, contract, label_column), fixed=True)
    if callable(rows):
        return KeptRows(lambda: _gathered(rows(), contract), fixed=False)
    if isinstance(rows, Iterator):
        return PassingRows(rows, contract)
    table = _gathered(rows, contract)
    return KeptRows(lambda: table, fixed=True)


def _gathered(rows: Any, contract: Contract) -> Table:
    """Make a table of arrays or of pairs."""
    if isinstance(rows, tuple) and len(rows) == 2 and getattr(rows[0], "ndim", 0) == 2:
        return from_arrays(rows[0], rows[1], contract, "rows")
    if not isinstance(rows, Iterable):
        raise BadInput(f"{type(rows).__name__} holds no rows", hint="give pairs of row and label, or two arrays")
    return contract.table(rows, lambda number: f"row {number + 1}")


def from_arrays(rows: Any, labels: Any, contract: Contract, name: str) -> Table:
    """Check two arrays: numbers of shape (count, features), and one label each."""
    rows, labels = np.asarray(rows), np.asarray(labels)
    if rows.ndim != 2 or rows.shape[1] != contract.features or rows.dtype.kind not in "fiub":
        raise BadInput(
            f"rows are {rows.dtype} of shape {rows.shape}",
            where=name,
            hint=f"numbers of shape (…, {contract.features})",
        )
    if labels.shape != (len(rows),):
        raise BadInput(f"{len(rows)} rows, but labels of shape {labels.shape}", where=name)
    with np.errstate(over="ignore"):
        rows = rows.astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(wrong):
        raise BadInput("a number is not finite", where=f"{name}, row {wrong[0] + 1}")
    numbers = [contract.label(value, f"{name}, row {at + 1}") for at, value in enumerate(labels.tolist())]
    return Table(rows=rows, labels=np.array(numbers, np.int32))


def _shape(row: npt.NDArray[Any]) -> str:
    return f"{row.size}" if row.ndim == 1 else f"an array of shape {row.shape}, {math.prod(row.shape)} in all"
