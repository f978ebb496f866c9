"""kill -9 of a device and of its server at any moment: nothing is lost, counted twice, or sent without a charge."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crowdml.device import Device, Ledger
from crowdml.device.calls import connected
from crowdml.device.device_home import Home

CYCLES = 20

# Everything is imported once; every device is a fork of it, so that a start takes no time.
NURSERY = """
import os, sys
from crowdml.device.device import Device
for _ in sys.stdin:
    pid = os.fork()
    if pid == 0:
        with Device(sys.argv[1]) as device:
            os.write(1, b"open\\n")
            device.run(sys.argv[2], watch=lambda outcome: os.write(1, b"sent\\n"))
        os._exit(0)
    os.write(1, b"pid %d\\n" % pid)
    os.write(1, b"exit %d\\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.fixture
def nursery(tmp_path: Path, rows: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", NURSERY, str(tmp_path / "device"), str(rows)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.wait()
    process.stdout.close()


def test_nothing_is_lost_or_counted_twice(server: Any, nursery: Any, rows: Path, tmp_path: Path) -> None:
    server.open(("max-uses = 40", "max-uses = 4000"), ("max-releases = 400", "max-releases = 4000"))
    Device.join(server.invite(), tmp_path / "device", accept=lambda offer: True)
    chance, lengths = random.Random(11), []
    for cycle in range(CYCLES):
        nursery.stdin.write("go\n")
        nursery.stdin.flush()
        pid, seen = 0, chance.randrange(5)
        while seen > 0 or not pid:
            word, _, number = nursery.stdout.readline().partition(" ")
            pid, seen = (int(number), seen) if word == "pid" else (pid, seen - 1)
        time.sleep(chance.random() * 0.03)
        if cycle % 10 == 9:
            server.kill()
        os.kill(pid, signal.SIGKILL)
        while (line := nursery.stdout.readline().split())[0] != "exit":
            pass
        assert int(line[1]) == -signal.SIGKILL
        if cycle % 10 == 9:
            server.start()
        lengths.append(check(tmp_path / "device"))
    assert lengths == sorted(lengths) and lengths[-1] > CYCLES, "the devices never got to send anything"
    with Device(tmp_path / "device") as device:
        device.run(rows, releases=1)
    found = charges(tmp_path / "device")
    assert receipts(tmp_path / "device") == found, "in the end every charge has its receipt"
    assert server.ask(f"/v1/tasks/{server.task}")["check_ins"] == len(found)


def check(place: Path) -> int:
    """Whatever the server has was charged, with the same bytes; at most one charge is still to be settled."""
    found, got = charges(place), receipts(place)
    assert got.items() <= found.items()
    with Ledger(place / "ledger.sqlite") as ledger:
        waiting = {unsettled.key for unsettled in ledger.unsettled()}
    assert set(found) - set(got) <= waiting and len(waiting) <= 1
    return len(found)


def charges(place: Path) -> dict[str, str]:
    with Ledger(place / "ledger.sqlite") as ledger:  # verifies the chain
        return {entry["key"]: entry["body"] for entry in map(json.loads, ledger.entries()) if entry["kind"] == "charge"}


def receipts(place: Path) -> dict[str, str]:
    with connected(Home(place).member()) as calls:
        return calls.receipts()
