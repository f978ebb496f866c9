"""`crowdml serve` as a process that a test may kill."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from crowdml.server.setup.serving import TOKEN_FILE
from tests.support.served import WAIT_S, Served


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
