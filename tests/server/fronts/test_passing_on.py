"""What a follower looks at before it lets the aggregator answer: who asks, how often, and how much is read of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from crowdml.server.fronts.follower import Follower
from crowdml.server.fronts.post import MORE, OPEN
from crowdml.server.fronts.tunnel import Tunnel
from crowdml.server.http.front_door import Access
from crowdml.server.http.requests import LARGEST_BODY, Limiter, Pace
from crowdml.server.tasks.device_tokens import DeviceState, token_hash
from tests.support.own_loop import run_apart

TOKEN = b"a-token"
SEVERAL = 3
FEW = Pace(per_second=0.001, burst=SEVERAL)
VECTOR = 1_000_000
MESSAGES = SimpleNamespace(check_in=SimpleNamespace(size_bytes=VECTOR))
SUM = SimpleNamespace(terms=SimpleNamespace(invited=4, body_bytes=2 * VECTOR))
PLAIN: Any = SimpleNamespace(forms=(), server_messages=MESSAGES)
IN_SUMS: Any = SimpleNamespace(forms=(SUM,), server_messages=MESSAGES)
"""What a follower asks of a task whose devices check in 1 MB, or mask twice that."""


class Course:
    """A follower with one device of one task, and what it has passed on and answered."""

    def __init__(self, live: Any = PLAIN) -> None:
        post: Any = SimpleNamespace(front=1)
        access = Access(device_pace=FEW, reader_pace=FEW)
        self.follower = Follower(post, access, Limiter(access.device_pace), lambda task, slot: None)
        device = DeviceState(id="an-id", task="a-task", slot=0, token_hash=token_hash(TOKEN), revoked=False)
        self.follower.replica.tokens.add(device)
        self.follower.replica.tasks["a-task"] = SimpleNamespace(live=live, id=1)  # type: ignore[assignment]
        self.follower.replica.shown[1] = SimpleNamespace(published=None)  # type: ignore[assignment]
        self.follower.tunnel = SimpleNamespace(request=self._request, socket=self._socket)  # type: ignore[assignment]
        self.passed_on: list[bytes] = []
        self.told: list[dict[str, Any]] = []

    async def ask(self, size: int = 0, token: bytes = TOKEN, kind: str = "http") -> None:
        scope = {
            "type": kind,
            "method": "POST",
            "path": "/v1/tasks/a-task/check-ins",
            "headers": [(b"authorization", b"Bearer " + token), (b"content-length", b"%d" % size)],
            "client": ("192.0.2.1", 1),
        }

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": bytes(size)}

        async def send(event: Any) -> None:
            self.told.append(event)

        await self.follower(scope, receive, send)

    @property
    def refused(self) -> int:
        return [event.get("status") for event in self.told].count(429)

    async def _request(self, scope: Any, body: bytes, receive: Any, send: Any) -> None:
        self.passed_on.append(body)

    async def _socket(self, scope: Any, receive: Any, send: Any) -> None:
        self.passed_on.append(b"")


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_apart(work, uvloop.new_event_loop)


@pytest.mark.parametrize(("live", "largest"), [(PLAIN, VECTOR), (IN_SUMS, 2 * VECTOR)], ids=["check-ins", "sums"])
def test_of_a_device_is_read_what_its_task_can_need_and_no_more(live: Any, largest: int) -> None:
    async def work() -> None:
        course = Course(live)
        await course.ask(largest)
        await course.ask(largest + (1 << 16))
        assert [len(body) for body in course.passed_on] == [largest, 0]

    run(work)


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize("token", [TOKEN, b"another"], ids=["a device", "a stranger"])
def test_nobody_has_more_passed_on_than_its_pace_allows(token: bytes, kind: str) -> None:
    async def work() -> None:
        course = Course()
        for _ in range(SEVERAL + 2):
            await course.ask(LARGEST_BODY, token, kind)
        assert (len(course.passed_on), course.refused) == (SEVERAL, 2)

    run(work)


def test_nothing_of_a_body_is_passed_on_that_is_too_long() -> None:
    """It lay in the database until somebody had refused it, which takes a while where nobody aggregates."""
    sent: list[tuple[int, bytes]] = []

    async def work() -> None:
        read, gone = iter(range(1000)), asyncio.Event()

        async def send_letter(kind: int, number: int, content: bytes) -> None:
            sent.append((kind, content))

        async def receive() -> dict[str, Any]:
            if next(read) < 100:
                return {"type": "http.request", "body": bytes(1 << 16), "more_body": True}
            gone.set()
            return {"type": "http.disconnect"}

        post: Any = SimpleNamespace(send=send_letter)
        scope = {"type": "http", "method": "POST", "path": "/v1/tasks", "headers": []}
        await Tunnel(post).request(scope, b"", receive, lambda event: pytest.fail("nobody answers"))
        assert gone.is_set()

    run(work)
    assert [kind for kind, _ in sent] == [OPEN, MORE] and sum(len(content) for _, content in sent) < 1000
