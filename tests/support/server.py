"""A real server in a process of its own, for tests that kill it."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crowdml.wire.signed_task import write_arrays
from tests.support.ports import free_port

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
    """A server process that can be killed and started again at the same port.

    Args:
        folder: Its home.
        options: Of `crowdml serve`.
        ca: Who vouches for its certificate.
        before: A command that runs the server's own, such as `prlimit` or `env`.
    """

    def __init__(self, folder: Path, *options: str, ca: Path | None = None, before: Sequence[str] = ()) -> None:
        self.before = before
        self.context = ssl.create_default_context(cafile=ca) if ca else None
        self.folder, self.options, self.port, self.opened = folder, options, free_port(), 0
        self.start()

    def start(self) -> None:
        named = self.folder / "server.address"
        named.unlink(missing_ok=True)
        command = [*self.before, *RUN, "serve", "--home", str(self.folder), "--port", str(self.port), *self.options]
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

    @property
    def database(self) -> str:
        """Address of its database."""
        if "--db" in self.options:
            return self.options[self.options.index("--db") + 1]
        return f"sqlite:///{self.folder}/crowdml.sqlite"

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

    def open(self, *changes: tuple[str, str], public: dict[str, Any] | None = None) -> None:
        """Make a task of its own, with pieces of its file replaced; `task` is its name.

        Args:
            changes: What is replaced, and by what.
            public: Labelled rows for the server, as the model sees them.
        """
        self.opened += 1
        self.task = f"walk-{self.opened}"
        text = TASK
        for old, new in (('"walk"', f'"{self.task}"'), *changes):
            assert old in text
            text = text.replace(old, new)
        self.ask("/v1/tasks", {"file": text} | ({"public": write_arrays([public])[0]} if public else {}))

    def invite(self) -> str:
        made: list[str] = self.ask(f"/v1/tasks/{self.task}/invites", {"count": 1})["invites"]
        return made[0]
