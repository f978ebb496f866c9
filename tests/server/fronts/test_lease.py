"""The aggregator's lease: how long it may answer from memory, and when it may no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from crowdml.server.fronts import other_fronts
from crowdml.server.fronts.other_fronts import LEASE_S, SILENT_TICKS, TICK_S, Heart


class Database:
    """A connection that says whether the lock is held, as often as a test wants."""

    def __init__(self, *held: bool) -> None:
        self._held = list(held)
        self.then: Callable[[], None] = lambda: None

    def execute(self, text: str, given: Any = None) -> Any:
        return self

    def fetchone(self) -> Any:
        self.then()
        return (1,) if self._held.pop(0) else None

    def close(self) -> None:
        pass


def beaten(monkeypatch: pytest.MonkeyPatch, *held: bool, then: Callable[[Heart], None] = Heart.end) -> Heart:
    """Let a heart beat in this thread, by a clock that goes on by itself; it ends when the lock is lost."""
    clock = iter(range(1000))
    database = Database(*held)
    monkeypatch.setattr(other_fronts, "connect", lambda url: database)
    monkeypatch.setattr(other_fronts, "TICK_S", 0.0)
    heart = Heart("", 1, lambda error: None, lambda: next(clock) * LEASE_S / 100)
    database.then = lambda: then(heart)
    heart.run()
    return heart


def test_a_lease_ends_before_anybody_takes_an_aggregator_for_silent() -> None:
    assert LEASE_S < SILENT_TICKS * TICK_S


def test_a_lease_lasts_while_the_lock_is_held_and_is_over_as_soon_as_it_is_known_to_be_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert beaten(monkeypatch, True).lasts
    assert not beaten(monkeypatch, True, False, then=lambda heart: None).lasts


def test_a_lease_that_is_doubted_lasts_again_after_a_sign_of_life_that_was_begun_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def doubt(heart: Heart) -> None:
        heart.doubt()
        heart.end()

    assert not beaten(monkeypatch, True, then=doubt).lasts, "it had asked before"
    count = iter(range(2))

    def doubt_first(heart: Heart) -> None:
        heart.end() if next(count) else heart.doubt()

    assert beaten(monkeypatch, True, True, then=doubt_first).lasts
