"""What is a sample: numbers that stay, a hash over all of them, and rows that changed too much."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.data.rows.row_tables import Table
from crowdml.device.rows.sample_numbers import RowsChanged, SampleNumbers
from crowdml.device.task_memory import Memory
from crowdml.privacy.ledger.spending import Numbering, UsesState, packed


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    made = Memory(tmp_path / "m")
    yield made
    made.close()


def used(*numbers: int) -> UsesState:
    uses = UsesState()
    uses.add(packed(np.array(numbers, np.int64)))
    return uses


def table(rows: list[list[float]], labels: list[int], ids: tuple[str, ...] | None = None) -> Table:
    return Table(rows=np.array(rows, np.float32), targets=np.array(labels, np.int32), ids=ids)


def test_rows_of_a_table_are_known_by_content_and_occurrence(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "m")
    assert memory.samples.of_table([b"a", b"b", b"a"]).tolist() == [0, 1, 2]
    memory.close()
    memory = Memory(tmp_path / "m")
    samples = memory.samples
    assert samples.of_table([b"b", b"a"]).tolist() == [1, 0]  # edited: one a is gone, the order changed
    assert samples.of_table([b"c", b"a", b"a", b"b"]).tolist() == [3, 0, 2, 1]
    assert samples.of_table([b"d"], free=10).tolist() == [10]  # numbers that rows without a digest had are not given
    assert samples.following == 11
    memory.close()


def test_equal_rows_of_a_stream_are_one_sample(memory: Memory) -> None:
    samples = memory.samples
    assert samples.of_stream([b"a", b"b", b"a"]).tolist() == [0, 1, 0]
    assert samples.of_stream([b"b", b"c"]).tolist() == [1, 2]
    assert samples.of_table([b"c", b"c", b"a"]).tolist() == [2, 3, 0], "a table knows the rows that came by a stream"


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=6), max_size=5))
def test_the_same_row_always_has_the_same_number(tables: list[list[bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory(Path(folder) / "m")
        known: dict[tuple[bytes, int], int] = {}
        for rows in tables:
            before = memory.samples.numbering
            numbers = memory.samples.of_table(rows)
            assert len(set(numbers.tolist())) == len(rows)
            for at, (digest, number) in enumerate(zip(rows, numbers.tolist(), strict=True)):
                assert known.setdefault((digest, rows[:at].count(digest)), number) == number
            assert memory.samples.holds(before, UsesState()), "what was known stays the beginning of what is known"
        assert sorted(known.values()) == list(range(len(known)))
        numbering = memory.samples.numbering
        memory.close()
        again = Memory(Path(folder) / "m")
        assert again.samples.numbering == numbering and numbering.count == len(known)
        again.close()


def test_a_digest_says_nothing_without_the_secret_of_the_device(tmp_path: Path) -> None:
    one, other = Memory(tmp_path / "1"), Memory(tmp_path / "2")
    rows = table([[1.0, 2.0]], [0])
    assert one.samples.digests(rows) != other.samples.digests(rows)
    assert one.samples.numbering.hash != other.samples.numbering.hash
    before = one.samples.digests(rows)
    one.close()
    other.close()
    again = Memory(tmp_path / "1")
    assert again.samples.digests(rows) == before
    again.close()


def test_content_is_numbers_and_label_and_an_id_stands_for_both(memory: Memory) -> None:
    digests = memory.samples.digests
    one, minus, label, digit = digests(table([[0.0], [-0.0], [0.0], [1e-6]], [1, 1, 0, 1]))
    assert one == minus and len({one, label, digit}) == 3
    assert digests(table([[0.5]], [1], ids=("p7",))) == digests(table([[0.51]], [0], ids=("p7",)))
    assert digests(table([[0.5]], [1], ids=("p7",))) != digests(table([[0.5]], [1], ids=("p8",)))


def test_a_numbering_that_was_cut_changed_or_salted_anew_is_not_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "m"
    memory = Memory(path)
    memory.samples.of_table([b"a", b"b", b"c"])
    numbering = memory.samples.numbering
    memory.close()
    for statement in (
        "DELETE FROM samples WHERE number = 2",
        "DELETE FROM samples",
        "UPDATE samples SET digest = x'ff' WHERE number = 0",
        "UPDATE samples SET number = 7 WHERE number = 1",
        "UPDATE salt SET value = x'00'",
    ):
        copy = tmp_path / "copy"
        copy.write_bytes(path.read_bytes())
        with sqlite3.connect(copy) as db:
            db.execute(statement)
        db.close()
        memory = Memory(copy)
        assert not memory.samples.holds(numbering, UsesState()), statement
        memory.close()
        for file in tmp_path.glob("copy*"):
            file.unlink()
    memory = Memory(path)
    assert memory.samples.holds(numbering, UsesState())
    memory.samples.of_stream([b"d"])
    assert memory.samples.holds(numbering, UsesState()), "more than the ledger knows of is no loss"
    memory.close()


def test_numbers_of_an_old_ledger_must_all_be_known(memory: Memory) -> None:
    memory.samples.of_table([b"a", b"b"])
    assert memory.samples.holds(None, used(0, 1)) and memory.samples.holds(None, UsesState())
    assert not memory.samples.holds(None, used(0, 2)), "a number without a digest: of a stream, or lost"


@pytest.mark.parametrize(
    "rows, new, before, gone, doubtful",
    [
        (100, 100, 80, 80, True),  # another digit everywhere
        (100, 51, 80, 8, True),
        (100, 50, 80, 80, False),  # half of the rows are known
        (100, 51, 80, 7, False),  # fewer than a tenth are gone
        (500, 400, 100, 0, False),  # a file that grows
        (100, 100, 0, 0, False),  # nothing was used yet
        (1, 1, 1, 1, True),
    ],
)
def test_rows_are_doubtful_when_most_are_new_and_many_gone(
    rows: int, new: int, before: int, gone: int, doubtful: bool
) -> None:
    assert RowsChanged(rows=rows, new=new, used=before, gone=gone).is_doubtful is doubtful


def test_a_table_is_compared_with_the_used_rows_of_last_time(memory: Memory) -> None:
    samples: SampleNumbers = memory.samples
    first = [b"a", b"b", b"c", b"d"]
    assert samples.change(first, UsesState()) == RowsChanged(rows=4, new=4, used=0, gone=0)
    samples.compare_next_with(samples.of_table(first))
    digit = [b"A", b"B", b"C", b"d"]
    assert samples.change(digit, UsesState()) == RowsChanged(rows=4, new=3, used=0, gone=0), "nothing was used"
    assert samples.change(digit, used(0, 1, 3)) == RowsChanged(rows=4, new=3, used=3, gone=2)
    assert samples.numbering.count == 4, "comparing stores nothing"
    samples.of_stream([b"x"])
    samples.compare_next_with(samples.of_table(digit))
    assert samples.change(digit, used(0, 1, 3)) == RowsChanged(rows=4, new=0, used=1, gone=0), "accepted once"
    assert samples.change(first, used(0, 1, 3)).new == 0, "and the old ones are still known"


def test_a_file_from_before_compares_with_all_it_knows(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "m")
    memory.samples.of_table([b"a", b"b"])
    memory.close()
    with sqlite3.connect(tmp_path / "m") as db:
        db.execute("DROP TABLE latest")
    db.close()
    memory = Memory(tmp_path / "m")
    assert memory.samples.change([b"A", b"B"], used(0, 1)) == RowsChanged(rows=2, new=2, used=2, gone=2)
    assert memory.samples.numbering == Numbering(count=2, hash=memory.samples.numbering.hash)
    memory.close()
