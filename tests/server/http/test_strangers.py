"""Whoever has no business here, and names that are no names. Rows 14 to 19 and 25."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from crowdml.core.keys import SigningKey

ROUTES = [
    ("GET", "/v1/devices/me"),
    ("DELETE", "/v1/devices/me"),
    ("GET", "/v1/devices/me/receipts"),
    ("GET", "/v1/tasks/walk/check-out"),
    ("POST", "/v1/tasks/walk/check-ins"),
    ("GET", "/v1/tasks/walk/model"),
    ("GET", "/v1/tasks/walk/devices"),
    ("DELETE", "/v1/tasks/walk/devices/any"),
    ("POST", "/v1/tasks"),
    ("PATCH", "/v1/tasks/walk"),
    ("POST", "/v1/tasks/walk/invites"),
]
BODIES = {"/v1/tasks": {"file": ""}, "/v1/tasks/walk": {"state": "stopped"}, "/v1/tasks/walk/invites": {"count": 1}}


@pytest.fixture
def unchanged(shared: Any) -> Iterator[None]:
    """Check that nothing was stored meanwhile."""
    before = shared.stored()
    yield
    assert shared.stored() == before


def ask(app: Any, method: str, path: str, **headers: Any) -> httpx.Response:
    more = {"json": BODIES[path]} if method in ("POST", "PATCH") and path in BODIES else {}
    answer: httpx.Response = app.send(method, path, headers=headers, **more)
    return answer


TOKENS = [None, b"", b"Bearer", b"Bearer ", b"Basic YTph", b"Token abc", b"Bearer abc def", b"Bearer \xff\xfe"]


@pytest.mark.parametrize("token", [*TOKENS, b"Bearer " + b"a" * 20_000])
def test_14_no_token_or_a_malformed_one_is_not_authorised(
    shared: Any, refused: Any, unchanged: None, token: bytes | None
) -> None:
    for method, path in ROUTES:
        answer = ask(shared, method, path, **({} if token is None else {"authorization": token}))
        refused(answer, 401, "not-authorised")
        assert answer.headers["www-authenticate"] == "Bearer"


def test_14_a_revoked_token_is_not_authorised_anywhere(shared: Any, refused: Any) -> None:
    task = shared.fresh()
    device, body = shared.device(task), shared.device(task).body()
    assert shared.as_operator("DELETE", f"/v1/tasks/{task}/devices/{device.id}").status_code == 204
    before = shared.stored()
    refused(device.check_in(body), 401)
    refused(device.check_out(), 401)
    refused(shared.send("GET", "/v1/devices/me", headers=device.bearer), 401)
    refused(device.server.enrol(device.link, device.key), 409, "invite-used")
    refused(shared.as_operator("DELETE", f"/v1/tasks/{task}/devices/{device.id}"), 404, "no-device")
    assert shared.stored() == before


def test_14_a_device_that_joins_again_has_one_token(shared: Any, refused: Any) -> None:
    device = shared.device(shared.fresh())
    assert device.check_in().json()["number"] == 1
    again = device.server.enrol(device.link, device.key)
    assert again.status_code == 200 and again.json()["slot"] == device.slot
    refused(device.check_in(), 401)
    device.token = again.json()["token"]
    assert device.check_in().json()["number"] == 2


def test_14_withdrawal_erases_the_device_and_its_token(shared: Any, refused: Any) -> None:
    task = shared.fresh()
    device = shared.device(task)
    device.check_in(key="key-number-1")
    assert shared.send("DELETE", "/v1/devices/me", headers=device.bearer).status_code == 204
    stored = shared.stored()
    assert device.id not in repr(stored) and device.key.public not in [row[4] for row in stored["devices"]]
    refused(device.check_in(), 401)
    refused(device.server.enrol(device.link, device.key), 409, "invite-used")
    assert shared.show(task)["check_ins"] == 1 and shared.show(task)["devices"] == 0


def test_15_a_token_revoked_while_its_check_in_waits_is_not_applied(app: Any, make_gate: Any, refused: Any) -> None:
    first, second = app.device(), app.device()
    bodies, gate = [first.body(0), second.body(0)], make_gate(app)
    one = app.begin_check_in(first, bodies[0])
    assert gate.reached.wait(20)
    two = app.begin_check_in(second, bodies[1])
    app.await_waiting(1)
    operator = {"authorization": f"Bearer {app.token}"}
    gone = app.begin("DELETE", f"/v1/tasks/walk/devices/{second.id}", headers=operator)
    app.await_waiting(2)
    gate.open.set()
    assert one.result(20).status_code == 200 and gone.result(20).status_code == 204
    refused(two.result(20), 401)
    assert app.show()["check_ins"] == 1 and app.show()["version"] == 1
    assert len(app.stored()["receipts"]) == 1


def test_15_revocation_is_effective_before_it_is_stored(app: Any, make_gate: Any, refused: Any) -> None:
    first, second = app.device(), app.device()
    bodies, gate = [first.body(0), second.body(0)], make_gate(app)
    one = app.begin_check_in(first, bodies[0])
    assert gate.reached.wait(20)
    operator = {"authorization": f"Bearer {app.token}"}
    gone = app.begin("DELETE", f"/v1/tasks/walk/devices/{second.id}", headers=operator)
    app.await_waiting(1)
    refused(second.check_in(bodies[1]), 401)
    gate.open.set()
    assert one.result(20).status_code == 200 and gone.result(20).status_code == 204


def test_15_a_token_that_was_replaced_while_its_check_in_waits_is_not_applied(
    app: Any, make_gate: Any, refused: Any
) -> None:
    first, second = app.device(), app.device()
    bodies, gate = [first.body(0), second.body(0), second.body(0, seed=1)], make_gate(app)
    one = app.begin_check_in(first, bodies[0])
    assert gate.reached.wait(20)
    again = app.begin("POST", "/v1/tasks/walk/devices", json=app.enrolment(second.link, second.key))
    app.await_waiting(1)
    two = app.begin_check_in(second, bodies[1])
    app.await_waiting(2)
    gate.open.set()
    assert one.result(20).status_code == again.result(20).status_code == 200
    refused(two.result(20), 401)
    second.token = again.result(20).json()["token"]
    assert second.check_in(bodies[2]).json()["number"] == 1


def test_16_of_fifty_that_use_one_invite_at_once_exactly_one_joins(app: Any, refused: Any) -> None:
    (link,) = app.invites()
    keys = [SigningKey.make() for _ in range(50)]
    asked = [app.begin("POST", "/v1/tasks/walk/devices", json=app.enrolment(link, key)) for key in keys]
    answers = [future.result(20) for future in asked]
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 49
    for answer in answers:
        if answer.status_code == 409:
            refused(answer, 409, "invite-used")
    assert app.show()["devices"] == 1 and len(app.stored()["devices"]) == 1


def test_16_fifty_resends_of_one_device_leave_one_device_with_one_live_token(app: Any) -> None:
    (link,), key = app.invites(), SigningKey.make()
    asked = [app.begin("POST", "/v1/tasks/walk/devices", json=app.enrolment(link, key)) for _ in range(50)]
    answers = [future.result(20) for future in asked]
    assert sorted(answer.status_code for answer in answers) == [200] * 49 + [201]
    assert len({answer.json()["device"] for answer in answers}) == 1
    tokens = [answer.json()["token"] for answer in answers]
    alive = [app.send("GET", "/v1/devices/me", headers={"authorization": f"Bearer {token}"}) for token in tokens]
    assert sorted(answer.status_code for answer in alive) == [200] + [401] * 49


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"invite": "abcdefgh" * 4}, 401, "not-authorised"),
        ({"invite": "short"}, 422, "bad-input"),
        ({"invite": "a" * 129}, 422, "bad-input"),
        ({"key": "AAAA"}, 422, "malformed"),
        ({"key": "!" * 43}, 422, "bad-input"),
        ({"signature": "A" * 86}, 401, "not-authorised"),
        ({"signature": "AAAA"}, 422, "malformed"),
        ({"task_hash": "0" * 64}, 409, "task-changed"),
        ({"task_hash": "0" * 63}, 422, "bad-input"),
        ({"more": 1}, 422, "bad-input"),
        ({"invite": 12345678}, 422, "bad-input"),
        ({"invite": None}, 422, "bad-input"),
        ({"key": "\ud800" * 43}, 422, "bad-input"),
        ({"invite": "\ud800" * 20}, 422, "bad-input"),
    ],
)
def test_16_a_bad_request_to_join_uses_up_no_invite(
    shared: Any, refused: Any, change: dict[str, Any], status: int, code: str
) -> None:
    (link,), key = shared.invites(), SigningKey.make()
    before = shared.stored()
    content = json.dumps(shared.enrolment(link, key) | change).encode()
    headers = {"content-type": "application/json"}
    refused(shared.send("POST", "/v1/tasks/walk/devices", headers=headers, content=content), status, code)
    assert shared.stored() == before
    assert shared.enrol(link, key).status_code == 201


def test_16_whoever_has_an_invite_learns_by_its_hash_whether_it_is_used(shared: Any, refused: Any) -> None:
    (link,), key, task = shared.invites(), SigningKey.make(), shared.fresh()
    named = hashlib.sha256(b"crowdml invite\0" + link.code.encode()).hexdigest()
    before = shared.stored()
    assert shared.send("GET", f"/v1/tasks/walk/invites/{named}").json() == {"used": False}
    assert shared.stored() == before, "asking uses up nothing"
    assert shared.enrol(link, key).status_code == 201
    assert shared.send("GET", f"/v1/tasks/walk/invites/{named}").json() == {"used": True}
    refused(shared.send("GET", f"/v1/tasks/{task}/invites/{named}"), 404, "no-invite")
    refused(shared.send("GET", f"/v1/tasks/walk/invites/{named[::-1]}"), 404, "no-invite")
    for wrong in (named[:-1], named.upper(), named + "0", link.code):
        refused(shared.send("GET", f"/v1/tasks/walk/invites/{wrong}"), 422, "bad-input")


def test_16_an_invite_of_another_task_is_unknown(shared: Any, refused: Any) -> None:
    (link,), key, task = shared.invites(), SigningKey.make(), shared.fresh()
    (other,) = shared.invites(task=task)
    mixed = type(link)(server=link.server, task=task, code=link.code, key=other.key, task_hash=other.task_hash)
    refused(shared.enrol(mixed, key), 404, "no-invite")
    assert shared.enrol(link, key).status_code == 201


def test_16_one_key_is_one_device(shared: Any, refused: Any) -> None:
    one, two = shared.invites(2)
    key = SigningKey.make()
    assert shared.enrol(one, key).status_code == 201
    refused(shared.enrol(two, key), 409, "key-taken")
    assert shared.enrol(two, SigningKey.make()).status_code == 201, "the refused one did not use it up"


NAMES = ["../x", "..\\\\x", "%2e%2e", "%252e", "a\\u0000b", "a" * 4096, "a" * 64, "\u202egnp", "con", "nul", "com1", ""]
NAMES += ["-a", "a-", "A", "a b", "a/b", ".", "..", "~", "a.b", "ä", "<b>", "=1+1", "a\\nb", "'; DROP TABLE tasks; --"]


@pytest.mark.parametrize("name", NAMES)
def test_17_a_task_cannot_be_called_so(shared: Any, refused: Any, unchanged: None, name: str) -> None:
    file = shared.file.replace('"walk"', f'"{name}"')
    refused(shared.as_operator("POST", "/v1/tasks", {"file": file}), 422, "bad-input")


TAILS = ["", "/events", "/curve", "/model", "/devices", "/invites", "/check-out", "/check-ins"]
IN_ADDRESSES = ["..", "%2e%2e", "..%2f..", "..%5cx", "%252e%252e", "a%00b", "a" * 4096, "%e2%80%aegnp", "A", "a%20b"]


@pytest.mark.parametrize("name", [*IN_ADDRESSES, "%ff", "a%0d%0aX:1"])
def test_17_names_in_addresses_that_are_no_names_find_nothing(
    shared: Any, refused: Any, unchanged: None, name: str
) -> None:
    for tail in TAILS:
        method = "POST" if tail in ("/invites", "/check-ins") else "GET"
        raw = httpx.URL(shared.address).copy_with(raw_path=f"/v1/tasks/{name}{tail}".encode())
        answer = shared.send(method, raw, headers={"authorization": f"Bearer {shared.token}"})
        assert answer.status_code in (404, 422), answer.text
        refused(answer, answer.status_code)


@pytest.mark.parametrize("up", ["../", "..%2f", "%2e%2e/", "..%5c", "%252e%252e/", "/", "%00"])
def test_17_no_file_outside_its_folder_is_served(shared: Any, refused: Any, up: str) -> None:
    raw = httpx.URL(shared.address).copy_with(raw_path=f"/static/{up}pages.py".encode())
    refused(shared.send("GET", raw), 404)


def test_18_no_field_makes_the_server_ask_somebody_else(shared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise AssertionError("the server opened a connection")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    url = "http://169.254.169.254/latest"
    task = shared.fresh(f"objective={url}", f"data.dataset={url}", f"data.labels=['{url}', 'file:///etc/passwd']")
    device = shared.device(task)
    assert device.check_in().status_code == 200
    assert shared.show(task)["objective"] == url
    assert shared.as_operator("GET", f"/v1/tasks/{task}/model").status_code == 200


HOSTS = ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "evil.example:8800", "", "127.0.0.2"]
HOSTS += ["0.0.0.0", "[::]", "127.0.0.1@evil.example", "127.0.0.1:80:80", "127.0.0.1, evil.example", "localhost."]


@pytest.mark.parametrize("host", HOSTS)
def test_19_a_foreign_host_is_refused_whatever_is_asked(shared: Any, unchanged: None, refused: Any, host: str) -> None:
    for method, path in [*ROUTES, ("GET", "/"), ("GET", "/v1/tasks"), ("GET", "/openapi.json"), ("OPTIONS", "/")]:
        refused(ask(shared, method, path, host=host, authorization=f"Bearer {shared.token}"), 400, "host")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1234", "LOCALHOST", "[::1]:80", "[::1]"])
def test_19_own_names_are_answered(shared: Any, host: str) -> None:
    assert ask(shared, "GET", "/v1/tasks", host=host).status_code == 200


ORIGINS = [
    "http://evil.example",
    "null",
    "https://127.0.0.1.evil.example",
    "http://localhost",
    "",
    "http://127.0.0.1:1",
]


@pytest.mark.parametrize("origin", [*ORIGINS, "file://", "http://127.0.0.1 http://evil.example", "127.0.0.1"])
def test_19_a_foreign_page_changes_nothing_by_any_method(
    shared: Any, refused: Any, unchanged: None, origin: str
) -> None:
    headers = {"origin": origin, "authorization": f"Bearer {shared.token}"}
    for method, path in [route for route in ROUTES if route[0] != "GET"] + [("PUT", "/v1/tasks")]:
        refused(ask(shared, method, path, **headers), 403, "origin")


def test_19_the_servers_own_page_may_act(shared: Any) -> None:
    headers = {"origin": shared.address, "authorization": f"Bearer {shared.token}"}
    assert ask(shared, "POST", "/v1/tasks/walk/invites", **headers).status_code == 201


def test_19_a_cookie_opens_nothing_and_none_is_set(shared: Any, refused: Any) -> None:
    cookie = f"token={shared.token}; authorization=Bearer {shared.token}; session={shared.token}"
    for method, path in ROUTES:
        answer = ask(shared, method, path, cookie=cookie)
        refused(answer, 401)
        assert "set-cookie" not in answer.headers


def test_19_other_pages_may_not_read_answers(shared: Any) -> None:
    for method in ("GET", "OPTIONS"):
        answer = ask(shared, method, "/v1/tasks", origin="http://evil.example")
        assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("date", ["Fri, 01 Jan 2016 00:00:00 GMT", "Fri, 01 Jan 2049 00:00:00 GMT", "yesterday"])
def test_25_a_devices_clock_is_not_looked_at(shared: Any, date: str) -> None:
    device = shared.device()
    assert device.check_in(date=date).status_code == 200
    assert device.check_out(date=date).status_code == 200


def test_25_a_server_clock_that_goes_back_a_day_gives_nothing_back(
    make_app: Any, refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crowdml.server.http.requests import Pace
    from crowdml.server.setup.application import Access

    app = make_app(access=Access(device_pace=Pace(per_second=1e-6, burst=8)))
    app.create("stop.max-releases=2")
    device = app.device()
    body = device.body(0)
    receipts = [device.check_in(body, f"key-number-{n}").json() for n in range(2)]
    back = time.time() - 86_400
    monkeypatch.setattr(time, "time", lambda: back)
    assert device.check_in(body, "key-number-0").json() == receipts[0] | {"again": True}
    refused(device.check_in(body, "key-number-2"), 409, "releases-spent")
    assert device.me()["check_ins"] == 2
    for _ in range(3):
        device.check_out()
    answer = device.check_out()
    refused(answer, 429, "too-fast")
    assert int(answer.headers["retry-after"]) > 1000, "a day more or less fills no bucket"
