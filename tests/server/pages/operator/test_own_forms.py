"""Forms that are really ours: every way in which another site, a neighbour or a stranger might send one is refused."""

from __future__ import annotations

from typing import Any

import pytest

from crowdml.server.http.requests import LARGEST_FORM, SIGN_IN
from crowdml.server.http.routes import FRAMEWORK_ROUTES, ROUTES
from tests.support.portal import HTML, Browser, signed_in

POSTS = [route for route in FRAMEWORK_ROUTES if route.who == "session" and "POST" in route.methods]
GETS = [route for route in FRAMEWORK_ROUTES if route.who == "session" and "GET" in route.methods]
VALUES = {"{task}": "walk", "{wanted}": "stopped", "{kind}": "safetensors", "{device}": "nobody", "{stage}": "hello"}


def path_of(path: str) -> str:
    for name, value in VALUES.items():
        path = path.replace(name, value)
    return path.replace("{name:path}", "pages.css")


def paths(routes: list[Any]) -> list[str]:
    return [path_of(route.path) for route in routes]


@pytest.fixture(scope="module")
def browser(shared: Any) -> Browser:
    return signed_in(shared)


@pytest.fixture(scope="module")
def other(shared: Any) -> Browser:
    return signed_in(shared)


def untouched(app: Any) -> bool:
    return bool(app.show()["state"] == "open")


def test_there_are_forms_to_look_at() -> None:
    assert len(POSTS) >= 8 and len(GETS) >= 10
    assert all(route.path.startswith("/operator") for route in POSTS + GETS)


@pytest.mark.parametrize("path", paths(GETS))
def test_who_has_not_signed_in_is_led_to_the_way_in(shared: Any, path: str) -> None:
    answer = Browser(shared).get(path)
    assert (answer.status_code, answer.headers["location"]) == (303, "/operator")


@pytest.mark.parametrize("path", paths(POSTS))
class TestRefused:
    def test_without_a_session(self, shared: Any, path: str) -> None:
        assert Browser(shared).post_raw(path, {"form-secret": "x"}).status_code == 403 and untouched(shared)

    def test_with_a_bearer_token_instead(self, shared: Any, path: str) -> None:
        answer = Browser(shared).post_raw(path, {}, authorization=f"Bearer {shared.token}")
        assert answer.status_code == 403 and untouched(shared)

    def test_with_a_cookie_and_no_secret(self, browser: Browser, path: str) -> None:
        for fields in ({"count": "1"}, {"form-secret": ""}, {"form-secret": "x" * 43}):
            assert browser.post_raw(path, fields).status_code == 403
        assert untouched(browser.app)

    def test_with_the_secret_of_another_session(self, browser: Browser, other: Browser, path: str) -> None:
        assert browser.post_raw(path, {"form-secret": other.secret()}).status_code == 403 and untouched(browser.app)

    @pytest.mark.parametrize(
        "headers",
        [
            {"origin": "https://evil.example"},
            {"origin": "null"},
            {"origin": "https://127.0.0.1"},
            {"origin": "http://127.0.0.1.evil.example"},
            {"origin": "http://127.0.0.1:1"},
            {"sec_fetch_site": "cross-site"},
            {"sec_fetch_site": "same-site"},
            {"origin": "", "sec_fetch_site": ""},
            {"origin": "", "sec_fetch_site": "none"},
        ],
        ids=str,
    )
    def test_from_elsewhere(self, browser: Browser, path: str, headers: dict[str, str]) -> None:
        answer = browser.post(path, {}, **headers)
        assert answer.status_code == 403 and untouched(browser.app)

    def test_under_another_name(self, browser: Browser, path: str) -> None:
        answer = browser.post(path, {}, host="evil.example", origin="http://evil.example")
        assert answer.status_code == 400 and untouched(browser.app)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.methods[0]} {route.path}")
def test_a_foreign_host_gets_nothing_by_any_method(shared: Any, route: Any) -> None:
    for method in {*route.methods, "OPTIONS", "PUT", "DELETE"}:
        assert shared.send(method, path_of(route.path), headers={"host": "evil.example"}).status_code == 400


@pytest.mark.parametrize("route", [route for route in ROUTES if route.who not in ("anyone", "session")], ids=str)
def test_a_cookie_opens_no_route_of_the_api(browser: Browser, route: Any) -> None:
    for method in route.methods:
        headers = {"cookie": browser.cookie, "accept": "application/json"} | browser.own
        answer = browser.app.send(method, path_of(route.path), headers=headers, json={} if method != "GET" else None)
        assert answer.status_code == 401, (method, route.path, answer.status_code)


@pytest.mark.parametrize("method", ["POST", "DELETE", "PATCH", "PUT"])
@pytest.mark.parametrize("site", [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}])
@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/tasks/walk", "/v1/devices/me", "/operator/sign-in", "/"])
def test_another_site_changes_nothing(shared: Any, method: str, site: dict[str, str], path: str) -> None:
    headers = {"authorization": f"Bearer {shared.token}"} | site
    assert shared.send(method, path, headers=headers).status_code == 403


@pytest.mark.parametrize("path", ["/operator/new-task", "/operator/new-task/file", "/operator/sign-in"])
def test_a_huge_form_is_refused_by_its_headers(on_socket: Any, path: str) -> None:
    browser = signed_in(on_socket)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{on_socket.port}\r\nOrigin: {on_socket.address}\r\n"
    head += f"Cookie: {browser.cookie}\r\nAccept: text/html\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    ((status, _, said),) = on_socket.raw(f"{head}Content-Length: {LARGEST_FORM + 1}\r\n\r\n".encode())
    assert status == 413
    assert path == SIGN_IN or b"<h1>This is not possible</h1>" in said, "somebody who chose a wrong file gets a page"
    (chunked, *_) = on_socket.raw(f"{head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".encode())
    assert chunked[0] == 411


def test_nothing_of_a_strangers_form_is_read(on_socket: Any) -> None:
    head = f"POST /operator/new-task HTTP/1.1\r\nHost: 127.0.0.1:{on_socket.port}\r\nOrigin: {on_socket.address}\r\n"
    # Not one byte of the body follows, and the answer does not wait for it.
    with on_socket.connect() as link:
        link.sendall(f"{head}Accept: text/html\r\nContent-Length: 3000000\r\n\r\n".encode())
        assert link.recv(64).startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/json", "multipart/form-data", "multipart/mixed; boundary=x"]
)
def test_what_is_no_form_is_refused(browser: Browser, kind: str) -> None:
    headers = HTML | browser.own | {"cookie": browser.cookie, "content-type": kind}
    answer = browser.app.send("POST", "/operator/sign-out", headers=headers, content=b"form-secret=x")
    assert answer.status_code == 415 and "Your tasks" in browser.get("/operator").text


def test_a_slow_form_holds_nothing(hasty: Any) -> None:
    browser = signed_in(hasty)
    head = f"POST /operator/sign-out HTTP/1.1\r\nHost: 127.0.0.1:{hasty.port}\r\nOrigin: {hasty.address}\r\n"
    head += f"Cookie: {browser.cookie}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 60\r\n\r\n"
    answers = hasty.raw(f"{head}form".encode())
    assert [status for status, _, _ in answers] in ([408], [])
    assert "Your tasks" in browser.get("/operator").text
