"""Servers to be tested hard: without a socket, on a socket in this process, and as a process of its own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import queue
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvloop

from crowdml.algorithms import parse
from crowdml.algorithms.live import LiveTask, assemble, open_task
from crowdml.core import Batch
from crowdml.device import DeviceCoins
from crowdml.protocol import SignedSheet, message
from crowdml.protocol.check_in_key import check_in_key
from crowdml.protocol.joining import InviteLink, sign_enrolment
from crowdml.protocol.keys import SigningKey
from crowdml.server.app import Access, create_app
from crowdml.server.connection import BoundedProtocol, ConnectionLimits, bounded
from crowdml.server.coordinator import Options
from crowdml.server.limits import Pace
from crowdml.server.serving import TOKEN_FILE, Place, bind, make_server, require_identity
from crowdml.server.store import Applied, open_store

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
FAST = Pace(per_second=1e6, burst=1_000_000)
OPEN = Access(device_pace=FAST, stranger_pace=FAST)
"""Nobody is too fast, so that a test meets the answer it asks for."""

WAIT_S = 20.0


def honest(live: LiveTask, version: int, seed: int = 0, rows: int = 4) -> bytes:
    """Make the check-in of a device that follows the rules."""
    draws = np.random.default_rng(seed)
    size = max(live.algorithm.batch, live.algorithm.rounds.multiple if live.algorithm.rounds else 1)
    mask = (np.arange(size) < rows).astype(np.float32)
    features = draws.uniform(-1, 1, (size, live.task.features)).astype(np.float32)
    labels = draws.integers(0, len(live.task.data.labels), size).astype(np.int32)
    broadcast = live.messages.check_out.example["content"]
    algorithm, coins = live.algorithm, DeviceCoins()
    batch = Batch(rows=features * mask[:, None], labels=labels, mask=mask)
    release, _ = algorithm.device_step(broadcast, algorithm.device_init(), batch, coins)
    return live.messages.check_in.encode(message(version, algorithm.sanitise(release, coins)))


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
        return open_task(SignedSheet.from_json(self.show(task)["signed_sheet"]).open())

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
        signature = sign_enrolment(key, link.task, link.code, link.sheet)
        parts = {"key": base64url(key.public), "signature": base64url(signature)}
        return {"invite": link.code, "sheet": link.sheet} | parts

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


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def begin(self, work: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Any) -> Any:
        return self.begin(work).result(WAIT_S)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WAIT_S)
        self.loop.close()


class Application(Served):
    """The application without a socket, and its store, in this process."""

    address = "http://127.0.0.1"

    def __init__(self, home: Path, access: Access = OPEN, options: Options = Options()) -> None:  # noqa: B008
        self.home, self.failures = home, list[BaseException]()
        self.store = open_store(f"sqlite:///{home / 'crowdml.sqlite'}")
        require_identity(self.store, home)
        self.token = (home / TOKEN_FILE).read_text().strip()
        self.app = create_app(self.store, options, access, self.failures.append)
        self.thread = Loop()
        self._begin()

    def _begin(self) -> None:
        self._to_app: asyncio.Queue[Any] = asyncio.Queue()
        self._from_app: queue.Queue[Any] = queue.Queue()

        async def told(event: Any) -> None:
            self._from_app.put(event)

        scope = {"type": "lifespan", "asgi": {"version": "3.0"}}
        self._life = self.thread.begin(self.app(scope, self._to_app.get, told))
        self._tell("startup")
        transport = httpx.ASGITransport(self.app)
        self.session = httpx.AsyncClient(base_url=self.address, transport=transport)

    def _tell(self, what: str) -> None:
        self.thread.begin(self._to_app.put({"type": f"lifespan.{what}"}))
        answer = self._from_app.get(timeout=WAIT_S)
        assert answer["type"] == f"lifespan.{what}.complete", answer

    def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        answer: httpx.Response = self.thread.run(self.session.request(method, path, **more))
        return answer

    def begin(self, method: str, path: str, **more: Any) -> Future[Any]:
        """Send a request without waiting for its answer: a future."""
        return self.thread.begin(self.session.request(method, path, **more))

    def waiting(self, task: str = "walk") -> int:
        """How many check-ins wait for the writer of a task."""
        lines = self.send("GET", "/metrics").text.splitlines()
        (line,) = (own for own in lines if own.startswith(f'crowdml_waiting{{task="{task}"'))
        return int(line.split()[-1])

    def await_waiting(self, number: int) -> None:
        give_up = time.monotonic() + WAIT_S
        while self.waiting() != number:
            assert time.monotonic() < give_up
            time.sleep(0.002)

    def begin_check_in(self, device: Member, body: bytes) -> Future[Any]:
        return self.begin("POST", f"/v1/tasks/{device.task}/check-ins", headers=device.headers(), content=body)

    def close(self) -> None:
        if not self._life.done():
            self._tell("shutdown")
            self._life.result(WAIT_S)
        self.thread.close()


class Gate:
    """Lets a store write only when it is told to."""

    def __init__(self, app: Application) -> None:
        self._apply, self.open, self.reached = app.store.apply, threading.Event(), threading.Event()
        app.store.apply = self  # type: ignore[method-assign]

    def __call__(self, applied: Applied) -> None:
        self.reached.set()
        assert self.open.wait(WAIT_S)
        self._apply(applied)


class OnSocket(Application):
    """The application on a socket, in this process."""

    protocol: type[BoundedProtocol] = BoundedProtocol

    def _begin(self) -> None:
        place = Place(port=0)
        listening = bind(place)
        self.port = listening.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.server = make_server(self.app, place, self.protocol)
        self._life = self.thread.begin(self.server.serve([listening]))
        self.plain = httpx.Client(base_url=self.address, timeout=WAIT_S)

    def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.plain.request(method, path, **more)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), WAIT_S)

    def raw(self, *parts: bytes) -> list[tuple[int, dict[str, str], bytes]]:
        """Send bytes as they are; return the answers that come back until the connection is closed."""
        with self.connect() as link:
            with contextlib.suppress(ConnectionError):
                for part in parts:
                    link.sendall(part)
            return parse_answers(read_all(link))

    def close(self) -> None:
        self.plain.close()
        self.server.should_exit = True
        self._life.result(WAIT_S)
        self.thread.close()


def read_all(link: socket.socket) -> bytes:
    """Read until the other side closes."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := link.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def parse_answers(raw: bytes) -> list[tuple[int, dict[str, str], bytes]]:
    """Take answers apart: status, headers, body."""
    found = []
    while raw:
        head, _, rest = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = int(headers.get("content-length", "0"))
        found.append((int(first.split()[1]), headers, rest[:size]))
        raw = rest[size:]
    return found


class Process(Served):
    """`crowdml serve` as a process of its own.

    Args:
        home: The server's folder; a second process on it continues where the first was.
        program: What Python runs instead of the command line.
    """

    def __init__(self, home: Path, program: str | None = None, *options: str) -> None:
        self.home = home
        home.mkdir(exist_ok=True)
        (home / "server.address").unlink(missing_ok=True)
        what = ["-c", program] if program else ["-m", "crowdml"]
        command = [sys.executable, *what, "serve", "--home", str(home), "--port", "0", *options]
        self.log = home / "log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        # Written when the socket listens; whoever connects is served as soon as tasks are taken up.
        self.address = self._first_line(home / "server.address")
        self.token = (home / TOKEN_FILE).read_text().strip()
        self.session = httpx.Client(base_url=self.address, timeout=WAIT_S)

    def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.session.request(method, path, **more)

    def _first_line(self, path: Path) -> str:
        give_up = time.monotonic() + 3 * WAIT_S
        while not (path.exists() and path.read_text().endswith("\n")):
            assert self.process.poll() is None and time.monotonic() < give_up, self.log.read_text()
            time.sleep(0.01)
        return path.read_text().strip()

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.session.close()
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(WAIT_S)


class Makes:
    """Makes applications in a folder; one with the same name continues where the one before was."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made = folder, list[Application]()

    def __call__(self, name: str = "home", kind: type[Application] = Application, **options: Any) -> Application:
        home = self._folder / name
        home.mkdir(exist_ok=True)
        self._made.append(kind(home, **options))
        return self._made[-1]

    def close(self) -> None:
        for application in self._made:
            if not application.thread.loop.is_closed():
                application.close()


@pytest.fixture
def make_app(tmp_path: Path) -> Iterator[Makes]:
    """Make applications."""
    with contextlib.closing(Makes(tmp_path)) as make:
        yield make


@pytest.fixture
def app(make_app: Makes) -> Application:
    """An application with one task, `walk`."""
    made = make_app()
    made.create()
    return made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """An application for all tests of a module, for whoever changes nothing or makes a task of its own."""
    with contextlib.closing(Makes(tmp_path_factory.mktemp("shared"))) as make:
        made = make()
        made.create()
        yield made


class Hasty(OnSocket):
    """On a socket, with deadlines that a test can wait for."""

    protocol = bounded(
        ConnectionLimits(deadline_s=0.3, bytes_per_second=100, linger_s=0.2, stall_s=0.3, connections=60)
    )


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """One on a socket, for all tests of a module."""
    with contextlib.closing(Makes(tmp_path_factory.mktemp("hasty"))) as make:
        made = make(kind=Hasty)
        made.create()
        yield made


@pytest.fixture
def make_limited(make_app: Makes) -> Callable[..., Application]:
    """Make one on a socket with limits of its own."""

    def make(**limits: int) -> Application:
        protocol = bounded(ConnectionLimits(**limits))
        return make_app(kind=type("Limited", (OnSocket,), {"protocol": protocol}))

    return make


@pytest.fixture
def on_socket(make_app: Makes) -> Application:
    """One on a socket, with the usual deadlines."""
    made = make_app(kind=OnSocket)
    made.create()
    return made


@pytest.fixture
def make_process(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start server processes."""
    made: list[Process] = []

    def make(name: str = "home", program: str | None = None, *options: str) -> Process:
        made.append(Process(tmp_path / name, program, *options))
        return made[-1]

    yield make
    for process in made:
        process.end(signal.SIGKILL)


@pytest.fixture
def make_gate() -> type[Gate]:
    """Hold an application's store."""
    return Gate


@pytest.fixture
def make_live() -> Callable[..., LiveTask]:
    """Build a task without a server; changes are given as for --set."""
    return lambda *changes: assemble(parse(TASK, "walk.toml", changes), [])


@pytest.fixture
def make_body() -> Callable[..., bytes]:
    """Make honest check-ins without a server."""
    return honest


@pytest.fixture
def refused() -> Callable[..., dict[str, Any]]:
    """Check that an answer is a refusal in the one shape; return what it says."""

    def check(answer: Any, status: int, code: str | None = None) -> dict[str, Any]:
        got, headers, body = (
            (answer.status_code, answer.headers, answer.content) if isinstance(answer, httpx.Response) else answer
        )
        assert got == status, (got, body)
        assert headers["content-type"] == "application/json"
        assert headers["crowdml-protocol"] == "1"
        return check_error(body, code)

    return check


def check_error(body: bytes, code: str | None = None) -> dict[str, Any]:
    content = json.loads(body)
    assert list(content) == ["error"], content
    error = content["error"]
    assert isinstance(error["message"], str) and error["message"], error
    assert isinstance(error.get("hint", ""), str), error
    assert code is None or error["code"] == code, error
    return dict(error)
