"""What a device remembers: states that count only once used."""

from __future__ import annotations

from pathlib import Path

import pytest

from crowdml.core import BadInput
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


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"no database at all, but long enough to be looked at" * 40)
    with pytest.raises(BadInput, match="cannot be used: file is not a database\n  put it back from a backup"):
        Memory(tmp_path / "m")
