"""A server in a process of its own, as an operator starts it."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SERVING = re.compile(r"^serving (\S+) ", re.M)


@dataclasses.dataclass(frozen=True)
class Running:
    """A server that answers: its address, its folder, and what it said when it began."""

    address: str
    home: Path
    said: str
    process: subprocess.Popen[str]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


def begin(process: subprocess.Popen[str], home: Path) -> Running:
    said = ""
    assert process.stderr is not None
    for line in process.stderr:
        said += line
        found = SERVING.match(line)
        if found:
            return Running(address=found[1], home=home, said=said, process=process)
    raise AssertionError(f"the server ended with {process.wait()}:\n{said}")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start `crowdml serve` with the given options, on any free port; it is stopped at the end."""
    started: list[subprocess.Popen[str]] = []

    def run(*options: str, home: str = "server") -> Running:
        folder = tmp_path / home
        command = [sys.executable, "-m", "crowdml", "serve", "--home", str(folder), "--port", "0", *options]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ))
        return begin(started[-1], folder)

    yield run
    for process in started:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


@pytest.fixture
def type_crowdml(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Run a command in this process; return its exit code and all it prints."""

    def run(*arguments: str) -> tuple[int, str]:
        from crowdml.cli import main

        printed = io.StringIO()
        monkeypatch.setattr(sys, "argv", ["crowdml", *arguments])
        code = 0
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                main()
            except SystemExit as end:
                code = int(end.code or 0)
        return code, printed.getvalue()

    return run
