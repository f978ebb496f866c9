"""Gathering: turns, uses, numbers; and nothing of it depends on what is in a row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdml.core import BadInput, Labels
from crowdml.core.errors import BudgetExhausted
from crowdml.data.rows.row_contract import Contract
from crowdml.device.rows.batches import Gatherer
from crowdml.device.rows.row_sources import RowBuffer, source_of
from crowdml.device.task_memory import Memory
from crowdml.privacy.ledger.spending import UsesState, packed

CONTRACT = Contract(features=3, target=Labels(names=("standing", "walking")))


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    made = Memory(tmp_path / "memory.sqlite")
    yield made
    made.close()


def pairs(count: int, times: float = 1.0) -> list[tuple[list[float], int]]:
    return [([times * n, 1.0, 2.0], n % 2) for n in range(count)]


class Uses(UsesState):
    """Counts as the ledger does."""

    def charge(self, samples: Any) -> None:
        self.add(packed(samples))


def gatherer(rows: Any, live: Any, memory: Memory, uses: Uses, most: int | None = 3, draw: Any = None) -> Gatherer:
    options = {"draw": draw} if draw else {}
    return Gatherer(source_of(rows, CONTRACT), live, memory.samples, uses, most, **options)


def test_rows_take_turns_until_they_are_used_up(make_server: Any, memory: Memory) -> None:
    uses, live = Uses(), make_server().live
    gathering = gatherer(pairs(8), live, memory, uses)
    passes = []
    for _ in range(3):
        batches = []
        for _ in range(2):
            found = gathering.gather()
            assert found is not None and len(np.unique(found.samples)) == 4 and found.batch.mask.all()
            uses.charge(found.samples)
            batches.append(found.samples)
        passes.append(np.concatenate(batches))
        assert sorted(passes[-1]) == list(range(8)), "a pass goes through all rows"
    with pytest.raises(BudgetExhausted, match="8 of 8 rows were used 3 times"):
        gathering.gather()


def test_a_restart_in_the_middle_of_a_pass_goes_on_with_it(make_server: Any, memory: Memory) -> None:
    uses, live = Uses(), make_server().live
    first = gatherer(pairs(8), live, memory, uses).gather()
    assert first is not None
    uses.charge(first.samples)
    second = gatherer(pairs(8), live, memory, uses).gather()
    assert second is not None and sorted([*first.samples, *second.samples]) == list(range(8))


def test_the_order_is_drawn_anew(make_server: Any, memory: Memory) -> None:
    """False alarm: ten equal choices of 4 among 40 rows, 91390⁻⁹."""
    live = make_server().live
    found = [gatherer(pairs(40), live, memory, Uses()).gather() for _ in range(10)]
    assert len({tuple(sorted(gathered.samples)) for gathered in found if gathered}) > 1


def test_the_choice_does_not_depend_on_what_is_in_the_rows(make_server: Any, tmp_path: Path) -> None:
    def draw(count: int) -> Any:
        return np.random.default_rng(3).integers(0, 1 << 60, count)

    live, chosen = make_server().live, []
    for number, times in enumerate((1.0, -70.0)):
        memory = Memory(tmp_path / f"{number}.sqlite")
        found = gatherer(pairs(20, times), live, memory, Uses(), draw=draw).gather()
        assert found is not None
        chosen.append(found.samples.tolist())
        memory.close()
    assert chosen[0] == chosen[1]


def test_a_row_that_was_edited_is_a_new_one(make_server: Any, memory: Memory) -> None:
    uses, live = Uses(), make_server().live
    rows = pairs(4)
    for _ in range(3):
        found = gatherer(rows, live, memory, uses).gather()
        assert found is not None
        uses.charge(found.samples)
    with pytest.raises(BudgetExhausted):
        gatherer(list(reversed(rows)), live, memory, uses).gather()
    more = gatherer(rows + pairs(5, 0.5)[1:], live, memory, uses).gather()
    assert more is not None and sorted(more.samples) == [4, 5, 6, 7]


def test_rows_are_transformed(make_server: Any, memory: Memory) -> None:
    found = gatherer(pairs(4), make_server().live, memory, Uses()).gather()
    assert found is not None
    np.testing.assert_allclose(np.abs(found.batch.rows).sum(axis=1), 1.0, rtol=1e-6)
    assert found.batch.rows.dtype == np.float32 and found.batch.targets.dtype == np.int32


def test_too_few_rows(make_server: Any, memory: Memory) -> None:
    with pytest.raises(BadInput, match="3 rows, but a batch of this task has 4"):
        gatherer(pairs(3), make_server().live, memory, Uses()).gather()


def test_a_row_that_is_streamed_again_is_the_same_sample(make_server: Any, memory: Memory) -> None:
    live, uses = make_server().live, Uses()
    kept = gatherer(pairs(4), live, memory, uses).gather()
    assert kept is not None and sorted(kept.samples) == [0, 1, 2, 3]
    uses.charge(kept.samples)
    for _ in range(2):
        found = gatherer(iter(pairs(4)), live, memory, uses).gather()
        assert found is not None and found.samples.tolist() == [0, 1, 2, 3], "as in the file"
        assert found.numbering == memory.samples.numbering and found.numbering.count == 4
        uses.charge(found.samples)
    spent = gatherer(iter(pairs(4)), live, memory, uses)
    assert spent.gather() is None and spent.left_out == 4, "used three times, which is all that was promised"
    with pytest.raises(BudgetExhausted):
        gatherer(pairs(4), live, memory, uses).gather()


def test_a_stream_goes_on_past_rows_that_may_not_be_used(make_server: Any, memory: Memory) -> None:
    """A stream that begins again for ever, as `while True: yield from rows` does, ends with the promise, not beyond."""
    live, uses, told = make_server().live, Uses(), list[str]()
    rows = pairs(6)
    stream = iter([rows[0], rows[0], rows[1], *rows * 4])
    source = source_of(stream, CONTRACT)
    gathering = Gatherer(source, live, memory.samples, uses, 3, warn=told.append)
    batches = []
    while (found := gathering.gather()) is not None:
        assert len(set(found.samples.tolist())) == len(found.samples) == 4
        uses.charge(found.samples)
        batches.append(found.samples.tolist())
    assert batches[0] == [0, 1, 2, 3], "the second of two equal rows, and the two that begin again, are left out"
    assert uses.most() == 3 and len(told) == 1 and "equal rows are one sample" in told[0]


def test_a_buffer_does_not_make_equal_rows_new_samples(make_server: Any, memory: Memory) -> None:
    buffer = RowBuffer(20)
    for row, label in [*pairs(2) * 3, *pairs(8)[4:]]:
        buffer.put(row, label)
    gathering = gatherer(buffer, make_server().live, memory, Uses())
    found = gathering.gather()
    assert found is not None and found.samples.tolist() == [0, 1, 2, 3, 4, 5] and gathering.left_out == 4
    assert found.batch.rows.shape == (6, 3) and found.batch.mask.all()


def test_where_devices_are_promised_equal_rows_of_a_stream_all_count(make_server: Any, memory: Memory) -> None:
    live = make_server().live
    gathering = gatherer(iter([*pairs(1) * 8]), live, memory, Uses(), most=None)
    for expected in ([0, 1, 2, 3], [4, 5, 6, 7]):
        found = gathering.gather()
        assert found is not None and found.samples.tolist() == expected and found.numbering is None
    assert memory.samples.numbering.count == 0, "nothing is kept of them"


IDS = Contract(features=3, target=Labels(names=("standing", "walking")), id="patient")


def test_an_id_is_the_sample_whatever_its_digits(make_server: Any, memory: Memory) -> None:
    live, uses = make_server().live, Uses()

    def gather(rows: Any) -> Any:
        return Gatherer(source_of(rows, IDS), live, memory.samples, uses, 3, rows_changed=lambda change: True).gather()

    rows = [(row, label, f"p{n}") for n, (row, label) in enumerate(pairs(4))]
    digits = [([x + 1e-4 for x in row], label, name) for row, label, name in rows]
    for given in (rows, iter(digits), lambda: list(reversed(digits))):
        found = gather(given)
        assert sorted(found.samples) == [0, 1, 2, 3]
        uses.charge(found.samples)
    with pytest.raises(BudgetExhausted):
        gather(digits)
    arrays = (np.ones((4, 3)), np.zeros(4, int), np.array([10, 11, 12, 13]))
    assert sorted(gather(arrays).samples) == [4, 5, 6, 7]
    assert sorted(gather([(row, label, str(10 + n)) for n, (row, label, _) in enumerate(rows)]).samples) == [4, 5, 6, 7]


def test_two_rows_with_one_id_are_refused_in_a_table_and_one_sample_in_a_stream(
    make_server: Any, memory: Memory
) -> None:
    live, uses = make_server().live, Uses()
    rows = [(row, label, f"p{n % 5}") for n, (row, label) in enumerate(pairs(7))]
    for given in (rows, lambda: rows):
        with pytest.raises(BadInput, match="rows 1 and 6 have the same id, 'p0'"):
            Gatherer(source_of(given, IDS), live, memory.samples, uses, 3).gather()
    assert memory.samples.numbering.count == 0
    gathering = Gatherer(source_of(iter([rows[0], rows[5], *rows[1:]]), IDS), live, memory.samples, uses, 3)
    found = gathering.gather()
    assert found is not None and len(set(found.samples.tolist())) == 4 and gathering.left_out == 1
    assert Gatherer(source_of(rows, IDS), live, memory.samples, uses, None).gather() is not None, "devices: no matter"


def test_rows_written_with_another_digit_stop_the_device_unless_the_owner_says_otherwise(
    make_server: Any, memory: Memory
) -> None:
    live, uses, asked = make_server().live, Uses(), list[Any]()

    def gather(rows: Any, answer: bool) -> Any:
        def ask(change: Any) -> bool:
            asked.append(change)
            return answer

        return Gatherer(source_of(rows, CONTRACT), live, memory.samples, uses, 3, rows_changed=ask).gather()

    uses.charge(gather(pairs(8), False).samples)
    digits = [([x + 1e-4 for x in row], label) for row, label in pairs(8)]
    for _ in range(2):
        with pytest.raises(BadInput, match="8 of 8 rows were never seen before, and 4 of the 4") as refused:
            gather(digits, False)
        assert "--rows-changed accept" in str(refused.value) and memory.samples.numbering.count == 8
    assert sorted(gather(digits, True).samples)[0] >= 8 and len(asked) == 3
    uses.charge(gather(digits, False).samples)
    assert len(asked) == 3, "asked once"
    assert gather([*digits, *pairs(40, 9.0)], False) is not None, "a file that only grows is no question"
    assert gather(lambda: pairs(8, 7.0), False) is not None, "a function gives what the device knows now"
    assert Gatherer(source_of(pairs(8, 5.0), CONTRACT), live, memory.samples, uses, None).gather(), (
        "devices: no question"
    )
    assert len(asked) == 3


@pytest.mark.parametrize("left", [0, 1], ids=["empty", "cut off"])
def test_a_file_of_which_nothing_was_sent_does_not_make_the_next_one_pass(
    left: int, make_server: Any, memory: Memory
) -> None:
    """An export that failed leaves a file without rows, or with one; the one after it is compared all the same."""
    live, uses = make_server().live, Uses()
    first = gatherer(pairs(8), live, memory, uses).gather()
    assert first is not None
    uses.charge(first.samples)
    unused = [pair for number, pair in enumerate(pairs(8)) if number not in first.samples]
    tried = gatherer(unused[:left], live, memory, uses)
    tried.prepare()
    with pytest.raises(BadInput, match="a batch of this task has 4"):
        tried.gather()
    digits = [([x + 1e-4 for x in row], label) for row, label in pairs(8)]
    with pytest.raises(BadInput, match="8 of 8 rows were never seen before, and 4 of the 4"):
        gatherer(digits, live, memory, uses).prepare()


def test_a_buffer_makes_a_batch_grow(make_server: Any, memory: Memory) -> None:
    buffer = RowBuffer(6)
    for row, label in pairs(6):
        buffer.put(row, label)
    found = gatherer(buffer, make_server().live, memory, Uses()).gather()
    assert found is not None and len(found.samples) == 6 and found.batch.rows.shape == (6, 3)


ROUNDS = (
    "algorithm={ kind = 'fedavg', per-round = 1, epochs = 3, local-batch = 4 }",
    "privacy={ mode = 'none' }",
)


def test_in_rounds_a_device_goes_through_all_its_rows(make_server: Any, memory: Memory) -> None:
    live = make_server(*ROUNDS).live
    found = gatherer(pairs(7), live, memory, Uses(), most=None).gather()
    assert found is not None and sorted(found.samples) == list(range(7))
    assert found.batch.rows.shape == (24, 3) and found.batch.mask.sum() == 21 and found.batch.mask[:21].all()
    transformed = live.transform(np.array([row for row, _ in pairs(7)], np.float32))
    for turn in range(3):
        part = found.batch.rows[turn * 7 : turn * 7 + 7]
        assert sorted(map(tuple, part.tolist())) == sorted(map(tuple, transformed.tolist()))
    with pytest.raises(BadInput, match="a stream has no end"):
        gatherer(iter(pairs(7)), live, memory, Uses(), most=None)


def test_a_device_with_more_rows_than_a_round_takes_uses_them_in_turns(make_server: Any, memory: Memory) -> None:
    live = make_server("algorithm={ kind = 'fedsgd', per-round = 1, max-rows = 4 }", "privacy={ mode = 'none' }").live
    uses = Uses()
    gather = gatherer(pairs(8), live, memory, uses, most=None).gather
    first = gather()
    assert first is not None and len(first.samples) == 4 and first.batch.rows.shape == (4, 3)
    uses.charge(first.samples)
    second = gather()
    assert second is not None and sorted([*first.samples, *second.samples]) == list(range(8))
