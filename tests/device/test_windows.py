"""A device's whole life by the ways of Windows, with this system's lock in the place of that of `msvcrt`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import crowdml
from crowdml.core import BadInput, portable
from crowdml.device import Ledger
from tests.core.test_portable import stand_in

MISSING = ("geteuid", "getuid", "pread", "pwrite")
"""Functions of `os` that Windows lacks."""


@pytest.fixture
def windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The folder first: pytest asks whose it is.
    lock = stand_in()
    monkeypatch.setattr(portable, "WINDOWS", True)
    monkeypatch.setitem(sys.modules, "msvcrt", lock)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    for name in MISSING:
        monkeypatch.delattr(os, name)


def test_a_device_joins_sends_stops_and_goes_on(windows: None, make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server)
    with crowdml.Device(place, connect=server.connect) as device:
        assert device.run(rows, releases=2).used == 2
        with pytest.raises(BadInput):
            crowdml.Device(place, connect=server.connect)
    with crowdml.Device(place, connect=server.connect) as device:
        summary = device.run(rows)
        assert (summary.releases, summary.refused) == (4, 0), "what was sent before is remembered"
        assert not device.ledger.unsettled()
    with Ledger(place / "ledger.sqlite") as ledger:
        assert sum(b'"charge"' in entry for entry in ledger.entries()) == 6


def test_the_ways_of_this_system_are_really_gone(windows: None) -> None:
    with pytest.raises(ImportError):
        import fcntl  # noqa: F401
    assert not hasattr(os, "pread")


WITHOUT = """
import os, sys
import numpy  # which asks this system for more than it would ask Windows
for module in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[module] = None
for name in ("geteuid", "getuid", "pread", "pwrite", "fork", "sched_getaffinity"):
    if hasattr(os, name):
        delattr(os, name)
from crowdml.cli import main
main()
"""
"""The program where Python lacks from the first import on what it lacks on Windows."""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["device", "status"], 2, "join a task first"),
        (["privacy", "explain", "examples/draw-a-digit.toml"], 0, "draw-a-digit"),
        (["simulate", "examples/digits.toml"], 2, "error: servers and simulations need Linux or macOS\n  on Windows"),
        (["serve"], 2, "error: servers and simulations need Linux or macOS\n  on Windows"),
    ],
)
def test_commands_of_a_device_need_nothing_else_and_others_say_so(
    words: list[str], code: int, said: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *words],
        env={**os.environ, "XDG_DATA_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert said in done.stdout + done.stderr
