"""The tunnel to an aggregator that is lost: what is asked again, what is ended, and that no two answers are mixed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from crowdml.server.fronts import tunnel as tunnel_module
from crowdml.server.fronts.letters import read_event, write_event
from crowdml.server.fronts.post import MORE, OPEN
from crowdml.server.fronts.tunnel import Tunnel
from tests.support.own_loop import run_apart

SCOPE: dict[str, Any] = {"method": "GET", "path": "/v1/tasks", "headers": []}
ACCEPTED = {"type": "websocket.accept", "headers": []}


def response(body: bytes, more_body: bool = False) -> dict[str, Any]:
    return {"type": "http.response", "status": 200, "headers": [], "body": body, "more_body": more_body}


class Course:
    """A request that is passed on, by a post office without a database."""

    def __init__(self, kind: str, method: str = "GET") -> None:
        self.letters: list[tuple[int, int, str]] = []
        self.answers: list[tuple[int, bytes]] = []
        self.told: list[dict[str, Any]] = []
        self._sent = asyncio.Event()
        self.tunnel = Tunnel(self)  # type: ignore[arg-type]
        scope = SCOPE | {"type": kind, "method": method}
        if kind == "websocket":
            self._comes = iter([{"type": "websocket.connect"}])
            asking = self.tunnel.socket(scope, self._receive, self._send)
        else:
            self._comes = iter([])
            asking = self.tunnel.request(scope, b"", self._receive, self._send)
        self.done = asyncio.get_running_loop().create_task(asking)

    def send(self, kind: int, number: int, content: bytes) -> asyncio.Future[None]:
        self.letters.append((kind, number, read_event(content)["type"]))
        self._sent.set()
        sent = asyncio.get_running_loop().create_future()
        sent.set_result(None)
        return sent

    async def collect(self) -> list[tuple[int, bytes]]:
        found, self.answers = self.answers, []
        return found

    async def opened(self) -> int:
        """Wait until it is asked for, once more; return its number there."""
        await self._sent.wait()
        self._sent.clear()
        kind, number, _ = self.letters[-1]
        assert kind == OPEN
        return number

    async def answer(self, number: int, *events: dict[str, Any]) -> None:
        self.answers += [(number, write_event(event)) for event in events]
        await self.tunnel.collect()

    async def _receive(self) -> dict[str, Any]:
        for event in self._comes:
            return event
        await asyncio.Event().wait()
        raise AssertionError

    async def _send(self, event: Any) -> None:
        self.told.append(event)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(60):
            await work()

    run_apart(within, uvloop.new_event_loop)


def test_half_an_answer_of_an_aggregator_that_was_stopped_is_not_mixed_with_a_whole_one() -> None:
    async def work() -> None:
        course = Course("http")
        first = await course.opened()
        course.tunnel.lose()
        second = await course.opened()
        await course.answer(first, response(b"half an o", more_body=True))
        await course.answer(second, response(b"whole"))
        await course.done
        assert [event["body"] for event in course.told[1:]] == [b"whole"]

    run(work)


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_whoever_aggregates_next_is_told_that_nobody_waits_for_what_is_asked_again(kind: str) -> None:
    """It may find both letters, and would go on with a stream that nobody reads for as long as it lives."""

    async def work() -> None:
        course = Course(kind)
        first = await course.opened()
        course.tunnel.lose()
        second = await course.opened()
        assert course.letters == [(OPEN, first, kind), (MORE, first, f"{kind}.disconnect"), (OPEN, second, kind)]
        course.done.cancel()

    run(work)


def test_a_handshake_that_was_not_answered_yet_is_asked_for_again() -> None:
    """A member of a sliced group that is told 403 ends for good; it may come at any moment, as when it lost another."""

    async def work() -> None:
        course = Course("websocket")
        await course.opened()
        course.tunnel.lose()
        await course.answer(await course.opened(), ACCEPTED)
        while not course.told:
            await asyncio.sleep(0)
        course.tunnel.lose()
        await course.done
        assert [(event["type"], event.get("code")) for event in course.told] == [
            ("websocket.accept", None),
            ("websocket.close", 1012),
        ]

    run(work)


def test_a_handshake_that_nobody_answers_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel_module, "ANSWER_S", 0.01)

    async def work() -> None:
        course = Course("websocket")
        number = await course.opened()
        await course.done
        assert course.told[0]["status"] == 503 and dict(course.told[0]["headers"])[b"retry-after"] == b"1"
        assert course.letters[1:] == [(MORE, number, "websocket.disconnect")]

    run(work)


def test_what_may_have_been_done_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel_module, "GRACE_S", 0.01)

    async def work() -> None:
        course = Course("http", "POST")
        number = await course.opened()
        course.tunnel.lose()
        await course.done
        assert course.told[0]["status"] == 503
        assert course.letters == [(OPEN, number, "http"), (MORE, number, "http.disconnect")]

    run(work)


def test_of_what_was_answered_nothing_more_is_said() -> None:
    async def work() -> None:
        course = Course("http")
        await course.answer(await course.opened(), response(b"a stream", more_body=True), response(b""))
        await course.done
        assert [kind for kind, *_ in course.letters] == [OPEN]

    run(work)
