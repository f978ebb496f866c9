"""All devices come back at once after a restart: they are served or told when to come again, and nothing else.

`benchmarks/fronts/sessions.py` does the same with 5,000, and says how long it took.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path

from crowdml.server.http.bounded_connection import ConnectionLimits
from tests.support.crowd import receipts
from tests.support.server import TASK as WALK
from tests.support.server import Server
from tests.support.sessions import come_back, honest_body, peak_memory, prepare

SESSIONS = 400
TASK = WALK.replace("statistics-epsilon = 1.0\n", "")
"""Without counts: a check-in can then be made by hand."""
WAITING = 20


def test_all_are_served_after_a_restart_or_told_when_to_come(tmp_path: Path) -> None:
    tokens, body = prepare(tmp_path, TASK, SESSIONS), honest_body(TASK)
    server = Server(tmp_path)
    try:
        server.kill()
        server.start()
        outcome = asyncio.run(come_back(server.port, "walk", tokens, body))
        stored = receipts(server.database, "walk")
        memory = peak_memory(server.process.pid)
    finally:
        server.kill()
    assert not outcome.other, "only success, or 503 with Retry-After"
    assert outcome.served == len({row["slot"] for row in stored}) == len(stored) == SESSIONS
    assert memory < 1 << 30


def test_what_came_in_time_is_answered_however_late_it_is_read(tmp_path: Path) -> None:
    """A server that stood still beyond its deadlines reads what came meanwhile, before it ends connections by them."""
    (token,) = prepare(tmp_path, TASK, 1)
    request = f"GET /v1/tasks/walk/check-out HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
    server = Server(tmp_path)
    with ExitStack() as stack:
        stack.callback(server.kill)
        links = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 30)) for _ in range(WAITING)]
        end = time.monotonic() + 30
        while not {link.getsockname()[1] for link in links} <= _accepted(server.port):
            assert time.monotonic() < end, "they are not accepted"
            time.sleep(0.01)
        server.process.send_signal(signal.SIGSTOP)
        for link in links:
            link.sendall(request.encode())
        time.sleep(ConnectionLimits().deadline_s + 1.0)
        server.process.send_signal(signal.SIGCONT)
        assert [link.recv(12) for link in links] == [b"HTTP/1.1 200"] * WAITING


def _accepted(port: int) -> set[int]:
    """Return the ports of peers whose connections a process has accepted: until then they belong to no file."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[2][-4:], 16) for row in rows if int(row[1][-4:], 16) == port and row[9] != "0"}
