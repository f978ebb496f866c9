"""Gathering a batch: which rows enter the next release, chosen without looking at what is in them.

Kept rows take turns: those that were used least go first, in an order drawn from the operating system's entropy. That
is a pass over all rows after the other, also when the device was switched off in between. No sample is twice in a
batch, and one that has been used as often as the terms allow stays out. In rounds a device works on all its rows, or
on as many as the task takes from one device.

Passing rows are taken as they come. Where samples are promised something, a row that stands in the batch already, or
was used up, is left out and the next one takes its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput, Batch, record
from crowdml.core.errors import BudgetExhausted
from crowdml.data.rows.row_contract import Warn
from crowdml.data.rows.row_tables import Table
from crowdml.device.rows.row_sources import KeptRows, PassingRows
from crowdml.device.rows.sample_numbers import RowsChanged, SampleNumbers
from crowdml.privacy import require_delta
from crowdml.privacy.ledger.spending import Numbering, UsesState
from crowdml.privacy.noise.samplers import OsWords
from crowdml.task.live_task import LiveTask

Ints = npt.NDArray[Any]
Draw = Callable[[int], Ints]
"""`draw(count)`: so many random 64-bit words."""
os_words: Draw = OsWords().take
AskChanged = Callable[[RowsChanged], bool]
"""Asks the owner whether rows that changed so much are other samples indeed."""


@record
class Gathered:
    """A batch and the numbers of its samples, each once.

    Attributes:
        batch: The rows.
        samples: Their numbers.
        numbering: Which sample has which number; None where nothing is promised to samples.
    """

    batch: Batch
    samples: Ints
    numbering: Numbering | None = None


class Gatherer:
    """Gathers batches for one task.

    Args:
        source: Where rows come from.
        live: The task.
        samples: Which sample has which number.
        uses: How often each sample was used, by its number.
        most_uses: How often a sample may be used; None: as often as you like.
        draw: Random words; from the operating system unless a test gives them.
        rows_changed: Asked before anything is sent, where rows may be those of last time, written differently.
        warn: Told when a row of a stream is left out for the first time.

    Attributes:
        left_out: Rows of a stream that were left out so far.
    """

    def __init__(
        self,
        source: KeptRows | PassingRows,
        live: LiveTask,
        samples: SampleNumbers,
        uses: UsesState,
        most_uses: int | None,
        draw: Draw = os_words,
        rows_changed: AskChanged = lambda change: False,
        warn: Warn = lambda line: None,
    ) -> None:
        if live.algorithm.schedule.whole and not isinstance(source, KeptRows):
            raise BadInput(
                f"{live.task.algorithm.kind} goes through all rows of a device in every round; a stream has no end",
                where="--rows",
                hint="give a file",
            )
        self._source, self._live, self._samples = source, live, samples
        self._uses, self._most_uses, self._draw = uses, most_uses, draw
        self._rows_changed, self._warn = rows_changed, warn
        self._numbered: tuple[Table, Ints, Any] | None = None
        self._next, self._is_compared = 0, False
        self.left_out = 0

    def prepare(self) -> None:
        """Read and number rows that stay the same, so that whatever is wrong with them comes first."""
        if isinstance(self._source, KeptRows) and self._source.fixed:
            self._number(self._source)

    def all_rows(self) -> tuple[Table, Ints, Any]:
        """Return all kept rows, the numbers of their samples, and the rows as the model sees them."""
        if not isinstance(self._source, KeptRows):
            raise BadInput("a member of a group needs rows that are all there", where="--rows", hint="give a file")
        table, numbers, rows = self._number(self._source)
        if self._most_uses is not None and self._source.fixed:
            self._samples.compare_next_with(numbers)
        return table, numbers, rows

    def gather(self) -> Gathered | None:
        """Return the next batch; None when a stream has ended.

        Raises:
            BudgetExhausted: Too few rows may still be used.
        """
        if isinstance(self._source, KeptRows):
            return self._from_kept(self._source)
        table, samples = self._from_stream(self._source)
        if table is None:
            return None
        rows, chosen = self._live.transform(table.rows), np.arange(len(table))
        return self._gathered(_batch(rows, table.targets, chosen, len(table)), samples)

    def _from_stream(self, source: PassingRows) -> tuple[Table | None, Ints]:
        """Take rows until a batch is full; return them with their numbers, or None at the end of the stream."""
        schedule = self._live.algorithm.schedule
        least, most = schedule.batch, schedule.buffer
        taken, samples = list[Table](), np.zeros(0, np.int64)
        while len(samples) < least:
            table = source.take(least - len(samples), most - len(samples))
            if table is None:
                return None, samples
            numbers = self._stream_numbers(table)
            able = np.flatnonzero(self._is_able(numbers, samples))
            self._leave_out(len(table) - len(able))
            taken.append(table.take(able))
            samples = np.concatenate([samples, numbers[able]])
        return joined(taken), samples

    def _stream_numbers(self, table: Table) -> Ints:
        if self._most_uses is not None:
            return self._samples.of_stream(self._samples.digests(table), self._free())
        # The promise, if there is one, does not depend on which row is which.
        self._next = max(self._next, self._free(), self._samples.following)
        self._next += len(table)
        return np.arange(self._next - len(table), self._next)

    def _is_able(self, numbers: Ints, taken: Ints) -> Ints:
        """Tell which rows of a stream may enter the batch: each sample once, and only if it has a use left."""
        first = np.zeros(len(numbers), bool)
        first[np.unique(numbers, return_index=True)[1]] = True
        able: Ints = first & ~np.isin(numbers, taken)
        return able if self._most_uses is None else able & (self._uses.each(numbers) < self._most_uses)

    def _leave_out(self, count: int) -> None:
        if count and not self.left_out:
            self._warn(
                "a row of the stream is left out: it is in this batch already, or has entered as many releases as were "
                "promised; equal rows are one sample"
            )
        self.left_out += count

    def _gathered(self, batch: Batch, samples: Ints) -> Gathered:
        numbering = None if self._most_uses is None else self._samples.numbering
        return Gathered(batch=batch, samples=samples, numbering=numbering)

    def _from_kept(self, source: KeptRows) -> Gathered:
        table, numbers, rows = self._number(source)
        chosen = self._choose(numbers)
        if self._most_uses is not None and source.fixed and not self._is_compared:
            self._samples.compare_next_with(numbers)
            self._is_compared = True
        schedule = self._live.algorithm.schedule
        if not schedule.whole:
            return self._gathered(_batch(rows, table.targets, chosen, len(chosen)), numbers[chosen])
        order = np.concatenate([chosen[self._shuffled(len(chosen))] for _ in range(schedule.epochs)])
        width = -(-len(order) // schedule.multiple) * schedule.multiple
        return self._gathered(_batch(rows, table.targets, order, width), numbers[chosen])

    def _number(self, source: KeptRows) -> tuple[Table, Ints, Any]:
        """Return the table, the numbers of its samples, and its rows as the model sees them."""
        if self._numbered is None or not source.fixed:
            table = source.table()
            digests = self._samples.digests(table)
            if self._most_uses is not None:
                _require_one_row_each(table)
                if source.fixed:
                    self._require_same(digests)
            numbers = self._samples.of_table(digests, self._free())
            self._numbered = table, numbers, self._live.transform(table.rows)
        return self._numbered

    def _require_same(self, digests: list[bytes]) -> None:
        """Ask the owner, or stop, where rows may be those of last time in another form."""
        change = self._samples.change(digests, self._uses)
        if change.is_doubtful and not self._rows_changed(change):
            raise BadInput(
                f"{change.new} of {change.rows} rows were never seen before, and {change.gone} of the {change.used} "
                "that were used in releases are gone; nothing is sent",
                where="--rows",
                hint="if they are the same samples written differently (one more digit, another unit), their uses "
                "would be counted from 0 again and the promise broken: put the file back as it was\n  if they are "
                "other samples indeed: --rows-changed accept (in Python: Device(rows_changed=…))",
            )

    def _choose(self, numbers: Ints) -> Ints:
        """Choose rows by how often they were used, and otherwise by chance."""
        schedule = self._live.algorithm.schedule
        least = 1 if schedule.whole else schedule.batch
        most = schedule.most_rows if schedule.whole else least
        if len(numbers) < least:
            raise BadInput(
                f"{len(numbers)} rows, but a batch of this task has {'at least 1' if schedule.whole else least}",
                where="--rows",
                hint="gather more rows first",
            )
        uses = self._uses.each(numbers)
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
        used = np.flatnonzero(self._uses.counts())
        return int(used[-1]) + 1 if len(used) else 0


def _require_one_row_each(table: Table) -> None:
    """Refuse two rows of one sample: in one release together they would say twice as much about it."""
    first: dict[str, int] = {}
    for at, name in enumerate(table.ids or (), start=1):
        if first.setdefault(name, at) != at:
            raise BadInput(
                f"rows {first[name]} and {at} have the same id, {name!r}",
                where="--rows",
                hint="an id is one sample, and a sample is one row: keep one of them, or give each row an id",
            )


def joined(tables: list[Table]) -> Table:
    """Put tables below each other."""
    if len(tables) == 1:
        return tables[0]
    ids = [table.ids for table in tables if table.ids is not None]
    return Table(
        rows=np.concatenate([table.rows for table in tables]),
        targets=np.concatenate([table.targets for table in tables]),
        ids=sum(ids, ()) if len(ids) == len(tables) else None,
    )


def _batch(rows: Any, labels: Ints, chosen: Ints, width: int) -> Batch:
    """Take rows out of a table and pad them with rows that do not count."""
    at = np.zeros(width, np.int64)
    at[: len(chosen)] = chosen
    mask = (np.arange(width) < len(chosen)).astype(np.float32)
    return Batch(rows=rows[at], targets=labels[at], mask=mask)


def require_meaning_to(live: LiveTask, rows: int) -> None:
    """Refuse a δ under which one of this device's rows might be published outright, whatever number was declared.

    The rows of other devices are not known here; those of this one are samples that are promised something.
    """
    terms = live.task.privacy
    if not live.plan.terms.promised or terms.unit != "sample":
        return
    try:
        require_delta(terms.delta, rows, terms.unit)
    except BadInput as error:
        raise BadInput(
            f"{error.what} ({rows} is what this device alone has)",
            where=error.where,
            hint=f"{error.hint}; ask the operator",
        ) from None
