"""Servers to be tested hard: without a socket, on a socket in this process, and as a process of its own."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from crowdml.server.http.bounded_connection import ConnectionLimits, bounded
from crowdml.task import parse
from crowdml.task.live_task import LiveTask, assemble
from tests.support.application import Application, Gate, Makes
from tests.support.on_socket import Hasty, OnSocket
from tests.support.process import Process
from tests.support.served import TASK, honest


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
        assert headers["crowdml-protocol"] == "2"
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
