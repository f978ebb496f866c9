"""A real server in a process of its own, and devices that are processes too."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

RUN = [sys.executable, "-c", "from crowdml.cli import main; main()"]

TASK = """
crowdml = 1
name = "walk"
objective = "Tell walking from standing"
[data]
features = 3
labels = ["standing", "walking"]
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
batch = 10
rate = { kind = "inverse-sqrt", c = 10.0 }
[privacy]
mode = "sound"
mechanism = "gaussian"
clip = 1.0
epsilon = 20.0
delta = 1e-6
max-uses = 40
statistics-epsilon = 1.0
[stop]
max-releases = 400
[crowd]
passes = 40
"""

START_S = 60.0


class Server:
    """A server process that can be killed and started again at the same port."""

    def __init__(self, folder: Path, *options: str, ca: Path | None = None) -> None:
        self.context = ssl.create_default_context(cafile=ca) if ca else None
        self.folder, self.options, self.port, self.opened = folder, options, 0, 0
        self.start()

    def start(self) -> None:
        named = self.folder / "server.address"
        named.unlink(missing_ok=True)
        command = [*RUN, "serve", "--home", str(self.folder), "--port", str(self.port), *self.options]
        with open(self.folder / "server.log", "ab") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log)
        end = time.monotonic() + START_S
        while not self._answers(named):
            assert self.process.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < end, "the server does not start"
            time.sleep(0.05)

    def _answers(self, named: Path) -> bool:
        text = named.read_text() if named.exists() else ""
        if not text.endswith("\n"):
            return False
        self.address = text.strip()
        self.port = int(self.address.rpartition(":")[2])
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        return json.loads(self.fetch(path, body, method) or b"null")

    def fetch(self, path: str, body: Any = None, method: str | None = None) -> bytes:
        token = (self.folder / "operator.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, content, headers, method=method)  # noqa: S310  loopback
        with urllib.request.urlopen(request, timeout=30, context=self.context) as response:  # noqa: S310  loopback
            answer: bytes = response.read()
            return answer

    def open(self, *changes: tuple[str, str]) -> None:
        """Make a task of its own, with pieces of its file replaced; `task` is its name."""
        self.opened += 1
        self.task = f"walk-{self.opened}"
        text = TASK
        for old, new in (('"walk"', f'"{self.task}"'), *changes):
            assert old in text
            text = text.replace(old, new)
        self.ask("/v1/tasks", {"file": text})

    def invite(self) -> str:
        made: list[str] = self.ask(f"/v1/tasks/{self.task}/invites", {"count": 1})["invites"]
        return made[0]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("server"))
    yield made
    made.kill()


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Make a server of one's own."""
    made: list[Server] = []

    def make(*options: str, ca: Path | None = None) -> Server:
        (tmp_path / "server").mkdir()
        made.append(Server(tmp_path / "server", *options, ca=ca))
        return made[-1]

    yield make
    for own in made:
        own.kill()


@dataclasses.dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def crowdml(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run a command to its end, in this process: a new one would take a second to start."""
    from crowdml.cli import main

    def run(*arguments: str, stdin: str = "") -> Ran:
        printed, errors, code = io.StringIO(), io.StringIO(), 0
        monkeypatch.setattr(sys, "argv", ["crowdml", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
                main()
        except SystemExit as end:
            code = int(end.code or 0)
        return Ran(returncode=code, stdout=printed.getvalue(), stderr=errors.getvalue())

    return run


@pytest.fixture
def begin() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a command and go on."""
    begun: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            [*RUN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        begun.append(process)
        return process

    yield run
    for process in begun:
        process.kill()
        process.communicate()


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Forty rows that a line can separate."""
    generator = np.random.default_rng(3)
    labels = np.arange(40) % 2
    values = generator.normal(size=(40, 3)) * 0.3 + np.where(labels, 0.8, -0.8)[:, None]
    np.savez(tmp_path / "rows.npz", rows=values, labels=labels)
    return tmp_path / "rows.npz"
