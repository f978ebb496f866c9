"""Limits: the pace of callers, by a clock that a test moves."""

from __future__ import annotations

from typing import Any

import pytest

from crowdml.server.http import requests
from crowdml.server.http.requests import Limiter, Pace
from crowdml.server.refusals import Refusal
from crowdml.server.setup.application import Access
from crowdml.server.tasks import coordinator
from crowdml.server.tasks.coordinator import Options


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_is_allowed_and_then_so_many_a_second() -> None:
    clock = Clock()
    limiter = Limiter(Pace(per_second=2.0, burst=3), clock)
    assert [limiter.wait("a") for _ in range(5)] == [0.0, 0.0, 0.0, 0.5, 0.5]
    clock.now = 0.5
    assert [limiter.wait("a"), limiter.wait("a")] == [0.0, 0.5]
    clock.now = 1000.0
    assert [limiter.wait("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5], "a bucket never holds more than a burst"


def test_front_ends_that_share_a_pace_allow_no_more_than_it_together() -> None:
    now = [0.0]
    whole = Pace(per_second=6.0, burst=9)
    several = [Limiter(whole, clock=lambda: now[0]) for _ in range(3)]
    for limiter in several:
        limiter.share(3)

    def allowed() -> int:
        return sum(limiter.wait("a") == 0.0 for limiter in several for _ in range(20))

    assert allowed() == 9
    now[0] = 1.0
    assert allowed() == 6
    now[0] = 2.0
    for limiter in several[1:]:
        assert limiter.wait("a") == 0.0
    several[0].share(1)  # the others are gone
    now[0] = 3.0
    assert sum(several[0].wait("a") == 0.0 for _ in range(20)) >= 6


def test_callers_do_not_share_a_bucket() -> None:
    limiter = Limiter(Pace(per_second=1.0, burst=1), Clock())
    assert [limiter.wait(caller) for caller in "abab"] == [0.0, 0.0, 1.0, 1.0]


def test_a_refusal_says_when_to_come_back() -> None:
    limiter = Limiter(Pace(per_second=0.4, burst=1), Clock())
    limiter.require("a")
    with pytest.raises(Refusal) as caught:
        limiter.require("a")
    assert (caught.value.status, caught.value.code, caught.value.retry_after_s) == (429, "too-fast", 3)


def test_so_many_callers_are_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LARGEST_TABLE", 3)
    limiter = Limiter(Pace(per_second=1e-9, burst=1), Clock())
    for caller in "abca":
        limiter.wait(caller)
    limiter.wait("d")  # b was not seen for longest
    assert limiter.wait("a") > 0 and limiter.wait("b") == 0.0


def test_a_device_that_is_too_fast_is_told_so_on_every_route(make_app: Any, refused: Any) -> None:
    app = make_app(access=Access(device_pace=Pace(per_second=1e-6, burst=4)))
    app.create()
    device, other = app.device(), app.device()
    body = device.body(0)
    assert device.check_out().status_code == device.check_in(body).status_code == 200
    assert device.me()["check_ins"] == 1 and device.receipts()
    before = app.stored()
    for ask in (device.check_out, lambda: device.check_in(body)):
        refused(ask(), 429, "too-fast")
    for path in ("/v1/devices/me", "/v1/devices/me/receipts", "/v1/tasks/walk/model"):
        refused(app.send("GET", path, headers=device.bearer), 429, "too-fast")
    refused(app.send("DELETE", "/v1/devices/me", headers=device.bearer), 429, "too-fast")
    assert app.stored() == before
    assert other.check_in(body).status_code == 200, "others are not"


def test_strangers_who_guess_tokens_are_slowed_down_and_devices_beside_them_are_not(
    make_app: Any, refused: Any
) -> None:
    app = make_app(access=Access(stranger_pace=Pace(per_second=1e-6, burst=3)))
    app.create()
    device = app.device()  # its enrolment took one
    stranger = {"authorization": "Bearer guess"}
    paths = ("/v1/tasks/walk/check-out", "/v1/devices/me", "/v1/tasks/walk/devices", "/v1/tasks/walk/check-out")
    answers = [app.send("GET", path, headers=stranger) for path in paths]
    assert [answer.status_code for answer in answers] == [401, 401, 429, 429]
    refused(answers[-1], 429, "too-fast")
    (link,) = app.invites()
    refused(app.enrol(link, device.key), 429, "too-fast")
    assert device.check_in().status_code == 200 and app.as_operator("GET", "/v1/tasks/walk/devices").status_code == 200


@pytest.mark.parametrize("options", [Options(capacity=2), Options(room=300)], ids=["by count", "by bytes"])
def test_a_full_queue_refuses_and_says_when_to_come_back(
    make_app: Any, make_gate: Any, refused: Any, monkeypatch: pytest.MonkeyPatch, options: Options
) -> None:
    monkeypatch.setattr(coordinator, "size_in_memory", lambda running: 100)
    app = make_app(options=options)
    app.create()
    devices = [app.device() for _ in range(4)]
    body, gate = devices[0].body(0), make_gate(app)
    asked = [app.begin_check_in(devices[0], body)]
    assert gate.reached.wait(20)
    asked += [app.begin_check_in(device, body) for device in devices[1:3]]
    app.await_waiting(2)
    answer = devices[3].check_in(body)
    refused(answer, 503, "busy")
    assert answer.headers["retry-after"] == "1"
    gate.open.set()
    assert [future.result(20).status_code for future in asked] == [200, 200, 200]
    # There is room again, for as many as before.
    assert devices[3].check_in(body).status_code == 200
