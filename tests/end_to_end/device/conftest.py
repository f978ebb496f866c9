"""A real server in a process of its own, and devices that are processes too."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.server import RUN, Server


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
    for server in made:
        server.kill()


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
