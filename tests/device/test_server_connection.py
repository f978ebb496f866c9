"""The connection: patience, what it refuses, and what a refusal of the server becomes: one of our errors, in a line."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpcore
import httpx
import pytest

from crowdml.core import BadInput, CrowdError
from crowdml.core.errors import (
    BudgetExhausted,
    MalformedMessage,
    NotAuthorised,
    StaleCheckIn,
    TaskClosed,
    TermsViolated,
    Unreachable,
)
from crowdml.device.deadline import Deadline
from crowdml.device.server_connection import LONGEST_RETRY_S, Answer, Backoff, Connection

SERVER = "http://127.0.0.1:9"
Handler = Callable[[httpx.Request], httpx.Response]


def unread(response: httpx.Response) -> httpx.Response:
    """As it comes over a wire: nobody has read it yet."""
    if not response.is_stream_consumed:
        return response
    body = httpx.ByteStream(response.content)
    return httpx.Response(response.status_code, headers=response.headers, stream=body)


def connection(handler: Handler, **options: Any) -> tuple[Connection, list[float]]:
    """A connection whose waits are as long as they may be, and are written down instead of waited."""
    slept: list[float] = []
    made = Connection(
        SERVER,
        transport=httpx.MockTransport(lambda request: unread(handler(request))),
        clock=lambda: sum(slept),
        sleep=slept.append,
        backoff=Backoff(uniform=lambda _low, high: high),
        **options,
    )
    return made, slept


def busy(times: int, status: int = 503, headers: dict[str, str] | None = None) -> tuple[Handler, list[bytes]]:
    """Answer so many times that there is no time, then well."""
    seen: list[bytes] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request.content)
        return httpx.Response(status, headers=headers) if len(seen) <= times else httpx.Response(200, content=b"done")

    return handle, seen


def test_waits_double_up_to_a_limit_and_the_bytes_stay_the_same() -> None:
    handle, seen = busy(10)
    made, slept = connection(handle)
    assert made.ask("POST", "/x", content=b"the same").body == b"done"
    assert slept == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert seen == [b"the same"] * 11


def test_a_wait_is_drawn_from_the_whole_span() -> None:
    """Full jitter. False alarm: 200 uniform numbers that all miss a half of their span, 2⁻¹⁹⁹."""
    waits = [Backoff().wait_s(3, None) for _ in range(200)]
    assert min(waits) < 1.0 < max(waits) <= 2.0


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again_when_it_says(status: int) -> None:
    handle, _ = busy(1, status, {"Retry-After": "30"})
    made, slept = connection(handle)
    made.ask("GET", "/x")
    assert slept == [30.5]


@pytest.mark.parametrize(
    "asked, waited", [("100000", LONGEST_RETRY_S + 0.5), ("-5", 0.5), ("tomorrow", 0.5), ("", 0.5)]
)
def test_a_server_cannot_make_a_device_wait_for_ever(asked: str, waited: float) -> None:
    handle, _ = busy(1, 503, {"Retry-After": asked})
    made, slept = connection(handle)
    made.ask("GET", "/x")
    assert slept == [waited]


def test_a_broken_network_is_like_a_busy_server() -> None:
    failures = [httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("cut")]

    def handle(_request: httpx.Request) -> httpx.Response:
        if failures:
            raise failures.pop(0)
        return httpx.Response(200)

    told: list[str] = []
    made, slept = connection(handle, tell=told.append)
    assert made.ask("GET", "/x").status == 200
    assert slept == [0.5, 1, 2] and "refused" in told[0]


def test_patience_ends() -> None:
    def handle(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    made, slept = connection(handle, patience_s=5.0)
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1.*refused.*4 tries"):
        made.ask("GET", "/x")
    assert slept == [0.5, 1, 2]


@pytest.mark.parametrize(
    "response, message",
    [
        (httpx.Response(200, content=b"x" * 101), "larger than 100"),
        (httpx.Response(302, headers={"Location": "http://evil.example/"}), "redirect"),
        (httpx.Response(200, headers={"Crowdml-Protocol": "1"}), r"'1', and 2 is spoken here\s+the server is older"),
        (httpx.Response(404, headers={"Crowdml-Protocol": "1"}), "protocol '1'"),
        (
            httpx.Response(200, headers={"Crowdml-Protocol": "3"}),
            r"'3', and 2 is spoken here\s+update crowdml here",
        ),
        (
            httpx.Response(
                200, headers={"Content-Encoding": "gzip"}, stream=httpx.ByteStream(gzip.compress(bytes(100)))
            ),
            "compressed",
        ),
    ],
)
def test_what_is_refused(response: httpx.Response, message: str) -> None:
    asked = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return response

    made, _ = connection(handle)
    with pytest.raises(MalformedMessage, match=message):
        made.ask("GET", "/x", limit=100)
    assert asked == [f"{SERVER}/x"]


def test_every_request_names_protocol_and_token_and_asks_for_plain_bytes() -> None:
    seen = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers)
        return httpx.Response(200)

    made, _ = connection(handle)
    made.ask("GET", "/x")
    made.token = "a" * 8
    made.ask("GET", "/x")
    assert "authorization" not in seen[0] and seen[1]["authorization"] == "Bearer aaaaaaaa"
    assert {(headers["crowdml-protocol"], headers["accept-encoding"]) for headers in seen} == {("2", "identity")}


def test_a_token_does_not_travel_in_clear_unless_told() -> None:
    with pytest.raises(BadInput, match="not encrypted"):
        Connection("http://crowd.example:8800")
    Connection("http://crowd.example:8800", plain_http=True).close()
    for local in ("http://localhost:1", "http://[::1]:1", "http://127.1.2.3"):
        Connection(local).close()


@pytest.mark.parametrize("server", ["http://127.0.0.1:99999", "https://[::1"])
def test_an_address_that_is_none(server: str) -> None:
    with pytest.raises(BadInput, match="not an address"):
        Connection(server)


def test_a_file_without_certificates_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    for file in ("ca.pem", "missing.pem"):
        with pytest.raises(BadInput, match=file):
            Connection("https://crowd.example", ca=tmp_path / file)


def test_nobody_listens() -> None:
    """The real network: port 1 of this machine."""
    made = Connection("http://127.0.0.1:1", patience_s=0.0)
    with pytest.raises(Unreachable, match="no answer"):
        made.ask("GET", "/v1/tasks")
    made.close()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n"
WHOLE = HEAD + b"\r\n" + b"x" * 400


@contextmanager
def dripping(at_once: int) -> Iterator[str]:
    """A real server that says so many bytes of its answer at once, and the rest at one byte per 20 ms, to its end."""
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                try:
                    client.recv(1 << 16)
                    client.sendall(WHOLE[:at_once])
                    for at in range(at_once, len(WHOLE)):
                        if over.wait(0.02):
                            return
                        client.sendall(WHOLE[at : at + 1])
                except OSError:
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("at_once", [len(HEAD) + 2, 20], ids=["body", "headers"])
def test_an_answer_that_drips_is_given_up_and_asked_for_again(at_once: int) -> None:
    """Every byte arrives long before any timeout of a single read; the answer as a whole takes eight seconds."""
    told: list[str] = []
    with dripping(at_once) as server:
        made = Connection(server, answer_s=0.1, patience_s=0.5, tell=told.append, backoff=Backoff(first_s=0.01))
        with pytest.raises(Unreachable, match=r"not whole after 0\.1\d* s"):
            made.ask("GET", "/v1/tasks/walk", limit=1000)
        made.close()
    assert told and "asking again" in told[0]


def test_a_large_answer_has_more_time_than_a_small_one() -> None:
    now = [0.0]
    deadline = Deadline(lambda: now[0], 60.0)
    deadline.begin(1 << 20)
    assert deadline.allowed_s == 124.0
    now[0] = 100.0
    assert (deadline.cut(10.0), deadline.cut(60.0), deadline.cut(None)) == (10.0, 24.0, 24.0)
    now[0] = 124.0
    with pytest.raises(httpcore.ReadTimeout, match="not whole after 124 s"):
        deadline.cut(60.0)
    deadline.begin(0)
    assert deadline.cut(None) == 60.0


def test_the_deadline_holds_through_a_proxy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with dripping(len(HEAD) + 2) as server:
        monkeypatch.setenv("http_proxy", server)
        made = Connection("http://crowd.example", plain_http=True, answer_s=0.1, patience_s=0.0)
        with pytest.raises(Unreachable, match="not whole"):
            made.ask("GET", "/v1/tasks/walk", limit=1000)
        made.close()


def refused(status: int, code: str, message: str = "because", hint: str = "") -> Answer:
    content = {"error": {"code": code, "message": message, "hint": hint}}
    return Answer(status=status, headers={}, body=json.dumps(content).encode())


@pytest.mark.parametrize(
    "status, code, kind",
    [
        (401, "not-authorised", NotAuthorised),
        (403, "origin", NotAuthorised),
        (404, "no-task", BadInput),
        (409, "stale", StaleCheckIn),
        (409, "future-version", StaleCheckIn),
        (409, "already-in-round", StaleCheckIn),
        (409, "releases-spent", BudgetExhausted),
        (409, "task-changed", TermsViolated),
        (409, "invite-used", NotAuthorised),
        (410, "closed", TaskClosed),
        (413, "too-large", MalformedMessage),
        (415, "type", MalformedMessage),
        (422, "malformed", MalformedMessage),
        (418, "teapot", BadInput),
    ],
)
def test_a_refusal_is_one_of_our_errors(status: int, code: str, kind: type[CrowdError]) -> None:
    with pytest.raises(kind, match="because"):
        refused(status, code).require(200)


def test_a_strangers_text_cannot_touch_the_terminal() -> None:
    found = str(refused(422, "x", "\x1b[2J\x07" + "a" * 5000 + "\nb").error())
    assert "\x1b" not in found and "\x07" not in found and len(found) < 400 and "\n" not in found


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"error": 3}', b"[" * 5000])
def test_any_body_will_do_for_an_error(body: bytes) -> None:
    with pytest.raises(BadInput, match="status 400"):
        Answer(status=400, headers={}, body=body).require(200)


@pytest.mark.parametrize("body", [b'{"n": true}', b'{"n": 1.5}', b'{"n": -1}', b'{"n": 9223372036854775808}', b"{}"])
def test_numbers_are_whole_and_fit(body: bytes) -> None:
    with pytest.raises(MalformedMessage):
        Answer(status=200, headers={}, body=body).number("n")


def test_an_unexpected_success_is_no_success() -> None:
    with pytest.raises(MalformedMessage, match="206"):
        Answer(status=206, headers={}, body=b"").require(200)
