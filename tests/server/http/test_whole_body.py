"""Large bodies, read without copies: they arrive whole or not at all, and the connection goes on after them."""

from __future__ import annotations

import hashlib
import socket
import time
from typing import Any

import pytest

from crowdml.server.http import bounded_connection
from crowdml.server.http.whole_body import LARGE, BodyReader
from tests.support.on_socket import parse_answers

FEATURES = "data.features=60000"


@pytest.fixture
def device(hasty: Any) -> Any:
    made = hasty.device(hasty.fresh(FEATURES))
    assert len(made.body()) > LARGE
    return made


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[BodyReader]:
    """Every reader that is made."""
    made: list[BodyReader] = []

    class Noted(BodyReader):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(bounded_connection, "BodyReader", Noted)
    return made


def written(device: Any, body: bytes, **headers: str) -> bytes:
    """Write a check-in as it travels."""
    given = {"content-length": str(len(body)), "host": "127.0.0.1"} | device.headers() | headers
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"POST /v1/tasks/{device.task}/check-ins HTTP/1.1\r\n{lines}\r\n".encode() + body


def send_in_parts(link: socket.socket, content: bytes, parts: int) -> None:
    """Send, with a rest between the parts, so that they are read one by one."""
    size = -(-len(content) // parts)
    for begin in range(0, len(content), size):
        link.sendall(content[begin : begin + size])
        time.sleep(0.01)


def statuses(link: socket.socket, wanted: int) -> list[int]:
    """Read so many answers."""
    link.settimeout(20)
    said = b""
    while said.count(b"HTTP/1.1 ") < wanted or not said.endswith(b"}"):
        part = link.recv(1 << 16)
        assert part, f"closed after {said!r}"
        said += part
    return [status for status, _, _ in parse_answers(said)]


@pytest.mark.parametrize("parts", [1, 3, 40])
def test_a_large_body_arrives_whole_however_it_is_cut(
    hasty: Any, device: Any, readers: list[BodyReader], parts: int
) -> None:
    body = device.body()
    sent = written(device, body)
    head = len(sent) - len(body)
    with hasty.connect() as link:
        link.sendall(sent[:head])
        send_in_parts(link, sent[head:], parts)
        assert statuses(link, 1) == [200]
    assert len(readers) == 1 and bytes(readers[0].body) == body
    receipts = hasty.send("GET", "/v1/devices/me/receipts", headers=device.headers()).json()["receipts"]
    assert [receipt["body"] for receipt in receipts] == [hashlib.sha256(body).hexdigest()]


def test_the_connection_goes_on_after_a_large_body(hasty: Any, device: Any, readers: list[BodyReader]) -> None:
    body = device.body()
    health = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    first, second = (written(device, body, **{"idempotency-key": f"large-{number}-of-two"}) for number in (1, 2))
    with hasty.connect() as link:
        link.sendall(first)
        assert statuses(link, 1) == [200]
        # What follows a body at once is another request, and no byte of it belongs to the body.
        send_in_parts(link, second + health, 7)
        assert statuses(link, 2) == [200, 200]
    assert device.me()["check_ins"] == 2 and len(readers) >= 1


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_a_large_body_that_is_cut_is_not_stored(hasty: Any, device: Any, share: float) -> None:
    sent, before = written(device, device.body()), hasty.stored()
    head = sent.index(b"\r\n\r\n") + 4
    with hasty.connect() as link:
        send_in_parts(link, sent[: head + int(share * (len(sent) - head))], 4)
    assert device.me()["check_ins"] == 0 and hasty.stored() == before
    assert device.check_in().status_code == 200


def test_a_large_body_that_stalls_is_cut_at_the_deadline(make_limited: Any) -> None:
    app = make_limited(deadline_s=0.3, bytes_per_second=1 << 30)
    app.create()
    device = app.device(app.fresh(FEATURES))
    with app.connect() as link:
        link.sendall(written(device, device.body())[:-10])
        link.settimeout(20)
        assert link.recv(1 << 16) == b""
    assert device.me()["check_ins"] == 0


def test_a_large_body_that_is_refused_leaves_the_connection_usable(hasty: Any, device: Any) -> None:
    body = device.body()
    with hasty.connect() as link:
        link.sendall(written(device, b"\0" + body[1:]))
        assert statuses(link, 1) == [422]
        link.sendall(written(device, body))
        assert statuses(link, 1) == [200]


def test_whoever_waits_for_a_word_before_a_large_body_gets_it(hasty: Any, device: Any) -> None:
    sent = written(device, device.body(), expect="100-continue")
    head = sent.index(b"\r\n\r\n") + 4
    with hasty.connect() as link:
        link.settimeout(20)
        link.sendall(sent[:head])
        assert link.recv(1 << 16) == b"HTTP/1.1 100 Continue\r\n\r\n"
        link.sendall(sent[head:])
        assert statuses(link, 1) == [200]


def test_a_small_body_comes_on_the_usual_way(hasty: Any, readers: list[BodyReader]) -> None:
    device = hasty.device()
    assert device.check_in().status_code == 200 and readers == []
