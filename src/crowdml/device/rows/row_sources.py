"""Where a device's rows come from: tables that stay, and streams that pass.

A *kept* row can be used again, in as many releases as the terms allow. A *passing* row is used once and forgotten; if
it comes again it is the same sample, with the uses it has had (see `crowdml.device.rows.sample_numbers`).

    "rows.csv", "rows.npz"      a file, read when the device starts; Parquet too (`crowdml.data.rows.row_files`)
    (rows, labels)              arrays, or a list of (row, label) pairs; where the task has ids, ids as a third
    a function                  called before each release; what it returns are the rows the device has now
    "-", an iterator            a stream: JSON lines on standard input, or pairs from any generator
    a `RowBuffer`               a stream that somebody else fills, from another thread

A mistake is named with its line. Where the task names its columns, they are found by name in whichever order they
stand, also in a row of JSON lines that is an object. What does not fit is refused. Numbers without names are taken by
position, with a warning.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from crowdml.core import BadInput
from crowdml.data.rows.row_contract import Contract, Pair, Warn
from crowdml.data.rows.row_files import ENDINGS, RowFile, by_position
from crowdml.data.rows.row_tables import Table

Look = Callable[[Table], None]
"""Is shown rows as they come in."""
_ENDINGS = f'{ENDINGS}, or "-" for JSON lines on standard input'


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
    rows: Any, contract: Contract, label_column: str | None = None, warn: Warn = lambda line: None
) -> KeptRows | PassingRows:
    """Make a source of whatever was given; see the top of this file.

    Args:
        rows: Whatever was given.
        contract: What a row must look like.
        label_column: Which column of a file holds the labels; None: the one that the task names; a number's has
            the name of the target.
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
        file = RowFile(path=Path(rows), setting="--rows", endings=_ENDINGS)
        column = contract.column_of_targets(label_column)
        return KeptRows(lambda: file.table(contract, column, warn), fixed=True, look=look)
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
