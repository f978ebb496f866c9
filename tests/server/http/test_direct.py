"""Check-ins that are answered without a coroutine of their own: said and stored is the same as on the usual way."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from crowdml.server.http import bounded_connection
from crowdml.server.http.direct import DirectCycle, ExpectedNothing
from crowdml.server.http.exchange import Exchange
from crowdml.server.http.requests import Request
from crowdml.server.refusals import Answer
from crowdml.server.setup.serving import Place, make_server
from crowdml.server.store import StoreFailed
from tests.support.application import OPEN
from tests.support.on_socket import OnSocket, parse_answers

Answers = list[tuple[int, dict[str, str], bytes]]


def test_a_mistake_after_a_check_out_has_waited_for_the_store_is_answered() -> None:
    later: list[Callable[[], None]] = []
    coordinator: Any = SimpleNamespace(
        options=SimpleNamespace(shared=lambda: True),
        writers={"a-task": SimpleNamespace(when_settled=later.append)},
        check_outs=Counter[int](),
    )
    exchange = Exchange(coordinator, Any, Any)  # type: ignore[arg-type]
    running = SimpleNamespace(name="a-task")  # which has no snapshot
    exchange.admit = lambda request: (running, Any)  # type: ignore[assignment,return-value,method-assign]
    expected, given = exchange.expect_check_out(Request(headers={}, address="")), list[Answer]()
    assert isinstance(expected, ExpectedNothing)
    expected.take(b"", given.append)
    assert not given
    later[0]()
    assert [answer.status for answer in given] == [500] and coordinator.check_outs == {500: 1}


@pytest.fixture
def cycles(monkeypatch: pytest.MonkeyPatch) -> list[DirectCycle]:
    """Every request that is answered so."""
    made: list[DirectCycle] = []

    class Noted(DirectCycle):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(bounded_connection, "DirectCycle", Noted)
    return made


def written(device: Any, body: bytes, first: str = "", **headers: str) -> bytes:
    """Write a check-in as it travels; names of headers are given with underscores."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    given = {"content-length": str(len(body)), "host": "127.0.0.1"} | device.headers() | more
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value != "-")
    return f"{first or f'POST /v1/tasks/{device.task}/check-ins HTTP/1.1'}\r\n{lines}\r\n".encode() + body


def answers(link: socket.socket, wanted: int = 1) -> Answers:
    """Read so many answers."""
    link.settimeout(20)
    said = b""
    while said.count(b"HTTP/1.1 ") < wanted or not said.endswith(b"}"):
        part = link.recv(1 << 16)
        assert part, f"closed after {said!r}"
        said += part
    return parse_answers(said)


def ask(app: Any, sent: bytes) -> tuple[int, dict[str, str], bytes]:
    with app.connect() as link:
        link.sendall(sent)
        (answer,) = answers(link)
    return answer


BAD: dict[str, tuple[int, Callable[[Any, bytes], bytes]]] = {
    "no token": (401, lambda device, body: written(device, body, authorization="-")),
    "a stranger's token": (401, lambda device, body: written(device, body, authorization="Bearer nobody")),
    "another host": (400, lambda device, body: written(device, body, host="elsewhere.example")),
    "another page": (403, lambda device, body: written(device, body, origin="http://elsewhere.example")),
    "another protocol": (400, lambda device, body: written(device, body, crowdml_protocol="1")),
    "a header twice": (400, lambda device, body: written(device, body, Idempotency_Key="a-second-key")),
    "no key": (400, lambda device, body: written(device, body, idempotency_key="-")),
    "another type": (415, lambda device, body: written(device, body, content_type="text/plain")),
    "compressed": (415, lambda device, body: written(device, body, content_encoding="gzip")),
    "no length": (411, lambda device, body: written(device, b"", content_length="-")),
    "too long": (413, lambda device, body: written(device, body + b"\0")),
    "too short": (422, lambda device, body: written(device, body[:-1])),
    "another task's": (404, lambda device, body: written(device, body, "POST /v1/tasks/other/check-ins HTTP/1.1")),
    "another header": (422, lambda device, body: written(device, b"\1" + body[1:])),
    "a version to come": (409, lambda device, body: written(device, device.body(1000))),
}


@pytest.mark.parametrize("kind", list(BAD))
def test_what_is_refused_is_refused_in_the_same_words_on_both_ways(
    hasty: Any, refused: Any, cycles: list[DirectCycle], kind: str
) -> None:
    device = hasty.device()
    status, write = BAD[kind]
    sent, before = write(device, device.body()), hasty.stored()
    first, headers, body = ask(hasty, sent)
    assert len(cycles) == 1
    again, others, other_body = ask(hasty, sent.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
    assert len(cycles) == 1, "the usual way"
    refused((first, headers, body), status)
    assert (first, body) == (again, other_body)
    assert {name: headers[name] for name in headers if name != "date"} == {
        name: others[name] for name in others if name not in ("date", "connection")
    }
    assert hasty.stored() == before
    assert ask(hasty, written(device, device.body()))[0] == 200


def test_a_check_in_gets_its_receipt_and_a_resend_the_same_one(hasty: Any, cycles: list[DirectCycle]) -> None:
    device = hasty.device()
    sent = written(device, device.body())
    first, again = ask(hasty, sent), ask(hasty, sent)
    usual = ask(hasty, sent.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
    assert [answer[0] for answer in (first, again, usual)] == [200, 200, 200] and len(cycles) == 2
    assert again[2] == usual[2] == first[2][:-1] + b',"again":true}'
    assert device.me()["check_ins"] == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda sent: sent.replace(b"\r\n", b"\r\nConnection: close\r\n", 1),
        lambda sent: sent.replace(b"HTTP/1.1", b"HTTP/1.0", 1),
        lambda sent: sent.replace(b"HTTP/1.1\r\n", b"HTTP/1.0\r\nConnection: keep-alive\r\n", 1),
        lambda sent: sent.replace(b"/check-ins ", b"/check-ins?a=b ", 1),
        lambda sent: sent.replace(b"/check-ins ", b"/check%2Dins ", 1),
    ],
    ids=["close", "1.0", "1.0 kept", "query", "escaped"],
)
def test_what_is_special_goes_the_usual_way(hasty: Any, cycles: list[DirectCycle], change: Any) -> None:
    device = hasty.device()
    assert ask(hasty, change(written(device, device.body())))[0] == 200
    assert cycles == [] and device.me()["check_ins"] == 1


def test_whoever_waits_for_a_word_before_the_body_gets_it(hasty: Any, cycles: list[DirectCycle]) -> None:
    device = hasty.device()
    body = device.body()
    sent = written(device, body, expect="100-continue")
    with hasty.connect() as link:
        link.sendall(sent[: -len(body)])
        link.settimeout(20)
        assert link.recv(1 << 16) == b"HTTP/1.1 100 Continue\r\n\r\n"
        link.sendall(body)
        assert answers(link)[0][0] == 200
    assert cycles == []


def test_behind_a_proxy_all_go_the_usual_way(app: Any) -> None:
    """Who has asked is then said by the proxy, which another layer reads."""
    config = make_server(app.app, Place(port=0, proxy="127.0.0.1")).config
    config.load()
    assert hasattr(app.app, "expect") and not hasattr(config.loaded_app, "expect")


@pytest.mark.parametrize("parts", [2, 30])
def test_a_body_arrives_whole_however_it_is_cut(make_limited: Any, cycles: list[DirectCycle], parts: int) -> None:
    patient = make_limited(deadline_s=600)  # so many parts take their time on a busy machine
    patient.create()
    device = patient.device()
    sent = written(device, device.body())
    size = -(-len(sent) // parts)
    with patient.connect() as link:
        for begin in range(0, len(sent), size):
            link.sendall(sent[begin : begin + size])
            time.sleep(0.005)
        assert answers(link)[0][0] == 200
    assert len(cycles) == 1 and device.me()["check_ins"] == 1


def test_requests_behind_each_other_are_answered_in_their_order(hasty: Any, cycles: list[DirectCycle]) -> None:
    device = hasty.device()
    keys = [f"one-behind-another-{number}" for number in range(3)]
    sent = b"".join(written(device, device.body(), idempotency_key=key) for key in keys)
    with hasty.connect() as link:
        link.sendall(sent + b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        found = answers(link, 4)
    assert [status for status, _, _ in found] == [200] * 4
    assert [key.encode() in body for key, (_, _, body) in zip(keys, found, strict=False)] == [True] * 3
    assert found[3][2] == b'{"status": "ok"}' and len(cycles) >= 1
    assert device.me()["check_ins"] == 3


def test_a_refusal_does_not_shorten_the_life_of_a_connection(hasty: Any, cycles: list[DirectCycle]) -> None:
    device = hasty.device()
    with hasty.connect() as link:
        link.sendall(written(device, b"\1" + device.body()[1:]))
        assert answers(link)[0][0] == 422
        time.sleep(3 * hasty.protocol.limits.deadline_s)
        link.sendall(written(device, device.body()))
        assert answers(link)[0][0] == 200
    assert len(cycles) == 2


def test_nobody_is_answered_before_it_is_stored(on_socket: Any, make_gate: Any, cycles: list[DirectCycle]) -> None:
    device = on_socket.device()
    sent, gate = written(device, device.body()), make_gate(on_socket)
    with on_socket.connect() as link:
        link.sendall(sent)
        assert gate.reached.wait(20)
        link.settimeout(0.1)
        with pytest.raises(TimeoutError):
            link.recv(1)
        gate.open.set()
        assert answers(link)[0][0] == 200
    assert len(cycles) == 1


def test_whoever_leaves_before_the_answer_finds_it_later(on_socket: Any, make_gate: Any) -> None:
    device = on_socket.device()
    sent, gate = written(device, device.body()), make_gate(on_socket)
    with on_socket.connect() as link:
        link.sendall(sent)
        assert gate.reached.wait(20)
    gate.open.set()
    status, _, body = ask(on_socket, sent)
    assert status == 200 and body.endswith(b'"again":true}') and device.me()["check_ins"] == 1


def test_a_server_that_ends_answers_first_and_says_that_it_closes(on_socket: Any, make_gate: Any) -> None:
    device = on_socket.device()
    sent, gate = written(device, device.body()), make_gate(on_socket)
    with on_socket.connect() as link:
        link.sendall(sent)
        assert gate.reached.wait(20)
        on_socket.server.should_exit = True
        give_up = time.monotonic() + 20
        while all(connection.cycle.keep_alive for connection in list(on_socket.server.server_state.connections)):
            assert time.monotonic() < give_up
            time.sleep(0.01)
        gate.open.set()
        ((status, headers, _),) = answers(link)
        assert status == 200 and headers["connection"] == "close" and link.recv(1) == b""


def test_a_store_that_fails_is_answered_so(on_socket: Any, refused: Any, cycles: list[DirectCycle]) -> None:
    device, error = on_socket.device(), StoreFailed("disk")
    sent = written(device, device.body())

    def apply(_: object) -> None:
        raise error

    on_socket.store.apply = apply
    refused(ask(on_socket, sent), 503, "failed")
    assert on_socket.failures == [error] and len(cycles) == 1


@pytest.mark.parametrize("place", ["expect_check_in", "decode"])
def test_a_mistake_of_ours_is_answered_in_the_one_shape(
    on_socket: Any, refused: Any, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    device = on_socket.device()
    sent, door = written(device, device.body()), on_socket.app
    running = door._coordinator.tasks["walk"]

    def fail(_: object) -> None:
        raise ZeroDivisionError("secret-detail")

    with monkeypatch.context() as changed, on_socket.connect() as link:
        if place == "decode":
            changed.setattr(running.live.server_messages.check_in, "decode", fail)
        else:
            changed.setattr(door, "_direct", dict.fromkeys(door._direct, fail))
        link.sendall(sent)
        (answer,) = answers(link)
        refused(answer, 500, "internal")
        assert b"secret" not in answer[2]
        changed.undo()
        link.sendall(sent)
        assert answers(link)[0][0] == 200, "the connection goes on"


def test_every_answer_has_the_headers_that_access_asks_for(make_app: Any) -> None:
    app = make_app(kind=OnSocket, access=replace(OPEN, secure_s=600))
    app.create()
    device = app.device()
    for sent, status in ((written(device, device.body()), 200), (written(device, b"", authorization="-"), 401)):
        got, headers, _ = ask(app, sent)
        assert got == status
        assert headers["strict-transport-security"] == "max-age=600" and headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store" and "date" in headers


def test_answers_are_counted_on_both_ways(on_socket: Any) -> None:
    device = on_socket.device()
    coordinator = on_socket.app._coordinator
    for change in (b"", b"Connection: close\r\n"):
        good, bad = written(device, device.body()), written(device, b"", authorization="-")
        for sent in (good, bad):
            ask(on_socket, sent.replace(b"\r\n", b"\r\n" + change, 1))
    assert (coordinator.check_ins[200], coordinator.check_ins[401]) == (2, 2)
