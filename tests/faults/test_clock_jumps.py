"""The wall clock of a server jumps by years, forwards and backwards, while devices are busy: nothing depends on it.

The real server runs with Debian's libfaketime, which tells it another time; time that only passes stays true.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
import pytest

from tests.support.crowd import check, finish, gather, receipts, wait_for
from tests.support.server import Server

DEVICES = 4
DAY_S = 86_400
JUMPS = (800, -800, 0, 1)
BACK = -400
SEEN_S = 30.0


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """What the server's clock shows: how far it is from the true time."""
    offset = tmp_path / "offset"
    offset.write_text("+0\n")
    return offset


@pytest.fixture
def server(tmp_path: Path, clock: Path) -> Iterator[Server]:
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    if library is None:
        pytest.skip("libfaketime is not installed: make system-packages")
    home = tmp_path / "server"
    home.mkdir()
    told = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",  # else every module looks newer than what was compiled of it
    }
    started = Server(home, before=("env", *(f"{name}={value}" for name, value in told.items())))
    yield started
    started.kill()


def test_nothing_depends_on_the_wall_clock(server: Server, clock: Path, tmp_path: Path) -> None:
    crowd = gather(server, tmp_path, DEVICES)
    wait_for(crowd, DEVICES)
    for days in JUMPS:
        clock.write_text(f"{days:+}d\n")
        _wait_for_date(server, days)
        wait_for(crowd, 2 * DEVICES)
        server.invite()
    _restart(server, clock, BACK)
    _wait_for_date(server, BACK)
    wait_for(crowd, 2 * DEVICES)
    finish(crowd)
    check(server, crowd, least=DEVICES * 2 * len(JUMPS))
    _require_order(server)


def _wait_for_date(server: Server, days: int) -> None:
    """Wait until the server itself says that its clock has jumped."""
    end = time.monotonic() + SEEN_S
    while True:
        told = parsedate_to_datetime(httpx.get(f"{server.address}/healthz", timeout=SEEN_S).headers["date"])
        if abs(told.timestamp() - time.time() - days * DAY_S) < DAY_S / 2:
            return
        assert time.monotonic() < end, f"the server still has {told}"
        time.sleep(0.05)


def _restart(server: Server, clock: Path, days: int) -> None:
    """Kill the server, and start it at another time."""
    server.kill()
    clock.write_text(f"{days:+}d\n")
    server.start()


def _require_order(server: Server) -> None:
    """Versions and days only ever grow, whatever the clock said."""
    rows = receipts(server.database, server.task)
    assert [row["version"] for row in rows] == list(range(1, len(rows) + 1))
    days = [day["day"] for day in server.ask(f"/v1/tasks/{server.task}/statistics")["participation"]]
    assert days == sorted(set(days)), "each day once, in order"
