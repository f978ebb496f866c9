"""Gathering: turns, uses, numbers; and nothing of it depends on what is in a row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.core.errors import BudgetExhausted
from crowdml.device.batches import Gatherer
from crowdml.device.memory import Memory
from crowdml.device.row_contract import Contract
from crowdml.device.rows import RowBuffer, source_of
from crowdml.privacy.uses import UsesState, packed

CONTRACT = Contract(features=3, labels=("standing", "walking"))


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
    return Gatherer(source_of(rows, CONTRACT), live, memory, uses, most, **options)


def test_rows_take_turns_until_they_are_used_up(make_server: Any, memory: Memory) -> None:
    uses, live = Uses(), make_server().live
    own = gatherer(pairs(8), live, memory, uses)
    passes = []
    for _ in range(3):
        batches = []
        for _ in range(2):
            found = own.gather()
            assert found is not None and len(np.unique(found.samples)) == 4 and found.batch.mask.all()
            uses.charge(found.samples)
            batches.append(found.samples)
        passes.append(np.concatenate(batches))
        assert sorted(passes[-1]) == list(range(8)), "a pass goes through all rows"
    with pytest.raises(BudgetExhausted, match="8 of 8 rows were used 3 times"):
        own.gather()


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
    assert len({tuple(sorted(own.samples)) for own in found if own}) > 1


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
    assert found.batch.rows.dtype == np.float32 and found.batch.labels.dtype == np.int32


def test_too_few_rows(make_server: Any, memory: Memory) -> None:
    with pytest.raises(BadInput, match="3 rows, but a batch of this task has 4"):
        gatherer(pairs(3), make_server().live, memory, Uses()).gather()


def test_streamed_rows_are_each_a_new_sample(make_server: Any, memory: Memory) -> None:
    live, uses = make_server().live, Uses()
    kept = gatherer(pairs(4), live, memory, uses).gather()
    assert kept is not None and sorted(kept.samples) == [0, 1, 2, 3]
    stream = gatherer(iter(pairs(4) * 2), live, memory, uses)
    for expected in ([4, 5, 6, 7], [8, 9, 10, 11]):
        found = stream.gather()
        assert found is not None and found.samples.tolist() == expected
        uses.charge(found.samples)
    assert stream.gather() is None
    again = gatherer(iter(pairs(4)), live, memory, uses).gather()
    assert again is not None and again.samples.tolist() == [12, 13, 14, 15], "numbers go on after a restart"
    uses.charge(again.samples)
    new = gatherer(pairs(5, 9.0), live, memory, uses).gather()
    assert new is not None
    assert not set(new.samples) & set(range(4, 16)), "a file's rows do not get numbers of streamed ones"


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
