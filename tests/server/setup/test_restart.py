"""A restart, asked for or not: what was acknowledged is there, and tasks go on as if nothing had happened."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from crowdml.core import BadInput

WINDOW = (
    "name=window",
    "algorithm={ kind = 'local-sgd', local-steps = 1, local-batch = 2, server-batch = 3, stale = 'accept' }",
)
ROUNDS = ("name=rounds", "algorithm={ kind = 'fedsgd', per-round = 2 }")
TASKS = ("walk", "window", "rounds")


class Scenario:
    """Three kinds of task with two devices each; each step is one check-in of every device."""

    def __init__(self, server: Any) -> None:
        self.server, self.sent = server, 0
        server.create()
        server.create(*WINDOW)
        server.create(*ROUNDS)
        self.devices = [server.device(task) for task in TASKS for _ in range(2)]

    def move(self, server: Any) -> None:
        """Go on with another server."""
        self.server = server
        for device in self.devices:
            device.server = server

    def step(self, count: int | None = None) -> list[dict[str, Any]]:
        """Check in; what is sent follows from the number of the step alone."""
        receipts = []
        for device in self.devices[:count]:
            self.sent += 1
            version = self.server.show(device.task)["version"]
            assert device.check_out().status_code == 200
            answer = device.check_in(device.body(version, seed=self.sent), f"key-number-{self.sent}")
            assert answer.status_code == 200, answer.text
            receipts.append(answer.json())
        return receipts

    def seen(self) -> Any:
        """Return everything that can be seen from outside."""
        tasks = {task: self.server.show(task) for task in TASKS}
        curves = [self.server.send("GET", f"/v1/tasks/{task}/curve").json() for task in TASKS]
        outs = [device.check_out() for device in self.devices]
        entries = [(device.me(), device.receipts()) for device in self.devices]
        listed = [self.server.as_operator("GET", f"/v1/tasks/{task}/devices").json() for task in TASKS]
        return tasks, curves, [(out.status_code, out.headers.get("etag"), out.content) for out in outs], entries, listed


def test_a_server_that_was_stopped_or_killed_goes_on_exactly_where_it_was(make_process: Any, make_app: Any) -> None:
    scenario = Scenario(make_process())
    scenario.step()
    before, stored = scenario.seen(), scenario.server.stored()
    assert scenario.server.show("window")["check_ins"] == 2 and scenario.server.show("window")["version"] == 0
    assert scenario.server.end(signal.SIGTERM) == 0
    scenario.move(make_process())
    assert scenario.seen() == before and scenario.server.stored() == stored

    scenario.step()
    before, stored = scenario.seen(), scenario.server.stored()
    assert scenario.server.end(signal.SIGKILL) == -signal.SIGKILL
    scenario.move(make_process())
    assert scenario.seen() == before and scenario.server.stored() == stored
    scenario.step()

    control = Scenario(make_app("control"))
    for _ in range(3):
        control.step()
    assert scenario.server.stored()["states"] == control.server.stored()["states"], "the window went on, bit by bit"
    assert scenario.server.stored()["device_rows"] == control.server.stored()["device_rows"]
    assert scenario.server.show("window")["version"] == 2 and scenario.server.show("rounds")["version"] == 3


def test_tokens_invites_and_states_survive(make_app: Any, refused: Any) -> None:
    app = make_app()
    app.create()
    device, gone, left = (app.device() for _ in range(3))
    unused, body = app.invites(2), device.body(0)
    app.as_operator("DELETE", f"/v1/tasks/walk/devices/{gone.id}")
    app.send("DELETE", "/v1/devices/me", headers=left.bearer)
    app.move("paused")
    app.close()
    again = make_app()
    for each in (device, gone, left):
        each.server = again
    assert again.token == app.token and again.show()["state"] == "paused"
    refused(device.check_in(body), 503, "paused")
    refused(gone.check_in(body), 401)
    refused(left.check_in(body), 401)
    again.move("open")
    assert device.check_in(body).status_code == 200
    assert again.enrol(unused[0], gone.key).status_code == 409, "a revoked key does not come back"
    made = again.enrol(unused[1], left.key)
    assert made.status_code == 201 and made.json()["slot"] == 3, "no slot is given twice"


def test_limits_of_releases_and_rounds_survive(make_app: Any, refused: Any) -> None:
    app = make_app()
    app.create("stop.max-releases=1")
    app.create(*ROUNDS)
    device, in_round = app.device(), app.device("rounds")
    assert device.check_in().status_code == in_round.check_in().status_code == 200
    app.close()
    device.server = in_round.server = make_app()
    refused(device.check_in(), 409, "releases-spent")
    refused(in_round.check_in(), 409, "already-in-round")
    assert in_round.check_out().status_code == 204


def test_a_second_server_cannot_open_the_same_store(make_app: Any, app: Any) -> None:
    with pytest.raises(BadInput, match="another server has"):
        make_app()
    assert app.device().check_in().status_code == 200


def test_requests_under_way_are_finished_before_the_server_ends(make_app: Any, make_gate: Any) -> None:
    app = make_app()
    app.create()
    device = app.device()
    body, gate = device.body(0), make_gate(app)
    asked = app.begin_check_in(device, body)
    assert gate.reached.wait(20)
    gate.open.set()
    app.close()
    assert asked.result(20).status_code == 200
    again = make_app()
    assert again.show()["check_ins"] == 1
