"""A server without open files (EMFILE) answers whom it can, goes on when there are some again, and loses nothing."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from tests.support.crowd import check, finish, gather, wait_for
from tests.support.server import Server

FILES = 96
DEVICES = 4
REACHED_S = 60.0


class Strangers(threading.Thread):
    """Connections that say nothing, from many addresses; new ones take the place of those that the server ends."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port, self._open, self._leave = port, deque[socket.socket](), threading.Event()

    def run(self) -> None:
        number = 0
        while not self._leave.is_set():
            number += 1
            with suppress(OSError):
                source = f"127.0.0.{2 + number % 200}"
                link = socket.create_connection(("127.0.0.1", self._port), 1.0, source_address=(source, 0))
                self._open.append(link)
            if len(self._open) > 3 * FILES:
                self._open.popleft().close()
                time.sleep(0.005)

    def leave(self) -> None:
        self._leave.set()
        self.join()
        for link in self._open:
            link.close()


def test_a_server_without_files_goes_on_and_loses_nothing(server: Server, tmp_path: Path) -> None:
    crowd = gather(server, tmp_path, DEVICES)
    wait_for(crowd, 2 * DEVICES)
    files = Path(f"/proc/{server.process.pid}/fd")
    strangers = Strangers(server.port)
    strangers.start()
    try:
        end = time.monotonic() + REACHED_S
        while len(os.listdir(files)) < FILES - 1:  # uvloop keeps one in reserve, to tell those it cannot take
            assert time.monotonic() < end, "the files last"
            time.sleep(0.001)
        # Whoever is connected is served on.
        wait_for(crowd, 2 * DEVICES)
    finally:
        strangers.leave()
    wait_for(crowd, 2 * DEVICES)
    server.invite()
    finish(crowd)
    check(server, crowd, least=6 * DEVICES)
    assert server.process.poll() is None, "the same process, all the time"
