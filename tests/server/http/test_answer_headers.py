"""Headers of every answer, methods and addresses that are refused, and where a request may come from."""

from __future__ import annotations

from typing import Any

import pytest

from crowdml.server.setup.application import Access

HOST = b"Host: 127.0.0.1\r\n"
PATHS = ("/", "/v1/tasks", "/v1/tasks/walk", "/v1/tasks/none", "/metrics", "/healthz", "/openapi.json", "/nowhere")
STATIC = ("/static/pages.css", "/static/task.js")


def test_no_answer_is_sniffed(shared: Any) -> None:
    device = shared.device(shared.fresh())
    answers = [shared.send("GET", path) for path in (*PATHS, *STATIC)]
    answers += [
        device.check_out(),
        device.check_in(),
        device.check_in(b""),
        shared.as_operator("POST", "/v1/tasks", {}),
    ]
    assert [answer.url.path for answer in answers if answer.headers.get("x-content-type-options") != "nosniff"] == []


def test_what_is_not_http_is_not_sniffed_either(hasty: Any) -> None:
    (answer,) = hasty.raw(b"GET / HTTP/1.1\r\nX: " + b"a" * 40_000 + b"\r\n\r\n")
    assert answer[0] == 431 and answer[1]["x-content-type-options"] == "nosniff"


def test_nobody_stores_an_answer_with_a_token_or_for_one(shared: Any) -> None:
    task = shared.fresh()
    (link,) = shared.invites(1, task)
    device = shared.device(task)
    answers = {
        "join": shared.enrol(link, device.key.make()),
        "invites": shared.as_operator("POST", f"/v1/tasks/{task}/invites", {"count": 1}),
        "devices": shared.as_operator("GET", f"/v1/tasks/{task}/devices"),
        "me": shared.send("GET", "/v1/devices/me", headers=device.bearer),
        "receipts": shared.send("GET", "/v1/devices/me/receipts", headers=device.bearer),
        "model": shared.send("GET", f"/v1/tasks/{task}/model", headers=device.bearer),
        "receipt": device.check_in(),
        "refusal": device.check_in(b""),
        "no token": shared.send("GET", "/v1/devices/me"),
    }
    assert {name for name, answer in answers.items() if answer.headers.get("cache-control") != "no-store"} == set()
    assert answers["join"].status_code == 201 and "token" in answers["join"].json()
    assert device.check_out().headers["cache-control"] == "private, no-cache"


@pytest.mark.parametrize("seconds", [0, 3600])
def test_browsers_are_told_to_stay_with_tls_where_there_is_some(make_app: Any, seconds: int) -> None:
    app = make_app(access=Access(secure_s=seconds))
    app.create()
    device = app.device()
    answers = [app.send("GET", path) for path in ("/", "/healthz", "/v1/tasks")] + [device.check_out()]
    answers.append(app.send("GET", "/", headers={"host": "evil.example"}))
    expected = f"max-age={seconds}" if seconds else None
    assert {answer.headers.get("strict-transport-security") for answer in answers} == {expected}


@pytest.mark.parametrize(
    ("scheme", "origin", "allowed"),
    [
        (None, "http://127.0.0.1", True),
        (None, "https://127.0.0.1", False),
        ("https", "https://127.0.0.1", True),
        ("https", "http://127.0.0.1", False),
        ("https", "https://127.0.0.1.evil.example", False),
        (None, "null", False),
        (None, "127.0.0.1", False),
    ],
)
def test_a_page_of_the_same_name_but_another_scheme_is_another_page(
    make_app: Any, refused: Any, scheme: str | None, origin: str, allowed: bool
) -> None:
    app = make_app(access=Access(scheme=scheme))
    answer = app.as_operator("POST", "/v1/tasks", {"file": ""}, origin=origin)
    refused(answer, *((422, "bad-input") if allowed else (403, "origin")))
    assert app.send("GET", "/v1/tasks", headers={"origin": origin}).status_code == 200, "reading changes nothing"


@pytest.mark.parametrize("method", ["TRACE", "TRACK", "PROPFIND"])
@pytest.mark.parametrize(
    "path", ["/", "/static/task.js", "/v1/tasks/walk/check-out", "/healthz", "/v1/tasks/walk/sums"]
)
def test_methods_that_nobody_needs_are_refused(shared: Any, refused: Any, method: str, path: str) -> None:
    refused(shared.send(method, path), 405, "method")


def test_trace_sends_nothing_back(hasty: Any, refused: Any) -> None:
    (answer, *more) = hasty.raw(
        b"TRACE / HTTP/1.1\r\n" + HOST + b"Authorization: Bearer secret\r\nConnection: close\r\n\r\n"
    )
    refused(answer, 405, "method")
    assert not more and b"secret" not in answer[2]


@pytest.mark.parametrize("form", [b"http://evil.example/healthz", b"http://127.0.0.1/healthz", b"*", b"https://a:443/"])
@pytest.mark.parametrize("method", [b"GET", b"OPTIONS", b"POST"])
def test_a_whole_address_is_refused(hasty: Any, refused: Any, form: bytes, method: bytes) -> None:
    answers = hasty.raw(method + b" " + form + b" HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\n\r\n")
    assert len(answers) == 1
    refused(answers[0], 400)


RANGES = ["bytes=0-9", "bytes=999999-", "bytes=9-0", "bytes=-0", "banana", "bytes=", "lines=1-2", "bytes=0-1,3-4"]


@pytest.mark.parametrize("wanted", RANGES)
@pytest.mark.parametrize("path", [*STATIC, "/v1/tasks", "/openapi.json"])
def test_a_range_is_ignored_and_never_answered_in_another_shape(
    shared: Any, refused: Any, wanted: str, path: str
) -> None:
    answer, whole = shared.send("GET", path, headers={"range": wanted}), shared.send("GET", path)
    assert (answer.status_code, answer.content) == (200, whole.content)


def test_static_files_are_answered_from_memory_and_known_by_a_tag(shared: Any, refused: Any) -> None:
    first = shared.send("GET", "/static/pages.css")
    assert first.headers["content-type"] == "text/css; charset=utf-8"
    again = shared.send("GET", "/static/pages.css", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304 and again.content == b""
    refused(shared.send("POST", "/static/pages.css"), 405, "method")
    for name in ("", "none.css", "../pages.py", "%2e%2e/pages.py", "..%2fpages.py", "pages.css/"):
        refused(shared.send("GET", f"/static/{name}"), 404, "not-found")
