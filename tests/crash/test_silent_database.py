"""A database that takes everything and says nothing: no connection breaks, so that nobody is told.

As where a firewall or a proxy before PostgreSQL forgets a connection, or PostgreSQL itself stands still.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from crowdml.server.fronts.other_fronts import DEAF_TICKS, LEASE_S, TICK_S
from crowdml.server.setup.application import FAILED_EXIT
from tests.support.process import Process
from tests.support.proxies import Proxy
from tests.support.served import WAIT_S, honest

pytestmark = pytest.mark.postgres

DEAF_S = DEAF_TICKS * TICK_S
SOCKET = ".s.PGSQL.5432"


class Wire(Proxy):
    """Leads to PostgreSQL's socket, and holds back what passes when it is told to.

    Args:
        to: The socket.

    Attributes:
        open: Whether what comes passes on.
    """

    def __init__(self, to: Path) -> None:
        super().__init__()
        self._to, self.open = to, True

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self._to)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(1 << 16):
            while not self.open:
                await asyncio.sleep(0.02)
            writer.write(piece)
            await writer.drain()


class Behind:
    """A database, and the same one behind a wire."""

    def __init__(self, postgres: Any) -> None:
        self.near = postgres.database()
        self.wire = Wire(Path(postgres.folder) / SOCKET)
        self.wire.start()
        name = conninfo_to_dict(self.near)["dbname"]
        self.far = f"postgresql://postgres@127.0.0.1:{self.wire.port}/{name}"


@pytest.fixture
def behind(postgres: Any) -> Iterator[Behind]:
    made = Behind(postgres)
    yield made
    made.wire.leave()


@pytest.fixture
def servers() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for server in started:
        server.end(signal.SIGKILL)


def until(wanted: Any, seconds: float = WAIT_S) -> None:
    end = time.monotonic() + seconds
    while not wanted():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_lone_server_whose_database_says_nothing_leaves_answers_to_others(
    behind: Behind, servers: list[Process], tmp_path: Path
) -> None:
    """It cannot know that nobody else came meanwhile: whatever it remembers may be old."""
    servers.append(server := Process(tmp_path / "one", None, "--db", behind.far))
    member = server.device(server.fresh())
    assert member.check_out().status_code == 200
    behind.wire.open = False
    until(lambda: member.check_out().status_code == 503, LEASE_S + WAIT_S)
    refused = member.check_out()
    assert refused.json()["error"]["code"] == "busy" and refused.headers["retry-after"] == "1"
    # What is sent meanwhile is refused at once, not kept waiting.
    assert member.check_in(honest(member.live, 0), "while-silent").status_code == 503
    behind.wire.open = True
    until(lambda: member.check_out().status_code == 200)
    assert member.check_in(honest(member.live, 0), "afterwards-1").status_code == 200


def test_a_front_end_whose_database_says_nothing_ends_and_the_other_goes_on(
    behind: Behind, servers: list[Process], tmp_path: Path
) -> None:
    servers.append(aggregator := Process(tmp_path / "one", None, "--db", behind.near))
    follower = _another(behind.far, tmp_path / "two", servers)
    member = follower.device(aggregator.fresh())
    assert member.check_out().status_code == 200
    behind.wire.open = False
    assert follower.process.wait(DEAF_S + WAIT_S) == FAILED_EXIT
    assert f"the database said nothing for {DEAF_S:.0f} s" in follower.log.read_text()
    member.server = aggregator
    assert member.check_in(honest(member.live, 0), "by-the-other").status_code == 200


def test_an_aggregator_whose_database_says_nothing_is_followed_by_another(
    behind: Behind, servers: list[Process], tmp_path: Path
) -> None:
    servers.append(cut_off := Process(tmp_path / "one", None, "--db", behind.far))
    other = _another(behind.near, tmp_path / "two", servers)
    member = cut_off.device(cut_off.fresh())
    assert member.check_in(honest(member.live, 0), "before-it-was").json()["number"] == 1
    behind.wire.open = False
    until(lambda: member.check_out().status_code == 503)
    until(lambda: "aggregates" in other.log.read_text())
    member.server = other
    until(lambda: member.check_out().status_code == 200)
    done = member.check_in(honest(member.live, 1), "by-the-other")
    assert (done.status_code, done.json()["number"]) == (200, 2)
    assert cut_off.process.wait(DEAF_S + WAIT_S) == FAILED_EXIT
    assert [each["number"] for each in member.receipts()] == [1, 2]


def _another(database: str, home: Path, servers: list[Process]) -> Process:
    home.mkdir(mode=0o700)
    shutil.copy(servers[0].home / "operator.token", home)
    servers.append(made := Process(home, None, "--db", database))
    assert made.send("GET", "/v1/tasks").status_code == 200
    assert "follows" in made.log.read_text()
    return made
