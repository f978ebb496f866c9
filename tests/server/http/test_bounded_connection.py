"""Connections that do not behave: slow ones, endless ones, and what is not HTTP. Rows 2, 14 and 22."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from crowdml.server.http.bounded_connection import ConnectionLimits, bounded
from crowdml.server.http.requests import send_answer
from crowdml.server.refusals import Answer
from crowdml.server.setup.serving import Place, PromptLoop, bind, limits_of, make_server
from tests.support.own_loop import run_apart

HOST = b"Host: 127.0.0.1\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST
PACE_S = 0.02
DEADLINE_S = 0.5


def closes(link: socket.socket, piece: bytes = b"") -> bytes:
    """Send a piece now and then until the other side closes; return what it said."""
    link.settimeout(PACE_S)
    said = b""
    with contextlib.suppress(ConnectionError):
        for _ in range(1000):
            if piece:
                link.sendall(piece)
            with contextlib.suppress(TimeoutError):
                part = link.recv(1 << 16)
                said += part
                if not part:
                    return said
        raise AssertionError("the connection stays open")
    return said


def check_in(device: Any, body: bytes, **headers: str) -> bytes:
    """Write a check-in as it travels."""
    given = {"content-length": str(len(body)), "host": "127.0.0.1"} | device.headers() | headers
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"POST /v1/tasks/{device.task}/check-ins HTTP/1.1\r\n{lines}\r\n".encode() + body


@pytest.fixture
def unchanged(hasty: Any) -> Iterator[None]:
    """Check that nothing was stored meanwhile."""
    before = hasty.stored()
    yield
    assert hasty.stored() == before
    assert hasty.send("GET", "/healthz").status_code == 200, "others are served"


@pytest.mark.parametrize("begin", [b"", b"\r\n", b"G", GET[:-1], GET, GET + b"X-Slow: a"])
def test_2_a_request_that_never_ends_is_closed(hasty: Any, unchanged: None, begin: bytes) -> None:
    with hasty.connect() as link:
        link.sendall(begin)
        assert closes(link) == b""


def test_2_what_has_come_is_read_before_its_deadline_ends_it() -> None:
    """A loop that was busy beyond a deadline, as while thousands connect, cuts nobody off whose request is there."""
    protocol = bounded(ConnectionLimits(deadline_s=DEADLINE_S))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for event in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{event}.complete"})
        else:
            await send_answer(send, Answer(status=200))

    async def run() -> bytes:
        loop, place = asyncio.get_running_loop(), Place(port=0)
        listening = bind(place)
        server = make_server(app, place, protocol)
        serving = loop.create_task(server.serve([listening]))
        with socket.socket() as link:
            link.setblocking(False)
            await loop.sock_connect(link, listening.getsockname())
            while not protocol.addresses["127.0.0.1"]:
                await asyncio.sleep(0)

            bell, ring = socket.socketpair()

            def be_busy() -> None:
                loop.remove_reader(bell)
                link.send(GET + b"\r\n")
                time.sleep(2 * DEADLINE_S)

            # Among what is read, as connections are taken: after that the loop looks at its clocks first.
            with bell, ring:
                loop.add_reader(bell, be_busy)
                ring.send(b"!")
                said = b""
                with contextlib.suppress(ConnectionError):
                    said = await asyncio.wait_for(loop.sock_recv(link, 12), 10)
        server.should_exit = True
        await serving
        return said

    assert run_apart(run, PromptLoop) == b"HTTP/1.1 200"


@pytest.mark.parametrize("drop", [b"\r\n", b"a", b"X: a\r\n"])
def test_2_a_byte_now_and_then_does_not_keep_it_open(hasty: Any, unchanged: None, drop: bytes) -> None:
    with hasty.connect() as link:
        link.sendall(b"" if drop == b"\r\n" else GET + b"X: ")
        said = closes(link, drop)
    assert b"200" not in said


def test_2_empty_lines_after_an_answer_do_not_keep_it_open(hasty: Any, unchanged: None) -> None:
    with hasty.connect() as link:
        link.sendall(GET + b"\r\n")
        assert b"200 OK" in link.recv(1 << 16)
        link.sendall(b"\r\n")
        assert closes(link) == b""


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_2_a_check_in_that_is_cut_is_not_stored(hasty: Any, share: float) -> None:
    device = hasty.device()
    whole, before = check_in(device, device.body()), hasty.stored()
    head = whole.index(b"\r\n\r\n") + 4
    with hasty.connect() as link:
        link.sendall(whole[: head + int(share * (len(whole) - head))])
    assert device.me()["check_ins"] == 0 and hasty.stored() == before
    assert device.check_in().status_code == 200


def test_2_a_body_gets_time_for_the_length_it_announced(hasty: Any) -> None:
    device = hasty.device()
    whole = check_in(device, device.body())
    with hasty.connect() as link:
        link.sendall(whole[:-10])
        for _ in range(3):
            time.sleep(0.15)
        link.sendall(whole[-10:])
        assert b"200 OK" in link.recv(1 << 16)


def test_2_a_body_that_does_not_come_in_time_is_cut(hasty: Any, unchanged: None) -> None:
    with hasty.connect() as link:
        link.sendall(b"POST /v1/tasks/walk/devices HTTP/1.1\r\n" + HOST + b"Content-Length: 20\r\n\r\n{")
        assert closes(link) == b""


def test_2_what_is_refused_before_its_body_came_is_read_for_a_while_only(hasty: Any, refused: Any) -> None:
    device = hasty.device()
    for headers, status in (
        ({"content-length": str(1 << 30)}, 413),
        ({"content-length": str(1 << 30), "authorization": "Bearer nobody"}, 401),
    ):
        head = check_in(device, b"", **headers)
        with hasty.connect() as link:
            link.sendall(head + bytes(100_000))
            said = closes(link, bytes(1000))
        assert said.startswith(f"HTTP/1.1 {status} ".encode()), said


def test_2_a_refused_body_that_comes_to_its_end_leaves_the_connection_usable(hasty: Any) -> None:
    device = hasty.device()
    body = device.body()
    with hasty.connect() as link:
        link.sendall(check_in(device, body, authorization="Bearer nobody"))
        assert b"401 Unauthorized" in link.recv(1 << 16)
        link.sendall(check_in(device, body))
        assert b"200 OK" in link.recv(1 << 16)


def test_2_a_peer_that_does_not_read_is_cut(hasty: Any) -> None:
    device = hasty.device(hasty.fresh("data.features=100000"))
    asked = f"GET /v1/tasks/{device.task}/check-out HTTP/1.1\r\nAuthorization: Bearer {device.token}\r\n".encode()
    with hasty.connect() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        mine = link.getsockname()

        def there() -> bool:
            return any(connection.client == mine for connection in list(hasty.server.server_state.connections))

        # Answered once, so that the server knows of it for certain: what has not come yet is not there either.
        link.sendall(GET + b"\r\n")
        assert b"200 OK" in link.recv(1 << 16) and there()
        link.sendall((asked + HOST + b"\r\n") * 20)
        give_up = time.monotonic() + 20
        while there():
            assert time.monotonic() < give_up, "it stays open"
            time.sleep(PACE_S)


@pytest.mark.parametrize(
    "headers",
    [
        b"X: " + b"a" * (1 << 20) + b"\r\n",
        b"X: a\r\n" * (1 << 17),
        b"Authorization: Bearer " + b"a" * (1 << 20) + b"\r\n",
        b"X" * (1 << 20) + b": a\r\n",
        b"Range: bytes=" + b"0-0," * 10_000 + b"0-0\r\n",
    ],
    ids=["long", "many", "token", "name", "range"],
)
def test_14_headers_of_a_megabyte_are_too_large(hasty: Any, refused: Any, unchanged: None, headers: bytes) -> None:
    refused(hasty.raw(GET + headers + b"\r\n")[0], 431, "headers")


def test_14_an_address_of_a_megabyte_is_too_large(hasty: Any, refused: Any, unchanged: None) -> None:
    refused(hasty.raw(b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\n" + HOST + b"\r\n")[0], 431, "headers")


def test_14_a_header_without_an_end_is_cut_as_soon_as_it_is_too_large(hasty: Any, unchanged: None) -> None:
    sent = 0
    with hasty.connect() as link:
        link.settimeout(PACE_S)
        link.sendall(GET + b"X: ")
        said = b""
        while not said:
            assert sent < 1 << 20, "an endless header is read"
            link.sendall(bytes([97]) * 1024)
            sent += 1024
            with contextlib.suppress(TimeoutError):
                said = link.recv(1 << 16) if sent > 1 << 15 else b""
    assert said.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("path", ["/v1/tasks/walk/check-out", "/v1/devices/me"])
def test_14_two_authorization_headers_are_refused(hasty: Any, refused: Any, path: str) -> None:
    device = hasty.device()
    one = f"Authorization: Bearer {device.token}\r\n".encode()
    asked = b"GET %s HTTP/1.1\r\n" % path.encode() + HOST + one
    assert hasty.raw(asked + b"Connection: close\r\n\r\n")[0][0] == 200
    refused(hasty.raw(asked + one + b"Connection: close\r\n\r\n")[0], 400, "repeated-header")


SINGLE = ["Host", "Origin", "Range", "Content-Type", "Content-Encoding", "Idempotency-Key"]


@pytest.mark.parametrize("name", SINGLE)
def test_14_headers_that_could_be_read_in_two_ways_stand_once(
    hasty: Any, refused: Any, unchanged: None, name: str
) -> None:
    first = b"" if name == "Host" else f"{name}: bytes=0-0\r\n".encode()
    for method, path in (
        (b"GET", b"/static/pages.css"),
        (b"POST", b"/v1/tasks"),
        (b"POST", b"/v1/tasks/walk/check-ins"),
    ):
        asked = method + b" " + path + b" HTTP/1.1\r\n" + HOST + b"Connection: close\r\nContent-Length: 0\r\n" + first
        refused(hasty.raw(asked + f"{name}: 127.0.0.1\r\n\r\n".encode())[0], 400, "repeated-header")


NOT_HTTP = {
    "length and chunks": b"POST /v1/tasks HTTP/1.1\r\n"
    + HOST
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": b"POST /v1/tasks HTTP/1.1\r\n"
    + HOST
    + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST /v1/tasks HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\n12345",
    "a signed length": b"POST /v1/tasks HTTP/1.1\r\n" + HOST + b"Content-Length: +4\r\n\r\n1234",
    "a negative length": b"POST /v1/tasks HTTP/1.1\r\n" + HOST + b"Content-Length: -4\r\n\r\n1234",
    "a length beyond 64 bits": b"POST /v1/tasks HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999999999999999\r\n\r\n",
    "unknown encoding": b"POST /v1/tasks HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked, identity\r\n\r\n",
    "folded header": GET + b"X: a\r\n b\r\n\r\n",
    "space before colon": GET + b"X : a\r\n\r\n",
    "bare line feeds": b"GET /healthz HTTP/1.1\nHost: 127.0.0.1\n\n",
    "HTTP/0.9": b"GET /healthz\r\n\r\n",
    "HTTP/2": b"GET /healthz HTTP/2.0\r\n" + HOST + b"\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/9": b"GET /healthz HTTP/9.9\r\n" + HOST + b"\r\n",
    "no method": b" /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "unknown method": b"FETCH /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "NUL in the address": b"GET /health\x00z HTTP/1.1\r\n" + HOST + b"\r\n",
    "bytes in the address": b"GET /\xff\xfe HTTP/1.1\r\n" + HOST + b"\r\n",
    "NUL in a header": GET + b"X: a\x00b\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "noise": bytes(range(256)) * 8,
}


@pytest.mark.parametrize("what", list(NOT_HTTP))
def test_22_what_is_not_http_is_refused_and_closed(hasty: Any, refused: Any, unchanged: None, what: str) -> None:
    (answer,) = hasty.raw(NOT_HTTP[what])
    refused(answer, 400, "not-http")
    assert answer[1]["connection"] == "close"


@pytest.mark.parametrize("chunk", [b"4\r\n{}  \r\n0\r\n\r\n", b"4;" + b"a" * 100_000 + b"\r\n{}  \r\n0\r\n\r\n"])
@pytest.mark.parametrize("path", [b"/v1/tasks", b"/v1/tasks/walk/check-ins", b"/v1/tasks/walk/devices"])
def test_22_chunks_are_not_read(hasty: Any, refused: Any, unchanged: None, path: bytes, chunk: bytes) -> None:
    head = b"POST " + path + b" HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    (answer,) = hasty.raw(head + chunk)
    refused(answer, 411, "length")


def test_22_a_range_of_ten_thousand_parts_is_refused(hasty: Any, refused: Any, unchanged: None) -> None:
    asked = b"GET /static/pages.css HTTP/1.1\r\n" + HOST + b"Connection: close\r\n"
    assert hasty.raw(asked + b"Range: bytes=0-9\r\n\r\n")[0][0] == 200, "a few are ignored"
    refused(hasty.raw(asked + b"Range: bytes=" + b"0-," * 10_000 + b"0-\r\n\r\n")[0], 400, "range")


@pytest.mark.parametrize(
    "after", [b"\x00garbage\r\n\r\n", GET + b"X: " + b"a" * 100_000, NOT_HTTP["chunks and length"]]
)
def test_22_a_refusal_is_never_taken_for_the_answer_to_an_earlier_request(
    hasty: Any, unchanged: None, after: bytes
) -> None:
    for answer in hasty.raw(GET + b"\r\n" + after)[:1]:
        assert answer[0] == 200


def test_22_requests_in_one_packet_are_answered_in_order(hasty: Any, unchanged: None) -> None:
    paths = [b"/healthz", b"/v1/tasks/nothing", b"/v1/tasks", b"/healthz"]
    asked = [b"GET " + path + b" HTTP/1.1\r\n" + HOST for path in paths]
    raw = b"\r\n".join([*asked[:-1], asked[-1] + b"Connection: close\r\n\r\n"])
    assert [answer[0] for answer in hasty.raw(raw)] == [200, 404, 200, 200]


def test_22_a_body_hidden_behind_an_upgrade_is_no_request(hasty: Any) -> None:
    device = hasty.device()
    hidden = check_in(device, device.body())
    asked = check_in(device, b"", **{"content-length": str(len(hidden)), "connection": "upgrade", "upgrade": "h2c"})
    before = hasty.stored()
    (answer,) = hasty.raw(asked + hidden)
    assert answer[0] in (413, 422) and hasty.stored() == before
    get = GET + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    assert [answer[0] for answer in hasty.raw(get + get)] == [200]


def test_22_a_device_that_asks_first_is_told_to_go_on_or_not_to(hasty: Any) -> None:
    device = hasty.device()
    body = device.body()
    head = check_in(device, b"", **{"content-length": str(len(body)), "expect": "100-continue"})
    with hasty.connect() as link:
        link.sendall(head)
        assert link.recv(1 << 16) == b"HTTP/1.1 100 Continue\r\n\r\n"
        link.sendall(body)
        assert b"200 OK" in link.recv(1 << 16)
    head = check_in(device, b"", **{"content-length": str(len(body) + 1), "expect": "100-continue"})
    assert hasty.raw(head)[0][0] == 413


def crowd(app: Any, number: int) -> list[bytes]:
    """Open many connections at once, then ask on each; return the answers, which are empty where it was cut off."""
    said = []
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(app.connect()) for _ in range(number)]
        for link in links:
            with contextlib.suppress(ConnectionError):
                link.sendall(GET + b"\r\n")
        for link in links:
            with contextlib.suppress(ConnectionError):
                said.append(link.recv(1 << 16))
    give_up = time.monotonic() + 20
    while len(app.server.server_state.connections) > 1 and time.monotonic() < give_up:
        time.sleep(PACE_S)
    return said


@pytest.mark.parametrize("limits", [{"connections": 20}, {"per_address": 20}], ids=["together", "of one address"])
def test_connections_beyond_the_limit_are_told_so_and_closed(make_limited: Any, limits: Any) -> None:
    app = make_limited(refused=1000, **limits)
    said = crowd(app, 35)
    assert [answer.startswith(b"HTTP/1.1 200 OK") for answer in said].count(True) == 20
    busy = next(answer for answer in said if not answer.startswith(b"HTTP/1.1 200 OK"))
    head, _, body = busy.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n") and b"\r\nconnection: close" in head
    assert b"\r\nretry-after: 5" in head and b'"code": "busy"' in body
    give_up = time.monotonic() + 20
    while app.protocol.addresses and time.monotonic() < give_up:
        time.sleep(PACE_S)
    assert not app.protocol.addresses, "whoever left makes room"
    assert all(answer.startswith(b"HTTP/1.1 200 OK") for answer in crowd(app, 20))


def test_where_answers_would_take_too_many_files_connections_are_cut_off(make_limited: Any) -> None:
    app = make_limited(connections=10, refused=5)
    answers = [answer[:12] for answer in crowd(app, 40)]
    assert answers.count(b"HTTP/1.1 200") == 10 and answers.count(b"HTTP/1.1 503") == 5
    assert crowd(app, 1)[0].startswith(b"HTTP/1.1 200")


def test_no_address_takes_all_connections_but_a_proxy_may() -> None:
    assert limits_of(Place(), 1000).per_address == 250
    assert limits_of(Place(proxy="10.0.0.1"), 1000).per_address == 1000


def test_a_server_that_is_asked_to_end_does_not_wait_for_watchers(on_socket: Any) -> None:
    with on_socket.connect() as link:
        link.sendall(b"GET /v1/tasks/walk/events HTTP/1.1\r\n" + HOST + b"\r\n")
        said = b""
        while b"event: state" not in said:
            said += link.recv(1 << 16)
        began = time.monotonic()
        on_socket.close()
        assert time.monotonic() - began < 8, "the usual time for requests under way is ten seconds"
