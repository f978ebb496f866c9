"""Counters are written now and then, and are right whenever the store is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crowdml.server.store import Store, batch_writes, open_store


def written(store: Store) -> list[tuple[int, ...]]:
    """Return slot and number of check-ins as the table has them."""
    found = store._found("SELECT slot, check_ins FROM counters ORDER BY slot")
    return [(row["slot"], row["check_ins"]) for row in found]


def test_they_are_written_rarely(crowd: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_writes, "EVERY", 10)
    crowd.check_in(9)
    crowd.check_in(2)
    assert written(store) == []
    crowd.check_in(1)
    assert written(store) == [(0, 6), (1, 5)]
    assert [device.check_ins for device in store.devices(crowd.task)] == [6, 6]


def test_opening_counts_what_came_after(crowd: Any, store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_writes, "EVERY", 4)
    for size in (5, 1, 1, 2):
        crowd.check_in(size)
    assert written(store) == [(0, 3), (1, 2)]
    before = store.devices(crowd.task)
    assert [device.check_ins for device in before] == [5, 4]
    store.close()
    with open_store(f"sqlite:///{path}") as again:
        assert again.devices(crowd.task) == before
        assert [receipt.number for receipt in again.receipts("digits-device-0")] == [1, 2, 3, 4, 5]


def test_a_withdrawn_device_is_not_written(crowd: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_writes, "EVERY", 4)
    crowd.check_in(3)
    store.withdraw("digits-device-0")
    crowd.check_in(3)  # both check in again, as if the one that withdrew had been in the queue
    crowd.check_in(1)
    assert written(store) == [(1, 3)]
