"""How a follower reaches the aggregator: in batches that can be held, and not for long by a link that is dead."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from crowdml.server.fronts import outbox as outbox_module
from crowdml.server.fronts import to_aggregator
from crowdml.server.fronts.letters import read_batch
from crowdml.server.fronts.outbox import Outbox
from crowdml.server.fronts.to_aggregator import ToAggregator
from crowdml.server.refusals import Answer, Refusal
from tests.support.own_loop import run_apart


def test_a_batch_has_no_more_bytes_than_its_taker_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "LARGEST_BATCH_BYTES", 10)
    batches: list[list[int]] = []

    async def work() -> None:
        outbox = Outbox(lambda kind, number, content, task: batches.append([each.slot for each in read_batch(content)]))
        for slot, size in enumerate((5, 5, 1, 20, 1)):
            outbox.enqueue(1, slot, "a-key", bytes(size), lambda answer: None)
        while len(outbox):
            if batches:
                outbox.take(f"{len(batches)} 0\n" + "\n".join("200 - {}" for _ in batches[-1]))
            await asyncio.sleep(0)

    run_apart(work, uvloop.new_event_loop)
    assert batches == [[0, 1], [2], [3], [4]]


@pytest.mark.parametrize(("capacity", "room"), [(2, 1 << 20), (4096, 20)], ids=["by count", "by bytes"])
def test_a_full_outbox_refuses_until_something_is_answered(
    monkeypatch: pytest.MonkeyPatch, capacity: int, room: int
) -> None:
    monkeypatch.setattr(outbox_module, "CAPACITY", capacity)
    told: list[Answer] = []

    async def work() -> None:
        clock = iter(range(0, 10_000, 100))
        outbox = Outbox(lambda *each: None, lambda: float(next(clock)), room)
        for _ in range(3):
            for slot in range(2):
                outbox.enqueue(1, slot, "a-key", bytes(10), told.append)
            with pytest.raises(Refusal) as refused:
                outbox.enqueue(1, 2, "a-key", bytes(10), told.append)
            assert (refused.value.status, refused.value.retry_after_s) == (503, 1)
            await asyncio.sleep(0.02)
            if len(told) < 4:
                outbox.take(f"{len(told) // 2 + 1} 0\n" + "\n".join("200 - {}" for _ in range(2)))
            else:
                outbox.give_up_late()
            assert len(outbox) == 0

    run_apart(work, uvloop.new_event_loop)
    assert [answer.status for answer in told] == [200] * 4 + [503] * 2


def test_a_link_by_which_nothing_comes_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ends may live and reach the database, and a firewall between them forget their connection."""
    monkeypatch.setattr(to_aggregator, "ANSWER_S", 0.0)
    again: list[bool] = []

    async def work() -> None:
        post: Any = SimpleNamespace(front=1)
        line = ToAggregator(post, lambda told: None, lambda task, slot: None, lambda: again.append(True))
        link: Any = SimpleNamespace(send=lambda frame: None, close=lambda: None)
        line._link = link
        for _ in range(to_aggregator.MOST_UNANSWERED):
            assert line.linked
            assert await line.newest(b"") is None
        assert not line.linked

    run_apart(work, uvloop.new_event_loop)
    assert again == [True]
