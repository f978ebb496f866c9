"""A masked task is restored in the middle of sums: its devices go on unattended, under the new signed task."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from crowdml.device import Device, Ledger

CROWD = 6
ROWS = 12
TASK = f"""
crowdml = 1
name = "masked"
objective = "Tell two kinds of rows apart"
[data]
features = 4
labels = ["a", "b"]
transform = [{{ kind = "norm", order = 2, at-most = 1.0 }}]
[model]
kind = "logistic"
[algorithm]
kind = "fedsgd"
per-round = {CROWD}
max-rows = {ROWS}
[privacy]
mode = "sound"
mechanism = "gaussian"
clip = 1.0
epsilon = 8.0
delta = 1e-5
max-uses = 40
[secure-aggregation]
enabled = true
drop-out = 0.2
[stop]
max-versions = 6
"""


class Crowd:
    """Devices in threads, each with a folder of its own."""

    def __init__(self, folder: Path, links: list[str]) -> None:
        self.homes = [folder / f"device-{at}" for at in range(len(links))]
        self.errors: list[BaseException] = []
        for link, home in zip(links, self.homes, strict=True):
            member = Device.join(link, home, accept=lambda offer: True, accept_restores=True)
            generator = np.random.default_rng(member.slot)
            labels = generator.integers(0, 2, ROWS)
            rows = (generator.random((ROWS, 4)) + np.eye(2, 4)[labels]).astype(np.float32)
            np.savez(home / "rows.npz", rows=rows, labels=labels)

    def begin(self, releases: int | None = None) -> list[threading.Thread]:
        threads = [threading.Thread(target=self._run, args=(home, releases)) for home in self.homes]
        for thread in threads:
            thread.start()
        return threads

    def _run(self, home: Path, releases: int | None) -> None:
        try:
            with Device(home, patience_s=120.0) as device:
                device.run(home / "rows.npz", releases=releases)
        except BaseException as error:
            self.errors.append(error)


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(240.0)
        assert not thread.is_alive()


def test_devices_of_a_masked_task_go_on_across_a_restore(
    make_server: Any, crowdml: Callable[..., Any], tmp_path: Path
) -> None:
    server = make_server()
    server.ask("/v1/tasks", {"file": TASK})
    links = server.ask("/v1/tasks/masked/invites", {"count": CROWD})["invites"]
    crowd = Crowd(tmp_path, links)
    join(crowd.begin(releases=1))
    assert not crowd.errors and server.ask("/v1/tasks/masked")["version"] == 1
    copy = tmp_path / "masked.backup"
    assert crowdml("backup", str(copy), "--home", str(server.folder)).returncode == 0
    join(crowd.begin(releases=1))
    running = crowd.begin()
    end = time.monotonic() + 60.0
    while server.ask("/v1/tasks/masked")["version"] < 3:
        assert time.monotonic() < end and not crowd.errors
        time.sleep(0.02)
    server.kill()
    assert crowdml("restore", str(copy), "--home", str(server.folder), "--force").returncode == 0
    server.start()
    join(running)
    assert not crowd.errors
    found = server.ask("/v1/tasks/masked")
    assert (found["state"], found["version"], found["incarnation"]) == ("stopped", 6, 2)
    lost, after = 0, 0
    for home in crowd.homes:
        with Ledger(home / "ledger.sqlite") as ledger:
            kinds = [json.loads(raw)["kind"] for raw in ledger.entries()]
            assert kinds.count("renew") == 1 and not ledger.unsettled()
            renewed = kinds.index("renew")
            lost += kinds[:renewed].count("charge") - 1
            after += kinds[renewed:].count("charge")
    # Two or more versions before the restore were lost, and stay charged; five of the six were made after it. On a busy
    # machine a sum goes on without a device that is late: without one of six, as drop-out says.
    assert lost >= 2 * (CROWD - 1) and after >= 5 * (CROWD - 1)
