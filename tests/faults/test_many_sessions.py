"""All devices come back at once after a restart: they are served or told when to come again, and nothing else.

`benchmarks/fronts/sessions.py` does the same with 5,000, and says how long it took.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.crowd import receipts
from tests.support.own_loop import run_apart
from tests.support.server import TASK as WALK
from tests.support.server import Server
from tests.support.sessions import come_back, honest_body, peak_memory, prepare

SESSIONS = 400
TASK = WALK.replace("statistics-epsilon = 1.0\n", "")
"""Without counts: a check-in can then be made by hand."""


def test_all_are_served_after_a_restart_or_told_when_to_come(tmp_path: Path) -> None:
    tokens, body = prepare(tmp_path, TASK, SESSIONS), honest_body(TASK)
    server = Server(tmp_path)
    try:
        server.kill()
        server.start()
        outcome = run_apart(lambda: come_back(server.port, "walk", tokens, body))
        stored = receipts(server.database, "walk")
        memory = peak_memory(server.process.pid)
    finally:
        server.kill()
    assert not outcome.other, "only success, or 503 with Retry-After"
    assert outcome.served == len({row["slot"] for row in stored}) == len(stored) == SESSIONS
    assert memory < 1 << 30
