"""A follower that learns something new of a device while the device waits for its check-out."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from crowdml.server.fronts.follower import Follower
from crowdml.server.fronts.task_replica import Shown
from crowdml.server.http.direct import ExpectedNothing
from crowdml.server.http.front_door import Access
from crowdml.server.http.requests import Limiter
from crowdml.server.refusals import Answer
from crowdml.server.store.channel import Row
from crowdml.server.tasks.device_tokens import token_hash
from crowdml.server.tasks.snapshot import Published
from tests.support.own_loop import run_apart

TOKEN = b"a-token"
ROW: Row = (b"an-id", (0).to_bytes(4), token_hash(TOKEN), b"\0", b"")
"""A device that may speak, as the database has it."""


class Database:
    """Says who the devices are at once, and which versions are newest when it is let."""

    def __init__(self) -> None:
        self.versions: asyncio.Future[list[Row]] = asyncio.get_running_loop().create_future()
        self.devices: list[Row] = [ROW]

    def run(self, text: str, *_: object) -> asyncio.Future[list[Row]]:
        if "FROM devices" not in text:
            return self.versions
        found: asyncio.Future[list[Row]] = asyncio.get_running_loop().create_future()
        found.set_result(self.devices)
        return found


class Course:
    """A follower that knows one task and one device, whose check-out waits for the database."""

    def __init__(self) -> None:
        self.database = Database()
        post: Any = SimpleNamespace(channel=self.database, front=1)
        access = Access()
        self.follower = Follower(post, access, Limiter(access.device_pace), lambda task, slot: None)
        running: Any = SimpleNamespace(id=1, name="a-task", devices={}, task_hash="00", incarnation=1)
        replica = self.follower.replica
        replica.tasks["a-task"] = replica._by_number[1] = running
        published = Published(version=3, etag=b'"1-3"', body=b"model", parameters=())
        replica.shown[1] = Shown(version=3, state="open", reason=None, published=published)
        self.answers: list[Answer] = []

    async def begin(self) -> None:
        """Let the device ask, and the follower begin to ask the database."""
        await self.follower.replica._load_devices(1)
        headers = [(b"host", b"localhost"), (b"authorization", b"Bearer " + TOKEN)]
        expected = self.follower.expect(b"GET", b"/v1/tasks/a-task/check-out", headers, "127.0.0.1", "http")
        assert isinstance(expected, ExpectedNothing)
        expected.take(b"", self.answers.append)
        await asyncio.sleep(0)

    async def end(self) -> Answer:
        """Return the answer."""
        if not self.database.versions.done():
            self.database.versions.set_result([])
        for _ in range(100):
            if self.answers:
                return self.answers[0]
            await asyncio.sleep(0)
        raise AssertionError("nobody answers")


def test_a_device_that_is_read_anew_while_it_waits_gets_its_version() -> None:
    async def work() -> None:
        course = Course()
        await course.begin()
        await course.follower.replica._load_devices(1)  # as whenever another front end aggregates
        assert (await course.end()).status == 200

    run_apart(work, uvloop.new_event_loop)


def test_a_device_that_is_announced_twice_gets_its_version() -> None:
    async def work() -> None:
        course = Course()
        await course.begin()
        course.follower.replica.forget(1, 0)
        await course.follower.replica.look_again(1, 0)
        assert (await course.end()).status == 200

    run_apart(work, uvloop.new_event_loop)


@pytest.mark.parametrize("looked", [False, True], ids=["not looked up yet", "revoked"])
def test_a_device_that_may_be_gone_gets_no_version_and_asks_again(looked: bool) -> None:
    async def work() -> None:
        course = Course()
        await course.begin()
        course.database.devices = []
        course.follower.replica.forget(1, 0)
        if looked:
            await course.follower.replica.look_again(1, 0)
        answer = await course.end()
        assert (answer.status, dict(answer.headers)[b"retry-after"]) == (503, b"1")

    run_apart(work, uvloop.new_event_loop)


def test_a_mistake_while_a_check_out_waits_is_answered() -> None:
    async def work() -> None:
        course = Course()
        await course.begin()
        course.database.versions.set_exception(ZeroDivisionError())
        assert (await course.end()).status == 500

    run_apart(work, uvloop.new_event_loop)
