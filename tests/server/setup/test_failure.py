"""A store that fails: nobody is told that something is stored, and the process ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from crowdml.server.store import StoreConflict, StoreFailed

FAILING = """
from crowdml.server.store import Store, StoreFailed

def fail(self, applied):
    raise StoreFailed("the disk is full of secret-path")

Store.apply = fail
from crowdml.cli import main
main()
"""


def failing(error: BaseException) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("error", [StoreFailed("disk"), StoreConflict("fence"), OSError(28, "no space"), MemoryError()])
@pytest.mark.parametrize("call", ["apply", "receipts_for"])
def test_whoever_waits_is_refused_and_the_server_is_told_to_end(
    app: Any, refused: Any, call: str, error: BaseException
) -> None:
    device, shown, before = app.device(), app.show(), app.stored()
    body, whole = device.body(0), getattr(app.store, call)
    setattr(app.store, call, failing(error))
    answer = device.check_in(body)
    refused(answer, 503, "failed")
    assert answer.headers["retry-after"] == "5" and app.failures == [error]
    assert app.show() | {"devices": 1} == shown | {"devices": 1} and app.stored() == before
    setattr(app.store, call, whole)
    refused(device.check_in(body), 503, "busy")
    assert app.send("GET", "/healthz").status_code == 503, "and it does not pretend to be well"
    assert app.stored() == before


def test_all_that_wait_behind_are_refused_too(app: Any, make_gate: Any, refused: Any) -> None:
    devices = [app.device() for _ in range(5)]
    body, before, gate = devices[0].body(0), app.stored(), make_gate(app)
    gate._apply = failing(StoreFailed("disk"))
    asked = [app.begin_check_in(devices[0], body)]
    assert gate.reached.wait(20)
    asked += [app.begin_check_in(device, body) for device in devices[1:]]
    app.await_waiting(4)
    gate.open.set()
    for future in asked:
        refused(future.result(20), 503, "failed")
    assert len(app.failures) == 1 and app.stored() == before


def test_what_is_being_stored_is_not_told_before_it_is(app: Any, make_gate: Any) -> None:
    device, watcher = app.device(), app.device()
    shown, out, body, gate = app.show(), watcher.check_out(), device.body(0), make_gate(app)
    asked = app.begin_check_in(device, body)
    assert gate.reached.wait(20)
    assert app.show() == shown and app.send("GET", "/v1/tasks").json()["tasks"][0]["check_ins"] == 0
    again = watcher.check_out()
    assert (again.content, again.headers["etag"]) == (out.content, out.headers["etag"])
    assert 'crowdml_version{task="walk"} 0' in app.send("GET", "/metrics").text
    gate.open.set()
    assert asked.result(20).json()["version"] == app.show()["version"] == 1


def test_nobody_is_invited_to_a_round_whose_parameters_are_not_stored(app: Any, make_gate: Any) -> None:
    task = app.fresh("algorithm={ kind = 'fedsgd', per-round = 1 }")
    devices = [app.device(task) for _ in range(8)]
    invited = [device for device in devices if device.check_out().status_code == 200]
    assert len(invited) == 1
    body, gate = invited[0].body(0), make_gate(app)
    asked = app.begin_check_in(invited[0], body)
    assert gate.reached.wait(20)
    # The next round would begin with parameters that nobody can have yet; a check-in from the old ones would be lost.
    assert [device.check_out().status_code for device in devices if device is not invited[0]] == [204] * 7
    assert invited[0].check_out().headers["crowdml-version"] == "0", "its check-in is not stored, so nothing moved"
    gate.open.set()
    assert asked.result(20).json()["version"] == 1
    assert [
        device.check_out().headers["crowdml-version"] for device in devices if device.check_out().status_code == 200
    ] == ["1"]


def test_a_store_that_cannot_be_read_ends_the_server_as_well(app: Any, refused: Any) -> None:
    device, error = app.device(), StoreFailed("disk")
    app.store.receipts = failing(error)
    refused(app.send("GET", "/v1/devices/me/receipts", headers=device.bearer), 503, "failed")
    assert app.failures == [error]


@pytest.mark.parametrize("what", ["revoke", "withdraw", "use_invite", "set_state"])
def test_other_work_that_fails_ends_the_server_as_well(app: Any, refused: Any, what: str) -> None:
    device, (link,), error = app.device(), app.invites(), StoreFailed("disk")
    before = app.stored()
    setattr(app.store, what, failing(error))
    asked = {
        "revoke": lambda: app.as_operator("DELETE", f"/v1/tasks/walk/devices/{device.id}"),
        "withdraw": lambda: app.send("DELETE", "/v1/devices/me", headers=device.bearer),
        "use_invite": lambda: app.enrol(link, device.key),
        "set_state": lambda: app.move("paused"),
    }
    refused(asked[what](), 503, "failed")
    assert app.failures == [error] and app.stored() == before


def test_a_mistake_of_ours_is_answered_in_the_one_shape(app: Any, refused: Any) -> None:
    app.store.points = failing(ZeroDivisionError("secret-detail"))
    app.session._transport.raise_app_exceptions = False
    answer = app.send("GET", "/v1/tasks/walk/curve")
    refused(answer, 500, "internal")
    assert "secret" not in answer.text


def test_the_process_ends_with_70_and_has_acknowledged_nothing(make_process: Any, refused: Any) -> None:
    process = make_process("home", FAILING)
    process.create()
    device = process.device()
    body = device.body(0)
    refused(device.check_in(body, "key-number-1"), 503, "failed")
    assert process.process.wait(20) == 70
    log = process.log.read_text()
    assert "the store failed" in log and "StoreFailed" in log
    assert device.token not in log and "key-number-1" not in log
    device.server = again = make_process("home")
    assert again.show()["check_ins"] == 0 and again.stored()["receipts"] == []
    assert "again" not in device.check_in(body, "key-number-1").json()
