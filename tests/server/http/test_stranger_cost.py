"""What strangers may cost: documents are serialised once, each address has a pace, and no log can be filled."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx
import pytest

from crowdml.server.http.requests import Pace
from crowdml.server.setup.application import Access
from crowdml.server.setup.serving import LogLimit

DOCUMENTS = ("/openapi.json", "/v1/tasks", "/v1/tasks/walk", "/v1/tasks/walk/curve")
READS = (*DOCUMENTS, "/", "/tasks/walk", "/join/walk", "/metrics", "/static/task.js", "/v1/tasks/walk/events", "/no")
HOST = b"Host: 127.0.0.1\r\n"


def test_documents_for_strangers_are_serialised_once(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device = app.device()
    device.check_in()
    first = [app.send("GET", path) for path in DOCUMENTS]
    serialised: list[type] = []
    for name in ("encode", "iterencode"):
        real = getattr(json.JSONEncoder, name)

        def counting(self: Any, given: Any, *more: Any, real: Any = real, **named: Any) -> Any:
            serialised.append(type(given))
            return real(self, given, *more, **named)

        monkeypatch.setattr(json.JSONEncoder, name, counting)
    again = [app.send("GET", path) for path in DOCUMENTS for _ in range(5)]
    assert serialised == []
    assert [answer.content for answer in again] == [answer.content for answer in first for _ in range(5)]
    device.check_in()
    after = [app.send("GET", path).content for path in DOCUMENTS]
    assert [old.content != new for old, new in zip(first, after, strict=True)] == [False, True, True, True]
    assert serialised, "the counter works"


def test_a_stranger_who_reads_too_often_is_slowed_down_and_devices_beside_it_are_not(
    make_app: Any, refused: Any
) -> None:
    app = make_app(access=Access(reader_pace=Pace(per_second=1e-6, burst=3)))
    app.create()
    device = app.device()  # it has read the task, and joined: two
    assert [app.send("GET", "/openapi.json").status_code for _ in range(3)] == [200, 429, 429]
    for path in READS:
        answer = app.send("GET", path)
        refused(answer, 429, "too-fast")
        assert int(answer.headers["retry-after"]) > 0
    refused(app.send("GET", "/v1/tasks", headers={"authorization": "Bearer guess"}), 429, "too-fast")
    assert app.send("GET", "/healthz").status_code == 200, "whoever watches over the server is never refused"
    body = device.body(version=0)
    for _ in range(10):
        assert device.check_out().status_code == device.check_in(body).status_code == 200
        assert device.me()["check_ins"] and app.as_operator("GET", "/v1/tasks").status_code == 200


def test_the_usual_pace_of_strangers_is_generous_and_bounded() -> None:
    pace = Access().reader_pace
    assert 10 <= pace.per_second <= 50 and 100 <= pace.burst <= 500


@pytest.mark.parametrize("encoding", [b"x", b"chunked, x", b"gzip", b"x, chunked", b"chunked, chunked"])
@pytest.mark.parametrize("method", [b"GET / ", b"POST /v1/tasks ", b"POST /v1/tasks/walk/check-ins "])
def test_a_strange_transfer_encoding_gets_one_answer_and_no_line_in_the_log(
    hasty: Any, refused: Any, caplog: pytest.LogCaptureFixture, encoding: bytes, method: bytes
) -> None:
    caplog.set_level("ERROR")
    answers = hasty.raw(method + b"HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: " + encoding + b"\r\n\r\n0\r\n\r\n")
    assert len(answers) == 1 and answers[0][0] in (400, 411)
    refused(answers[0], answers[0][0])
    assert caplog.records == []


def test_what_is_cut_off_with_requests_behind_each_other_leaves_no_line_in_the_log(
    hasty: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("ERROR")
    hasty.show()
    for _ in range(5):
        assert hasty.raw((b"GET /v1/tasks/walk HTTP/1.1\r\n" + HOST + b"\r\n") * 2 + b"\0 no HTTP\r\n\r\n") == []
    hasty.show()
    assert caplog.records == []


class Kept(logging.Handler):
    """Keeps what passes."""

    def __init__(self, limit: LogLimit) -> None:
        super().__init__()
        self.addFilter(limit)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_a_log_takes_so_many_of_a_kind_and_counts_the_rest() -> None:
    now = [0.0]
    kept = Kept(LogLimit(Pace(per_second=1 / 60, burst=3), lambda: now[0]))
    log = logging.Logger("test")
    log.addHandler(kept)

    def stranger(number: int) -> None:
        log.error("refused %d", number)

    for number in range(1000):
        stranger(number)
    log.error("something else")
    now[0] = 61.0
    stranger(1000)
    stranger(1001)
    assert kept.lines == [
        "refused 0",
        "refused 1",
        "refused 2",
        "something else",
        "refused 1000 (and 997 more like this)",
    ]


FLOOD = """
import logging
import crowdml.server.setup.serving as serving
def flood(*_):
    for _ in range(1000):
        try:
            raise ValueError("a stranger did this")
        except ValueError:
            logging.getLogger("asyncio").exception("once more")
serving.serve = flood
from crowdml.cli import main
main()
"""


def test_a_served_log_is_limited(make_process: Any) -> None:
    process = make_process("home", FLOOD)
    assert process.process.wait(20) == 0
    assert process.log.read_text().count("once more") == 10


def test_a_stranger_with_a_network_of_addresses_is_one_stranger(make_app: Any) -> None:
    few = Pace(per_second=1e-6, burst=3)
    app = make_app(access=Access(reader_pace=few, stranger_pace=few))
    app.create()

    def ask(address: str, path: str, **headers: str) -> int:
        async def once() -> int:
            transport = httpx.ASGITransport(app.app, client=(address, 1))
            async with httpx.AsyncClient(base_url=app.address, transport=transport) as session:
                return (await session.get(path, headers=headers)).status_code

        return int(app.thread.run(once()))

    assert [ask(f"2001:db8::{number:x}:1", "/v1/tasks") for number in range(4)] == [200, 200, 200, 429]
    assert ask("2001:db8:0:1::1", "/v1/tasks") == 200, "the network beside it is somebody else"
    wrong = {"authorization": "Bearer wrong"}
    path = "/v1/tasks/walk/check-out"
    assert [ask(f"2001:db8:0:2::{number:x}", path, **wrong) for number in range(4)] == [401, 401, 401, 429]
    # Where a socket takes both kinds, addresses of IPv4 come written as ones of IPv6: each is its own.
    assert [ask(f"::ffff:192.0.2.{number}", "/v1/tasks") for number in range(4)] == [200] * 4
