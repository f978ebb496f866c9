"""Whoever takes over: nobody trusts its predecessor any more, and what nobody waits for is not done."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from crowdml.server.fronts.letters import write_event
from crowdml.server.fronts.post import ALL, OPEN
from tests.support.process import Process
from tests.support.served import WAIT_S

pytestmark = pytest.mark.postgres

LETTER = "INSERT INTO crowdml_inbox (front, kind, number, task, content) VALUES (%s, %s, 1, 0, %s)"
ANSWER = "INSERT INTO crowdml_outbox (front, number, content) VALUES (%s, 1, %s)"
LEFT = "SELECT (SELECT count(*) FROM crowdml_inbox), (SELECT count(*) FROM crowdml_outbox)"


def stop(task: str, token: str) -> bytes:
    """What a front end passes on of an operator who stops a task, which is for good."""
    body = json.dumps({"state": "stopped"}).encode()
    headers = [
        (b"host", b"localhost"),
        (b"authorization", b"Bearer " + token.encode()),
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
    ]
    return write_event(
        {
            "type": "http",
            "method": "PATCH",
            "path": f"/v1/tasks/{task}",
            "query_string": "",
            "scheme": "http",
            "http_version": "1.1",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "body": body,
        }
    )


def test_what_was_asked_before_all_ended_is_not_done_by_whoever_starts_next(postgres: Any, tmp_path: Path) -> None:
    """Days may have passed, and whoever asked was told by 503 that nobody knows whether it was done."""
    database = postgres.database()
    server = Process(tmp_path / "one", None, "--db", database)
    first, second = server.fresh(), server.fresh()
    with psycopg.connect(database, autocommit=True) as connection:
        (gone,) = connection.execute("SELECT nextval('crowdml_fronts')").fetchone()  # type: ignore[misc]
        # The control: while somebody aggregates, such a letter does what it says.
        connection.execute(LETTER, (gone, OPEN, stop(first, server.token)))
        until(lambda: server.show(first)["state"] == "stopped")
        assert server.end() == 0
        connection.execute(LETTER, (gone, OPEN, stop(second, server.token)))
        connection.execute(ANSWER, (gone, b"a new token"))
        again = Process(tmp_path / "one", None, "--db", database)
        try:
            # Whatever lay there would come before this, in the task's own queue.
            assert again.move("paused", second).json().get("state") == "paused"
            assert connection.execute(LEFT).fetchone() == (0, 0)
        finally:
            assert again.end() == 0


def test_whoever_takes_over_says_so_before_it_shows_anything(postgres: Any, tmp_path: Path) -> None:
    """Its predecessor may live and not know yet that its lock is gone, and what it remembers is about to be old."""
    database = postgres.database()
    server = Process(tmp_path / "one", None, "--db", database)
    try:
        member = server.device(server.fresh())
        assert member.check_out().status_code == 200
        with psycopg.connect(database, autocommit=True) as connection:

            def is_doubted() -> bool:
                connection.execute("SELECT pg_notify(%s, 'takes 1000000')", (ALL,))
                return member.check_out().status_code == 503

            until(is_doubted)
            until(lambda: member.check_out().status_code == 200)  # it has looked: the lock is its own
    finally:
        assert server.end() == 0
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"LISTEN {ALL}")
        again = Process(tmp_path / "one", None, "--db", database)
        try:
            assert again.send("GET", "/v1/tasks").status_code == 200
            with closing(connection.notifies(timeout=WAIT_S)) as notices:
                told = (each.payload.split(" ")[0] for each in notices)
                assert "takes" in list(itertools.takewhile(lambda what: what != "aggregates", told))
        finally:
            assert again.end() == 0


def until(wanted: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not wanted():
        assert time.monotonic() < end
        time.sleep(0.05)
