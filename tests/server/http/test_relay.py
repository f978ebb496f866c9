"""The relay's WebSockets: who may open one, what may be said on it, and what is left of it when it is closed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from crowdml.core.keys import SigningKey
from crowdml.server.http.bounded_connection import ConnectionLimits, bounded
from crowdml.server.http.requests import Pace
from crowdml.server.setup.application import Access
from crowdml.slicing.live.controls import CardText, Hello, write_control
from crowdml.slicing.live.member_cards import MemberKeys
from crowdml.slicing.live.slice_frames import FORWARD, VERSION, Header
from tests.support.application import FAST, Makes
from tests.support.live_slices import TASK
from tests.support.on_socket import OnSocket
from tests.support.served import Member

WAIT_S = 20.0


class Narrow(OnSocket):
    """On a socket, with few places for connections."""

    protocol = bounded(ConnectionLimits(per_address=8, connections=60))


@pytest.fixture
def app(tmp_path: Any) -> Iterator[Narrow]:
    makes = Makes(tmp_path)
    made: Any = makes(kind=Narrow)
    made.create(file=TASK)
    yield made
    makes.close()


@contextmanager
def opened(
    app: OnSocket, device: Member | None, path: str = "/v1/tasks/pieces/relay", **headers: str
) -> Iterator[ClientConnection]:
    """Open a WebSocket as a device would; names of headers are given with underscores."""
    given = {} if device is None else {"Authorization": f"Bearer {device.token}"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    with connect(
        f"ws://127.0.0.1:{app.port}{path}", additional_headers=given, proxy=None, open_timeout=WAIT_S, max_size=1 << 20
    ) as socket:
        yield socket


def refusal(
    app: OnSocket, device: Member | None, path: str = "/v1/tasks/pieces/relay", **headers: str
) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as refused, opened(app, device, path, **headers):
        pass
    response = refused.value.response
    return response.status_code, json.loads(response.body or b"{}")["error"]["code"]


def hello(device: Member, deposits: int = 0, key: SigningKey | None = None) -> str:
    keys = MemberKeys(app_hash(device), os.urandom(32), key or device.key)
    return write_control(Hello(card=CardText.of(keys.card), deposits=deposits))


def app_hash(device: Member) -> str:
    return device.link.task_hash


def closed_with(socket: ClientConnection) -> str:
    """Wait until the server closes, and return why."""
    with pytest.raises(ConnectionClosed) as ended:
        while True:
            socket.recv(timeout=WAIT_S)
    assert ended.value.rcvd is not None
    return ended.value.rcvd.reason


def test_only_a_device_of_the_task_may_open_one(app: Narrow) -> None:
    device = app.device("pieces")
    app.create()
    stranger = app.device("walk")
    assert refusal(app, None) == (401, "not-authorised")
    assert refusal(app, stranger) == (404, "no-task")
    assert refusal(app, stranger, "/v1/tasks/walk/relay") == (404, "no-groups")
    assert refusal(app, device, "/v1/tasks/pieces/model") == (404, "no-route")
    shake = "GET /v1/tasks/pieces/relay HTTP/1.1\r\nHost: evil.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    shake += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    ((status, _, body),) = app.raw(shake.encode())
    assert (status, json.loads(body)["error"]["code"]) == (400, "host")
    assert refusal(app, device, Origin="http://evil.example") == (403, "origin")
    assert refusal(app, device, Crowdml_Protocol="999") == (400, "protocol")
    app.move("paused", "pieces")
    assert refusal(app, device) == (503, "paused")
    app.move("stopped", "pieces")
    assert refusal(app, device) == (410, "stopped")


def test_a_plain_request_is_told_to_upgrade(app: Narrow) -> None:
    device = app.device("pieces")
    answer = app.send("GET", "/v1/tasks/pieces/relay", headers=device.bearer)
    assert (answer.status_code, answer.json()["error"]["code"]) == (426, "upgrade")


def test_nothing_is_compressed(app: Narrow) -> None:
    with opened(app, app.device("pieces")) as socket:
        assert socket.protocol.extensions == []


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ('{"kind": "ready", "turn": 0, "attempt": 0}', "begins with a hello"),
        ("not json", "control message that is none"),
        ('{"kind": "hello", "card": {"fresh": "00"}, "more": 1}', "control message that is none"),
        (b"\0" * 100, "begins with a hello"),
        ("x" * 5000, "more than 4096 bytes"),
        ("[" * 4000, "control message that is none"),
    ],
)
def test_a_connection_that_begins_otherwise_is_closed_and_told_why(app: Narrow, said: str | bytes, why: str) -> None:
    with opened(app, app.device("pieces")) as socket:
        socket.send(said)
        assert why in closed_with(socket)


def test_a_card_must_show_the_identity_that_joined(app: Narrow) -> None:
    device = app.device("pieces")
    with opened(app, device) as socket:
        socket.send(hello(device, key=SigningKey.make()))
        assert "another identity" in closed_with(socket)


def test_deposits_of_another_length_are_refused(app: Narrow) -> None:
    device = app.device("pieces")
    with opened(app, device) as socket:
        socket.send(hello(device, deposits=1))
        socket.send(b"\1" * 3000)
        assert "no deposit" in closed_with(socket)


def test_a_member_without_a_group_may_not_send(app: Narrow) -> None:
    device = app.device("pieces")
    header = Header(VERSION, FORWARD, 0, 0, 1, 0, 1, 0, 0, 1, 1, 1, 2, 0, 0)
    with opened(app, device) as socket:
        socket.send(hello(device))
        socket.send(header.pack() + bytes(100))
        assert "no group yet" in closed_with(socket)


def test_a_device_has_one_connection(app: Narrow) -> None:
    device = app.device("pieces")
    with opened(app, device) as first:
        first.send(hello(device))
        with opened(app, device) as second:
            second.send(hello(device))
            assert "connected again" in closed_with(first)
            shown = app.send("GET", "/v1/tasks/pieces/groups").json()
            assert (shown["waiting"], shown["size"], shown["groups"]) == (1, 6, [])


def test_a_device_that_opens_too_many_is_told_to_wait(tmp_path: Any) -> None:
    makes = Makes(tmp_path)
    app: Any = makes(kind=OnSocket, access=Access(device_pace=Pace(per_second=0.001, burst=3), stranger_pace=FAST))
    app.create(file=TASK)
    device = app.device("pieces")
    for _ in range(3):
        with opened(app, device):
            pass
    assert refusal(app, device) == (429, "too-fast")
    makes.close()


def test_closed_connections_give_their_place_back(app: Narrow) -> None:
    device = app.device("pieces")
    for _ in range(100):
        with opened(app, device):
            pass
    end = time.monotonic() + WAIT_S
    while app.protocol.addresses["127.0.0.1"] > 1:
        assert time.monotonic() < end, app.protocol.addresses
        time.sleep(0.01)
    assert app.send("GET", "/healthz").status_code == 200


@pytest.mark.live
def test_thousands_of_closed_connections_lock_nobody_out(tmp_path: Any) -> None:
    makes = Makes(tmp_path)
    app: Any = makes(kind=OnSocket)
    app.create(file=TASK)
    device = app.device("pieces")
    for _ in range(2_500):
        with opened(app, device):
            pass
    with opened(app, device) as socket:
        socket.send(hello(device))
        assert app.send("GET", "/v1/tasks/pieces/groups").json()["waiting"] <= 1
    assert app.send("GET", "/healthz").status_code == 200
    makes.close()


def test_a_check_in_is_refused_where_members_hold_pieces(app: Narrow) -> None:
    answer = app.device("pieces").check_in(b"x")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "sliced")
