"""Where a device's rows come from: tables that stay, and streams that pass.

A *kept* row can be used again, in as many releases as the terms allow. A *passing* row is used once and forgotten; if
it comes again it is the same sample, with the uses it has had (see `crowdml.device.samples`).

    "rows.csv", "rows.npz"      a file, read when the device starts
    (rows, labels)              arrays, or a list of (row, label) pairs; where the task has ids, ids as a third
    a function                  called before each release; what it returns are the rows the device has now
    "-", an iterator            a stream: JSON lines on standard input, or pairs from any generator
    a `RowBuffer`               a stream that somebody else fills, from another thread
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from crowdml.core import BadInput
from crowdml.device.row_contract import Contract, Pair, Table

Warn = Callable[[str], None]
"""Is told what the owner should know."""


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


def source_of(rows: Any, contract: Contract, label_column: str = "label", warn: Warn = lambda line: None) -> Source:
    """Make a source of whatever was given; see the top of this file.

    Args:
        rows: Whatever was given.
        contract: What a row must look like.
        label_column: Which column of a CSV file holds the labels.
        warn: Told where numbers without names are taken by position, although the task names its columns.
    """
    from crowdml.device import row_files

    if isinstance(rows, KeptRows | PassingRows | BufferedRows):
        return rows
    if isinstance(rows, RowBuffer):
        return BufferedRows(rows, contract)
    if isinstance(rows, str | Path):
        if str(rows) == "-":
            return PassingRows(row_files.json_lines(sys.stdin, contract, warn), contract)
        path = Path(rows)
        return KeptRows(lambda: row_files.load(path, contract, label_column, warn), fixed=True)
    if callable(rows):
        return KeptRows(lambda: _gathered(rows(), contract), fixed=False)
    if isinstance(rows, Iterator):
        return PassingRows(rows, contract)
    table = _gathered(rows, contract)
    return KeptRows(lambda: table, fixed=True)


def _gathered(rows: Any, contract: Contract) -> Table:
    """Make a table of arrays or of pairs."""
    if isinstance(rows, tuple) and len(rows) in (2, 3) and getattr(rows[0], "ndim", 0) == 2:
        return contract.from_arrays("rows", *rows)
    if not isinstance(rows, Iterable):
        raise BadInput(f"{type(rows).__name__} holds no rows", hint="give pairs of row and label, or two arrays")
    return contract.table(rows, lambda number: f"row {number + 1}")
