"""A server in this process that speaks the protocol, learns for real, and fails when it is told to."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import save

from crowdml.algorithms import ServerPart
from crowdml.core import trees
from crowdml.core.keys import SigningKey, fingerprint
from crowdml.core.ops import ZeroCoins
from crowdml.device import Device
from crowdml.device.server_connection import Backoff, Connection
from crowdml.task import parse
from crowdml.task.live_task import definition_of, open_task
from crowdml.wire import TaskDocument, sign_task
from crowdml.wire.join_link import InviteLink, make_code
from crowdml.wire.signed_task import Restored

TASK = """
crowdml = 1
name = "walk"
objective = "Tell walking from standing"
[data]
features = 3
labels = ["standing", "walking"]
transform = [{ kind = "norm", order = 1, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
batch = 4
buffer = 6
rate = { kind = "inverse-sqrt", c = 10.0 }
[privacy]
mode = "sound"
epsilon = 6.0
max-uses = 3
owner-range = [1.0, 6.0]
statistics-epsilon = 0.6
[stop]
max-releases = 50
[crowd]
passes = 3
"""

SPOKEN = {"Crowdml-Protocol": "2"}
Fault = Callable[[httpx.Request], httpx.Response | None]


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now, self.slept = 0.0, list[float]()

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class FakeServer:
    """One task. `faults` are asked in turn about each request for a check-in: None lets it pass."""

    address = "http://127.0.0.1:9"

    def __init__(self, *changes: str) -> None:
        self.task = parse(TASK, "walk.toml", changes)
        self.key = SigningKey.make()
        self.clock = Clock()
        self.faults: deque[Fault] = deque()
        self.requests: list[httpx.Request] = []
        self.sent: list[tuple[str, str]] = []
        self.receipts: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
        self.invites: dict[str, bytes | None] = {}
        self.devices: dict[str, int] = {}
        self.state, self.mirror = "open", 0
        self.incarnate(1)
        self.server = self.part.init(ZeroCoins())
        self.version = self.received = 0

    @property
    def part(self) -> ServerPart:
        """What the server does with check-ins; all tasks here have one phase."""
        return self.live.algorithm.last.server

    def incarnate(
        self, number: int, restored: Restored | None = None, key: SigningKey | None = None, **definition: Any
    ) -> None:
        """Sign the task in that incarnation."""
        made = definition_of(self.task) | definition
        document = TaskDocument(
            task=self.task.name, incarnation=number, definition=made, arrays=({},), restored=restored
        )
        self.signed, self.live, self.incarnation = sign_task(document, key or self.key), open_task(document), number

    def restore(self, number: int, version: int, receipts: int) -> None:
        """Go back as `crowdml restore` does, and say so."""
        self.incarnate(number, Restored(after=number - 1, version=version))
        self.version, self.devices["token-0"] = version, receipts

    def invite(self) -> str:
        code = make_code()
        self.invites[code] = None
        link = InviteLink(
            server=self.address,
            task=self.task.name,
            code=code,
            key=fingerprint(self.key.public),
            task_hash=self.signed.hash,
        )
        return link.to_url()

    @property
    def connect(self) -> Callable[..., Connection]:
        # No jitter: a wait is as long as it may be.
        backoff = Backoff(uniform=lambda _low, high: high)
        return partial(
            Connection,
            transport=httpx.MockTransport(lambda request: unread(self.handle(request))),
            clock=self.clock,
            sleep=self.clock.sleep,
            backoff=backoff,
        )

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        task, method, path = f"/v1/tasks/{self.task.name}", request.method, request.url.path
        if (method, path) == ("GET", task):
            return answer(200, {"signed_task": self.signed.to_json(), "version": self.version})
        if (method, path) == ("POST", f"{task}/devices"):
            return self.enrol(json.loads(request.content))
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.devices:
            return refusal(401, "not-authorised")
        if (method, path) == ("POST", f"{task}/check-ins"):
            fault = self.faults.popleft() if self.faults else None
            return (fault and fault(request)) or self.check_in(token, request)
        if (method, path) == ("GET", f"{task}/check-out"):
            return self.check_out(request)
        if (method, path) == ("GET", f"{task}/model"):
            leaves = dict(trees.paths(self.part.report(self.server).parameters))
            return httpx.Response(200, headers=SPOKEN, content=save(leaves, metadata={"version": str(self.version)}))
        if (method, path) == ("GET", "/v1/devices/me/receipts"):
            found = [
                {"key": key, "body": body} for (sender, key), (body, _) in self.receipts.items() if sender == token
            ]
            return answer(200, {"receipts": found, "next": None})
        if method == "DELETE":
            del self.devices[token]
            return httpx.Response(204)
        count = self.devices[token]
        return answer(200, {"check_ins": count, "task_hash": self.signed.hash, "state": self.state})

    def enrol(self, content: dict[str, str]) -> httpx.Response:
        code, key = content["invite"], content["key"].encode()
        if code not in self.invites:
            return refusal(404, "no-invite")
        if self.invites[code] not in (None, key):
            return refusal(409, "invite-used")
        again = self.invites[code] is not None
        self.invites[code] = key
        token = f"token-{len(self.devices)}"
        self.devices[token] = 0
        made = {"device": f"device-{code[:4]}", "token": token, "slot": 0, "task_hash": self.signed.hash}
        return answer(200 if again else 201, made)

    def check_out(self, request: httpx.Request) -> httpx.Response:
        if self.state != "open":
            return refusal(410, "closed") if self.state == "stopped" else self.not_now()
        etag = f'"{self.incarnation}-{self.version}"'
        headers = {"ETag": etag, "Crowdml-Version": str(self.version), "Crowdml-Task-Hash": self.signed.hash}
        if request.headers.get("if-none-match") == etag:
            return httpx.Response(304, headers=headers)
        content = {"content": self.part.check_out(self.server), "version": np.int64(self.version)}
        return httpx.Response(200, headers=headers, content=self.live.messages.check_out.encode(content))

    def not_now(self) -> httpx.Response:
        self.state = "open"
        return httpx.Response(204, headers={"Retry-After": "7"})

    def check_in(self, token: str, request: httpx.Request) -> httpx.Response:
        key, digest = request.headers["idempotency-key"], hashlib.sha256(request.content).hexdigest()
        self.sent.append((key, digest))
        known = self.receipts.get((token, key))
        if known is not None:
            return answer(200, known[1] | {"again": True}) if known[0] == digest else refusal(422, "other-bytes")
        message = self.live.messages.check_in.decode(request.content)
        stale = np.int32(self.version - message["version"])
        self.server, _ = self.part.absorb(self.server, self.part.row(), message["content"], stale)
        self.received += 1
        if self.received % self.live.algorithm.schedule.cohort == 0:
            self.server, _ = self.part.commit(self.server)
            self.version += 1
        self.devices[token] += 1
        receipt = {
            "status": "applied",
            "task": self.task.name,
            "key": key,
            "number": self.devices[token],
            "version": self.version,
            "task_hash": self.signed.hash,
        }
        self.receipts[token, key] = digest, receipt
        return answer(200, receipt)


def unread(response: httpx.Response) -> httpx.Response:
    """As it comes over a wire: nobody has read it yet."""
    body = httpx.ByteStream(response.content)
    return httpx.Response(response.status_code, headers=response.headers, stream=body)


def answer(status: int, content: Any) -> httpx.Response:
    return httpx.Response(status, headers={"Crowdml-Protocol": "2"}, json=content)


def refusal(status: int, code: str, headers: dict[str, str] | None = None, **extra: Any) -> httpx.Response:
    error = {"error": {"code": code, "message": f"no: {code}"} | extra}
    return httpx.Response(status, headers={"Crowdml-Protocol": "2"} | (headers or {}), json=error)


@pytest.fixture
def make_server() -> Callable[..., FakeServer]:
    """Make a server; changes of its task are given as for --set."""
    return FakeServer


@pytest.fixture
def answers() -> Any:
    """The two ways in which a fault may answer."""

    class Answers:
        ok = staticmethod(answer)
        refusal = staticmethod(refusal)

        @staticmethod
        def lost(_request: httpx.Request) -> httpx.Response:
            raise httpx.ReadError("cut")

    return Answers


@pytest.fixture
def rows() -> list[tuple[list[float], str]]:
    """Eight rows of two kinds."""
    return [([0.1 * n, 0.5, -0.2], "walking" if n % 2 else "standing") for n in range(8)]


@pytest.fixture
def join(tmp_path: Path) -> Callable[..., Path]:
    """Join a server's task and return the device's folder."""

    def run(server: FakeServer, name: str = "home", url: str | None = None, **options: Any) -> Path:
        place = tmp_path / name
        options = {"accept": lambda offer: True, "accept_no_guarantee": lambda offer: True} | options
        Device.join(url or server.invite(), place, connect=server.connect, **options)
        return place

    return run
