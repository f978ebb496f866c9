"""Events: state is told as it changes, to so many watchers and no more. Row 21."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from crowdml.server.pages.status_routes import Watchers, _events
from crowdml.server.refusals import Refusal
from tests.support.own_loop import run_apart

HEAD = b"GET /v1/tasks/walk/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def read_until(link: Any, text: bytes) -> bytes:
    said = b""
    while text not in said:
        part = link.recv(1 << 16)
        assert part, said
        said += part
    return said


def test_watchers_are_counted_by_address_and_in_all() -> None:
    watchers = Watchers(per_address=2, in_all=3)
    for address in ("a", "a", "b"):
        watchers.admit(address)
    for address in ("a", "b", "c"):
        with pytest.raises(Refusal) as caught:
            watchers.admit(address)
        assert (caught.value.status, caught.value.code, caught.value.retry_after_s) == (429, "too-many-streams", 10)
    watchers.leave("a")
    watchers.admit("c")


def test_21_streams_above_the_limit_are_refused_and_those_that_end_make_room(hasty: Any, refused: Any) -> None:
    with contextlib.ExitStack() as open_links:
        links = [open_links.enter_context(hasty.connect()) for _ in range(20)]
        for link in links:
            link.sendall(HEAD)
            assert b"text/event-stream" in read_until(link, b"event: state")
        answer = hasty.send("GET", "/v1/tasks/walk/events")
        refused(answer, 429, "too-many-streams")
        assert answer.headers["retry-after"] == "10"
        assert hasty.device().check_in().status_code == 200, "devices are served"
    for _ in range(200):
        with hasty.connect() as link:
            link.sendall(HEAD)
            if b" 200 " in link.recv(1 << 16):
                return
    raise AssertionError("streams that ended are still counted")


def test_21_a_stream_that_never_began_is_not_counted(shared: Any) -> None:
    """A watcher may be gone before its first event; however many of these there are, another one is admitted."""

    async def gone(_: Any) -> None:
        raise OSError("the watcher is gone")

    async def left() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def ask(send: Any, receive: Any) -> None:
        headers = [(b"host", b"127.0.0.1")]
        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": "/v1/tasks/walk/events",
            "headers": headers,
            "query_string": b"",
        }
        scope |= {"client": ("10.0.0.1", 1), "http_version": "1.1", "scheme": "http", "asgi": {"version": "3.0"}}
        with contextlib.suppress(Exception):
            await asyncio.wait_for(shared.app(scope, receive, send), 5)

    told: list[Any] = []

    async def hear(event: Any) -> None:
        told.append(event)

    for send in (gone, hear):
        for _ in range(30):
            shared.thread.run(ask(send, left))
    assert {event["status"] for event in told if event["type"] == "http.response.start"} == {200}


def test_something_new_is_told_where_the_words_are_the_same() -> None:
    """As an error that was measured again: a page that shows where it was measured asks for it anew."""
    marks = iter((1, 1, 2))

    async def told() -> list[bytes]:
        state = ["open"]

        def stands() -> tuple[bytes, str, int]:
            mark = next(marks, None)
            if mark is None:
                state[0] = "stopped"
            return b"{}", state[0], mark or 2

        return [event async for event in _events(stands)]

    assert run_apart(told) == [b"event: state\ndata: {}\n\n"] * 2


def test_events_tell_what_changes_until_the_task_stops(on_socket: Any) -> None:
    device = on_socket.device()
    with on_socket.connect() as link:
        link.sendall(HEAD)
        first = read_until(link, b"\n\n")
        assert b"event: state\ndata: " in first
        device.check_in()
        on_socket.move("stopped")
        told = first + read_until(link, b"0\r\n\r\n")
    states = [json.loads(line[6:]) for line in told.split(b"\n") if line.startswith(b"data: ")]
    assert states[0]["check_ins"] == 0 and states[-1]["check_ins"] == states[-1]["version"] == 1
    wanted = {"version", "check_ins", "devices", "state", "estimated_error", "rows"}
    assert all(wanted <= set(state) for state in states)
    assert states[-1]["state"] == "stopped" and states[-1]["reason"] == "the operator stopped it"
