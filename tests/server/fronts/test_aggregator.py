"""The aggregator's end: who may link with it, and what it leaves to others once its time may be over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from crowdml.server.fronts import aggregator as aggregator_module
from crowdml.server.fronts import links as links_module
from crowdml.server.fronts.aggregator import Aggregator
from crowdml.server.fronts.letters import read_answers, write_batch
from crowdml.server.fronts.link import Link
from crowdml.server.fronts.links import Links
from crowdml.server.fronts.post import CHECK_INS
from crowdml.server.fronts.to_aggregator import BATCH, HEAD
from tests.support.own_loop import run_apart


class Office:
    """A post office without a database."""

    host = "127.0.0.1"
    port = 0
    secret = b""

    def __init__(self) -> None:
        self.inbox: list[tuple[int, int, int, int, bytes]] = []
        self.told: list[str] = []

    async def put_aggregator(self, port: int, secret: bytes) -> None:
        self.port, self.secret = port, secret

    async def claim(self) -> list[tuple[int, int, int, int, bytes]]:
        found, self.inbox = self.inbox, []
        return found

    def tell(self, name: str, payload: str) -> None:
        self.told.append(payload)


class Lease:
    """Whether somebody else may aggregate by now."""

    over = False

    def __call__(self) -> bool:
        return self.over


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(60):
            await work()

    # The loop that servers run on: it calls things in another order than asyncio's own.
    run_apart(within, uvloop.new_event_loop)


def test_one_connection_too_many_is_cut_off_before_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "MOST_LINKS", 1)

    async def work() -> None:
        office: Any = Office()
        links = Links(office, Any, lambda *_: None, Lease(), pytest.fail)  # type: ignore[arg-type]
        await links.begin()
        first, one = await asyncio.open_connection(office.host, office.port)
        await first.readexactly(16)
        second, two = await asyncio.open_connection(office.host, office.port)
        said = b""
        with contextlib.suppress(ConnectionResetError):
            said = await second.read()
        await links.close()
        for writer in (one, two):
            writer.close()
        await first.read()
        assert said == b""

    run(work)


def test_whoever_sends_a_batch_to_an_aggregator_whose_time_is_over_learns_at_once_that_it_must_be_sent_again() -> None:
    async def work() -> None:
        office: Any = Office()
        lease, taken = Lease(), list[object]()
        links = Links(office, Any, lambda *each: taken.append(each), lease, pytest.fail)  # type: ignore[arg-type]
        await links.begin()
        loop, lost = asyncio.get_running_loop(), asyncio.Event()
        _, link = await loop.create_connection(
            lambda: Link(office.secret, True, lambda *_: None, lambda _: lost.set()), office.host, office.port
        )
        await link.proved
        lease.over = True
        link.send(HEAD.pack(BATCH, 1, 1))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(lost.wait(), 20)
        await links.close()
        assert lost.is_set() and not taken

    run(work)


def test_letters_are_left_to_whoever_aggregates_next() -> None:
    async def work() -> None:
        office: Any = Office()
        office.inbox.append((7, CHECK_INS, 1, 1, b""))
        lease = Lease()
        coordinator: Any = type("Coordinator", (), {"tasks": {}, "writers": {}})
        aggregator = Aggregator(office, coordinator, Any, lease, pytest.fail)  # type: ignore[arg-type]
        lease.over = True
        aggregator.wake()
        assert aggregator._working is not None
        await aggregator._working
        assert len(office.inbox) == 1
        lease.over = False
        aggregator.wake()
        await aggregator._working
        assert not office.inbox

    run(work)


def test_a_check_in_that_cannot_be_looked_at_costs_no_aggregator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sender sends it again to whoever aggregates next, who would end as well."""

    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(aggregator_module, "read_message", fails)
    told: list[str] = []

    async def work() -> None:
        office: Any = Office()
        running = SimpleNamespace(id=1, name="a-task", devices={3: object()})
        writer = SimpleNamespace(came=lambda front: None, expect=lambda front: None)
        counted: list[int] = []
        coordinator: Any = SimpleNamespace(
            tasks={"a-task": running},
            writers={"a-task": writer},
            count_check_in=lambda answer, running: counted.append(answer.status),
        )
        aggregator = Aggregator(office, coordinator, Any, Lease(), pytest.fail)  # type: ignore[arg-type]
        batch = write_batch([(3, "one-key-1", b"x"), (4, "one-key-2", b"x")])
        aggregator._take_linked(7, 1, 1, batch, told.append)
        assert counted == [500, 401]

    run(work)
    (notice,) = told
    assert [answer.status for answer in read_answers(notice)[2]] == [500, 401]
