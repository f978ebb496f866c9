"""kill -9 of a server under twenty busy devices, again and again: `tests/support/crowd.py` says what must hold."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from crowdml.device import Device
from tests.support.crowd import Busy, Nursery, check, finish, wait_for

CYCLES = 20
DEVICES = 20


def test_a_killed_server_loses_nothing_and_counts_nothing_twice(server: Any, tmp_path: Path) -> None:
    # Rows are a stream: every sample is new, so its ledger covers as many releases as there is time for.
    server.open(("max-releases = 400", "max-releases = 100000"), ("batch = 10", "batch = 2"))
    crowd = [Busy(tmp_path / f"device-{number}", number) for number in range(DEVICES)]
    for device in crowd:
        Device.join(server.invite(), device.place, accept=lambda offer: True)
    for device in crowd:
        device.start()
    chance = random.Random(5)
    wait_for(crowd, DEVICES)
    server.kill()
    with Nursery(server) as nursery:
        for _ in range(CYCLES - 1):
            nursery.start_and_kill(crowd, chance.randint(1, 60))
    server.start()
    wait_for(crowd, DEVICES)
    finish(crowd)
    check(server, crowd, least=5 * CYCLES)
