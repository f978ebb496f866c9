"""The settled snapshot: while a batch is being stored, no route shows anything of it."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

import crowdml.server
from crowdml.server.refusals import Answer, Refusal
from crowdml.server.setup.framework import describe
from crowdml.server.tasks.mutable_task import MutableTask
from crowdml.server.tasks.running_task import RunningTask
from crowdml.server.tasks.snapshot import TaskState

PAGES = ("/", "/tasks/{task}", "/join/{task}")
NOT_STATE = re.compile(r"^crowdml_(check_outs|check_ins|waiting)\S* .*\n?", re.M)
"""Counters of requests, and the queue: they are about this process, not about what is stored."""


def read_routes() -> list[str]:
    """Every route that can be read, as the server describes itself: a new one is tested by being there."""
    found = [path for path, methods in describe()["paths"].items() if "get" in methods]
    return sorted({*found, *PAGES} - OTHERS - _stages(found))


OTHERS = {f"/v1/tasks/{{task}}/{name}" for name in ("events", "sums", "groups", "relay")} | {
    "/healthz",
    "/v1/tasks/{task}/invites/{code_hash}",
}
"""Routes of tasks that this one is not, and those that show nothing of what a task learns."""


def _stages(paths: list[str]) -> set[str]:
    return {path for path in paths if path.startswith("/v1/tasks/{task}/sums/")}


def read_all(app: Any, device: Any) -> dict[str, Any]:
    """Ask every route, as a device or as the operator, and return what it shows."""
    shown = {}
    for route in read_routes():
        path = route.format(task=device.task)
        answers = [app.send("GET", path, headers=device.bearer), app.as_operator("GET", path)]
        told = [content_of(path, answer) for answer in answers]
        assert {200, 204, 410} & {answer.status_code for answer in answers}, route
        etags = [answer.headers.get("etag") for answer in answers]
        shown[route] = ([answer.status_code for answer in answers], told, etags)
    return shown


def content_of(path: str, answer: Any) -> Any:
    if path == "/metrics":
        return NOT_STATE.sub("", answer.text)
    if path.endswith("/model") and answer.status_code == 200:
        # The order of names in the metadata is any.
        size = int.from_bytes(answer.content[:8], "little")
        return json.loads(answer.content[8 : 8 + size]), answer.content[8 + size :]
    return answer.content


def event(app: Any, task: str) -> dict[str, Any]:
    """What a stream of events would say first."""
    coordinator = app.app._coordinator
    return dict(coordinator.tasks[task].summary())


TASKS = {
    "every check-in makes a version": (),
    "rounds": ("algorithm={ kind = 'fedsgd', per-round = 2 }",),
    "the last version": ("stop={ max-versions = 2 }",),
}


@pytest.mark.parametrize("kind", TASKS)
def test_no_route_shows_what_is_not_stored(app: Any, make_gate: Any, kind: str) -> None:
    task = app.fresh(*TASKS[kind])
    device, other = app.device(task), app.device(task)
    other.check_out()
    device.check_out()
    assert other.check_in(other.body(0, seed=5)).status_code == 200
    device.check_out()
    body = device.body(app.show(task)["version"], seed=3)
    before, told, gate = read_all(app, device), event(app, task), make_gate(app)
    asked = app.begin_check_in(device, body)
    assert gate.reached.wait(20)
    during = read_all(app, device)
    assert [route for route in before if before[route] != during[route]] == []
    assert event(app, task) == told
    gate.open.set()
    assert asked.result(20).status_code == 200
    after = read_all(app, device)
    moved = {route for route in before if before[route] != after[route]}
    assert {"/v1/tasks", "/v1/tasks/{task}", "/v1/devices/me", "/v1/tasks/{task}/devices", "/"} <= moved
    assert "/v1/tasks/{task}/model" in moved and "/v1/devices/me/receipts" in moved


def test_a_device_that_withdraws_is_shown_until_that_is_stored(app: Any) -> None:
    device = app.device()
    shown: list[int] = []
    withdraw = app.store.withdraw

    def watched(name: str) -> bool:
        shown.append(app.app._coordinator.tasks["walk"].summary()["devices"])
        return bool(withdraw(name))

    app.store.withdraw = watched
    assert app.send("DELETE", "/v1/devices/me", headers=device.bearer).status_code == 204
    assert shown == [1] and app.show()["devices"] == 0


def test_readers_have_no_way_to_the_state_that_changes(app: Any) -> None:
    running = app.app._coordinator.tasks["walk"]
    assert type(running) is RunningTask
    seen, todo = set[int](), [running, running.snapshot]
    while todo:
        thing = todo.pop()
        assert not isinstance(thing, TaskState | MutableTask), "a reader could see what is not stored"
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        todo += list(vars(thing).values()) if type(thing).__module__.startswith("crowdml.server") else []
        todo += list(thing.values()) if isinstance(thing, dict) else []


def test_a_snapshot_cannot_be_written_to(app: Any) -> None:
    now = app.app._coordinator.tasks["walk"].snapshot
    with pytest.raises(TypeError):
        now.devices[0] = None
    (leaf, *_) = [now.published.parameters] if isinstance(now.published.parameters, np.ndarray) else _leaves(now)
    with pytest.raises(ValueError, match="read-only"):
        leaf[...] = 1


def _leaves(now: Any) -> list[Any]:
    from crowdml.core import trees

    return list(trees.leaves(now.published.parameters))


def test_work_that_is_refused_leaves_nothing_behind(app: Any) -> None:
    device = app.device()
    before = event(app, "walk")

    def work(task: MutableTask) -> Answer:
        task.state.version += 1
        task.state.check_ins += 1
        task.state.devices.clear()
        raise Refusal(409, "conflict", "stored already")

    writer = app.app._coordinator.writers["walk"]
    assert app.thread.run(writer.submit(work)).status == 409
    assert app.move("paused").json()["version"] == 0, "a later snapshot has nothing of it either"
    assert event(app, "walk") == before | {"state": "paused"}
    app.move("open")
    assert device.check_in().json()["number"] == 1


def test_the_state_is_imported_by_the_writer_and_what_it_runs_alone() -> None:
    import ast
    from pathlib import Path

    assert crowdml.server.__file__ is not None
    folder = Path(crowdml.server.__file__).parent
    users = {
        path.name
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and {"TaskState", "MutableTask"} & {name.name for name in node.names}
    }
    assert users == {
        "mutable_task.py",
        "folding.py",
        "task_writer.py",
        "coordinator.py",
        "enrolment.py",
        "secure_rounds.py",
        "slice_seats.py",
    }
