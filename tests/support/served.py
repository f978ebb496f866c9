"""Everything a test may ask of a server, wherever it runs: tasks, invites, enrolled devices."""

from __future__ import annotations

import base64
import contextlib
import itertools
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from crowdml.core import Batch
from crowdml.core.keys import SigningKey
from crowdml.device import DeviceCoins
from crowdml.task.live_task import LiveTask, open_task
from crowdml.wire import SignedTask, message
from crowdml.wire.join_link import InviteLink, sign_enrolment
from crowdml.wire.messages import check_in_key

TASK = """
crowdml = 1
name = "walk"
objective = "Tell walking from standing"
[data]
features = 3
labels = ["standing", "walking"]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
batch = 4
buffer = 6
rate = { kind = "inverse-sqrt", c = 10.0 }
[privacy]
mode = "none"
"""

WAIT_S = 60.0
"""When to give up: longer than anything takes on a machine that is busy with much else."""


def honest(live: LiveTask, version: int, seed: int = 0, rows: int = 4) -> bytes:
    """Make the check-in of a device that follows the rules."""
    draws = np.random.default_rng(seed)
    size = live.algorithm.schedule.batch
    mask = (np.arange(size) < rows).astype(np.float32)
    features = draws.uniform(-1, 1, (size, live.task.features)).astype(np.float32)
    labels = draws.integers(0, len(live.task.data.labels), size).astype(np.int32)
    broadcast = live.messages.check_out.example["content"]
    phase = live.algorithm.last
    batch = Batch(rows=features * mask[:, None], targets=labels, mask=mask)
    check_in, _ = phase.contribute(broadcast, phase.begin(), batch, DeviceCoins())
    return live.messages.check_in.encode(message(version, check_in))


class Member:
    """An enrolled device."""

    def __init__(self, server: Served, link: InviteLink, key: SigningKey, answer: dict[str, Any]) -> None:
        self.server, self.link, self.key = server, link, key
        self.task, self.id, self.token, self.slot = link.task, answer["device"], answer["token"], answer["slot"]
        self.live = server.live(link.task)

    @property
    def bearer(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}

    def check_out(self, **headers: str) -> httpx.Response:
        return self.server.send("GET", f"/v1/tasks/{self.task}/check-out", headers=self.bearer | headers)

    def body(self, version: int | None = None, seed: int = 0, rows: int = 4) -> bytes:
        """Make an honest check-in; from the present version unless told otherwise."""
        return honest(self.live, self.server.show(self.task)["version"] if version is None else version, seed, rows)

    def headers(self, key: str | None = None) -> dict[str, str]:
        made = {"content-type": "application/octet-stream", "idempotency-key": key or check_in_key(0)}
        return self.bearer | made

    def check_in(self, body: bytes | None = None, key: str | None = None, **headers: str) -> httpx.Response:
        """Check in; names of headers are given with underscores."""
        given = self.headers(key) | {name.replace("_", "-"): value for name, value in headers.items()}
        content = self.body() if body is None else body
        return self.server.send("POST", f"/v1/tasks/{self.task}/check-ins", headers=given, content=content)

    def me(self) -> dict[str, Any]:
        return dict(self.server.send("GET", "/v1/devices/me", headers=self.bearer).json())

    def receipts(self) -> list[dict[str, Any]]:
        return list(self.server.send("GET", "/v1/devices/me/receipts", headers=self.bearer).json()["receipts"])


class Served:
    """A server, and everything a test may ask of it."""

    token: str
    home: Path
    file = TASK
    _numbers = itertools.count(1)

    def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        raise NotImplementedError

    def as_operator(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        given = {"authorization": f"Bearer {self.token}"} | headers
        return (
            self.send(method, path, headers=given, json=body)
            if body is not None
            else self.send(method, path, headers=given)
        )

    def create(self, *changes: str, file: str = TASK, draft: bool = False) -> dict[str, Any]:
        made = self.as_operator("POST", "/v1/tasks", {"file": file, "changes": list(changes), "draft": draft})
        assert made.status_code == 201, made.text
        return dict(made.json())

    def fresh(self, *changes: str, **more: Any) -> str:
        """Make a task with a name of its own."""
        name = f"task-{next(self._numbers)}"
        self.create(f"name={name}", *changes, **more)
        return name

    def show(self, task: str = "walk") -> dict[str, Any]:
        found = self.send("GET", f"/v1/tasks/{task}")
        assert found.status_code == 200, found.text
        return dict(found.json())

    def live(self, task: str = "walk") -> LiveTask:
        return open_task(SignedTask.from_json(self.show(task)["signed_task"]).open())

    def move(self, state: str, task: str = "walk") -> httpx.Response:
        return self.as_operator("PATCH", f"/v1/tasks/{task}", {"state": state})

    def invites(self, count: int = 1, task: str = "walk") -> list[InviteLink]:
        made = self.as_operator("POST", f"/v1/tasks/{task}/invites", {"count": count})
        assert made.status_code == 201, made.text
        return [InviteLink.parse(url) for url in made.json()["invites"]]

    def enrol(self, link: InviteLink, key: SigningKey) -> httpx.Response:
        return self.send("POST", f"/v1/tasks/{link.task}/devices", json=self.enrolment(link, key))

    @staticmethod
    def enrolment(link: InviteLink, key: SigningKey) -> dict[str, str]:
        """Write what a device sends to join."""
        signature = sign_enrolment(key, link.task, link.code, link.task_hash)
        parts = {"key": base64url(key.public), "signature": base64url(signature)}
        return {"invite": link.code, "task_hash": link.task_hash} | parts

    def device(self, task: str = "walk") -> Member:
        (link,), key = self.invites(1, task), SigningKey.make()
        made = self.enrol(link, key)
        assert made.status_code == 201, made.text
        return Member(self, link, key, made.json())

    def stored(self) -> dict[str, list[Any]]:
        """Return every row of the database: what is equal before and after was not changed."""
        with contextlib.closing(sqlite3.connect(f"file:{self.home / 'crowdml.sqlite'}?mode=ro", uri=True)) as database:
            names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {name: sorted(database.execute(f"SELECT * FROM {name}"), key=repr) for name in names}  # noqa: S608


def base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
