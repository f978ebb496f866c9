"""What a device remembers: states that count only once used, and numbers of samples that stay."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.device.memory import Memory


def test_a_state_counts_from_its_receipt_on(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "m")
    assert (memory.state(), memory.version, memory.contributed, memory.number) == (None, -1, -1, 0)
    memory.expect("a", 4, b"after a")
    assert memory.state() is None and memory.version == 4
    memory.close()
    memory = Memory(tmp_path / "m")
    memory.used("a", 1, 5)
    memory.used("a", 1, 5)  # a resend gets the same receipt
    assert (memory.state(), memory.version, memory.contributed, memory.number) == (b"after a", 5, 4, 1)
    memory.expect("b", 6, b"after b")
    memory.refused("b")
    memory.used("b", 2, 7)
    assert (memory.state(), memory.contributed) == (b"after a", 4)
    memory.close()


def test_what_was_never_charged_is_forgotten(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "m")
    memory.expect("never charged", 0, b"x")
    memory.expect("b", 0, b"y")
    memory.used("never charged", 1, 1)
    assert memory.state() is None
    memory.begin_again()
    assert (memory.version, memory.number) == (-1, 0)
    memory.close()


def test_numbers_are_by_content_and_occurrence(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "m")
    assert memory.numbers([b"a", b"b", b"a"], 0).tolist() == [0, 1, 2]
    memory.close()
    memory = Memory(tmp_path / "m")
    assert memory.numbers([b"b", b"a"], 0).tolist() == [1, 0]  # edited: one a is gone, the order changed
    assert memory.numbers([b"c", b"a", b"a", b"b"], 0).tolist() == [3, 0, 2, 1]
    assert memory.numbers([b"d"], free=10).tolist() == [10]  # numbers that streamed rows had are not given again
    assert memory.next_number() == 11
    memory.close()


def test_digests_say_nothing_to_others(tmp_path: Path) -> None:
    one, other = Memory(tmp_path / "1"), Memory(tmp_path / "2")
    salt = one.salt
    assert salt != other.salt and len(salt) == 32
    one.close()
    other.close()
    again = Memory(tmp_path / "1")
    assert again.salt == salt
    again.close()


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=6), max_size=5))
def test_the_same_row_always_has_the_same_number(tables: list[list[bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory(Path(folder) / "m")
        known: dict[tuple[bytes, int], int] = {}
        for table in tables:
            numbers = memory.numbers(table, 0)
            assert len(set(numbers.tolist())) == len(table)
            for at, (digest, number) in enumerate(zip(table, numbers.tolist(), strict=True)):
                assert known.setdefault((digest, table[:at].count(digest)), number) == number
        assert sorted(known.values()) == list(range(len(known)))
        memory.close()
