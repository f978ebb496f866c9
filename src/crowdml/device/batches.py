"""Gathering a batch: which rows enter the next release, chosen without looking at what is in them.

Kept rows take turns: those that were used least go first, in an order drawn from the operating system's entropy. That
is a pass over all rows after the other, also when the device was switched off in between. No sample is twice in a
batch, and one that has been used as often as the terms allow stays out. In rounds a device works on all its rows, or
on as many as the task takes from one device.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.algorithms.live import LiveTask
from crowdml.core import BadInput, Batch, record
from crowdml.core.errors import BudgetExhausted
from crowdml.device.memory import Memory
from crowdml.device.rows import KeptRows, Source, Table

Ints = npt.NDArray[Any]
Draw = Callable[[int], Ints]
"""`draw(count)`: so many random 64-bit words."""


def os_words(count: int) -> Ints:
    """Draw words from the operating system's entropy."""
    return np.frombuffer(os.urandom(8 * count), np.uint64)


@record
class Gathered:
    """A batch and the numbers of its samples, each once."""

    batch: Batch
    samples: Ints


class Gatherer:
    """Gathers batches for one task.

    Args:
        source: Where rows come from.
        live: The task.
        memory: Keeps the numbers of samples.
        uses: `uses()`: how often each sample was used, by its number.
        most_uses: How often a sample may be used; None: as often as you like.
        draw: Random words; from the operating system unless a test gives them.
    """

    def __init__(
        self,
        source: Source,
        live: LiveTask,
        memory: Memory,
        uses: Callable[[], Ints],
        most_uses: int | None,
        draw: Draw = os_words,
    ) -> None:
        """Gather nothing yet."""
        if live.algorithm.visit and not isinstance(source, KeptRows):
            raise BadInput(
                f"{live.task.algorithm.kind} goes through all rows of a device in every round; a stream has no end",
                where="--rows",
                hint="give a file",
            )
        self._source, self._live, self._memory = source, live, memory
        self._uses, self._most_uses, self._draw = uses, most_uses, draw
        self._numbered: tuple[Table, Ints, Any] | None = None
        self._next = 0

    def gather(self) -> Gathered | None:
        """Return the next batch; None when a stream has ended.

        Raises:
            BudgetExhausted: Too few rows may still be used.
        """
        if isinstance(self._source, KeptRows):
            return self._from_kept(self._source)
        algorithm = self._live.algorithm
        table = self._source.take(algorithm.batch, algorithm.buffer)
        if table is None:
            return None
        self._next = max(self._next, self._free(), self._memory.next_number())
        samples = np.arange(self._next, self._next + len(table))
        self._next += len(table)
        rows = self._live.transform(table.rows)
        return Gathered(batch=_batch(rows, table.labels, np.arange(len(table)), len(table)), samples=samples)

    def _from_kept(self, source: KeptRows) -> Gathered:
        table, numbers, rows = self._number(source)
        chosen = self._choose(numbers)
        rounds = self._live.algorithm.visit
        if rounds is None:
            return Gathered(batch=_batch(rows, table.labels, chosen, len(chosen)), samples=numbers[chosen])
        order = np.concatenate([chosen[self._shuffled(len(chosen))] for _ in range(rounds.epochs)])
        width = -(-len(order) // rounds.multiple) * rounds.multiple
        return Gathered(batch=_batch(rows, table.labels, order, width), samples=numbers[chosen])

    def _number(self, source: KeptRows) -> tuple[Table, Ints, Any]:
        """Return the table, the numbers of its samples, and its rows as the model sees them."""
        table = source.table()
        if self._numbered is None or not source.fixed:
            numbers = self._memory.numbers(digests(table, self._memory.salt), self._free())
            self._numbered = table, numbers, self._live.transform(table.rows)
        return self._numbered

    def _choose(self, numbers: Ints) -> Ints:
        """Choose rows by how often they were used, and otherwise by chance."""
        rounds = self._live.algorithm.visit
        least = 1 if rounds else self._live.algorithm.batch
        most = rounds.max_rows if rounds else least
        if len(numbers) < least:
            raise BadInput(
                f"{len(numbers)} rows, but a batch of this task has {'at least 1' if rounds else least}",
                where="--rows",
                hint="gather more rows first",
            )
        known = self._uses()
        uses = np.zeros(len(numbers), np.int64)
        used = numbers < len(known)
        uses[used] = known[numbers[used]]
        able = np.arange(len(numbers)) if self._most_uses is None else np.flatnonzero(uses < self._most_uses)
        if len(able) < least:
            raise BudgetExhausted(
                f"{len(numbers) - len(able)} of {len(numbers)} rows were used {self._most_uses} times each, which is "
                "all that was promised; a release needs more than are left"
            )
        able = able[self._shuffled(len(able))]
        return able if most is None else able[np.argsort(uses[able], kind="stable")[:most]]

    def _shuffled(self, count: int) -> Ints:
        return np.argsort(self._draw(count), kind="stable")

    def _free(self) -> int:
        """First number that was never used."""
        used = np.flatnonzero(self._uses())
        return int(used[-1]) + 1 if len(used) else 0


def digests(table: Table, salt: bytes) -> list[bytes]:
    """Name every row by its content: equal rows with equal labels have equal names.

    >>> two = Table(rows=np.array([[0.0], [-0.0]], np.float32), labels=np.array([1, 1], np.int32))
    >>> len(set(digests(two, b"salt")))
    1
    """
    rows, labels = (table.rows + np.float32(0)).astype("<f4"), table.labels.astype("<i4")
    return [
        hashlib.blake2b(row.tobytes() + label.tobytes(), key=salt, digest_size=16).digest()
        for row, label in zip(rows, labels, strict=True)
    ]


def _batch(rows: Any, labels: Ints, chosen: Ints, width: int) -> Batch:
    """Take rows out of a table and pad them with rows that do not count."""
    at = np.zeros(width, np.int64)
    at[: len(chosen)] = chosen
    mask = (np.arange(width) < len(chosen)).astype(np.float32)
    return Batch(rows=rows[at], labels=labels[at], mask=mask)
