"""kill -9 of a server while somebody reads every route: what was shown once stays so.

Commits are slowed down, so that a server spends nearly all its time with a batch that is folded in and not yet stored,
and nearly every kill hits it there.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from crowdml.device import Device
from tests.support.crowd import Busy, Nursery, check, finish, wait_for
from tests.support.reading import Reader, Seen, check_history, violations

KILLS = 5
DEVICES = 4
SLOW = """
import time
from crowdml.server.store import Store
apply = Store.apply
def slow(store, applied):
    time.sleep(0.04)
    apply(store, applied)
    time.sleep(0.01)
Store.apply = slow
"""


def test_no_route_ever_shows_what_a_kill_can_take_back(make_server: Any, tmp_path: Path) -> None:
    server = make_server()
    server.open(("max-releases = 400", "max-releases = 100000"), ("batch = 10", "batch = 2"))
    crowd = [Busy(tmp_path / f"device-{number}", number) for number in range(DEVICES)]
    for device in crowd:
        Device.join(server.invite(), device.place, accept=lambda offer: True)
    reader, chance = Reader(server, crowd[0]), random.Random(7)
    server.kill()
    for device in crowd:
        device.start()
    reader.start()
    with Nursery(server, SLOW) as nursery:
        for _ in range(KILLS):
            pid = nursery.start()
            wait_for(crowd, chance.randint(4, 12))
            reader.wait_for_all()
            nursery.end(pid)
    reader.stop.set()
    reader.join(60.0)
    server.start()
    finish(crowd)
    check_history(reader, crowd, least=KILLS)
    check(server, crowd, least=4 * KILLS)


def seen(route: str, value: int, began: float, exact: bool = True) -> Seen:
    return Seen(route=route, what="version", value=value, exact=exact, began=began, ended=began + 1)


def test_the_check_finds_a_version_that_vanished() -> None:
    steady = [seen("model", 1, 0), seen("task", 2, 2), seen("curve", 1, 4, exact=False), seen("task", 2, 6)]
    assert violations(steady) == []
    assert violations([*steady, seen("list", 1, 8)]) == ["version: 2 at task, later 1 at list"]
    assert violations([seen("curve", 3, 0, exact=False), seen("task", 2, 2)]), "so far it had come for sure"
    assert violations([seen("model", 3, 0), seen("task", 2, 0.5)]) == [], "asked for before the other was known"
