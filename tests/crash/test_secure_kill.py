"""A server that is killed during the last attempt at a secure sum: whoever goes on knows that attempts are spent."""

from __future__ import annotations

import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.support.process import Process
from tests.support.served import WAIT_S
from tests.support.sum_takers import FILE, Taker, exchange, masked


class Threaded(Process):
    """A server process that is asked for several things at once."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._threads = ThreadPoolExecutor(8)

    def begin(self, method: str, path: str, **more: Any) -> Future[Any]:
        return self._threads.submit(self.send, method, path, **more)


def begun(home: Path, attempts: int) -> tuple[Threaded, list[Taker]]:
    """Start a server, and a sum of four."""
    server = Threaded(home)
    assert server.as_operator("POST", "/v1/tasks", {"file": f"{FILE}attempts = {attempts}\n"}).status_code == 201
    crowd = [Taker(server) for _ in range(4)]
    for taker in crowd:
        taker.begin()
    return server, crowd


def wait_for_state(server: Process, state: str) -> dict[str, Any]:
    end = time.monotonic() + WAIT_S
    while (shown := server.show("walk"))["state"] != state:
        assert time.monotonic() < end, shown
        time.sleep(0.01)
    return shown


def test_a_task_whose_last_attempt_was_cut_off_is_paused_by_whoever_goes_on(tmp_path: Path) -> None:
    server, crowd = begun(tmp_path / "home", attempts=1)
    uploads = masked(crowd)
    # One vector has arrived, the others are on their way: their devices have counted them.
    crowd[0].post("masked", uploads[0])
    while "masked" not in crowd[0].look()["stage"]:
        pass
    server.end(signal.SIGKILL)
    again = Threaded(tmp_path / "home")
    try:
        shown = wait_for_state(again, "paused")
        assert "the sum of version 0 was given up" in shown["reason"] and "started anew" in shown["reason"]
    finally:
        again.end(signal.SIGKILL)


def test_a_task_with_an_attempt_left_goes_on(tmp_path: Path) -> None:
    server, crowd = begun(tmp_path / "home", attempts=2)
    exchange(crowd)
    server.end(signal.SIGKILL)
    again = Threaded(tmp_path / "home")
    try:
        for taker in crowd:
            taker.server = taker.member.server = again
            taker.begin()
        exchange(crowd)
        assert again.show("walk")["state"] == "open"
        again.end(signal.SIGKILL)
        last = Threaded(tmp_path / "home")
        try:
            wait_for_state(last, "paused")
        finally:
            last.end(signal.SIGKILL)
    finally:
        again.end(signal.SIGKILL)


def test_a_task_that_was_cut_off_before_vectors_were_asked_for_has_spent_nothing(tmp_path: Path) -> None:
    server, crowd = begun(tmp_path / "home", attempts=1)
    crowd[0].post("hello", crowd[0].machine.hello().to_bytes())
    while not crowd[1].look()["members"]:
        pass
    server.end(signal.SIGKILL)
    again = Threaded(tmp_path / "home")
    try:
        for taker in crowd:
            taker.server = taker.member.server = again
            taker.begin()
        exchange(crowd)
        assert again.show("walk")["state"] == "open"
    finally:
        again.end(signal.SIGKILL)
