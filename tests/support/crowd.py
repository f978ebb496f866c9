"""A crowd of busy devices that writes everything down, and the checks of what a server made of it.

Nothing acknowledged is lost, nothing is applied or charged twice, every receipt has exactly one charge, and the model
is what a replay of the bytes that devices sent gives, bit for bit.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from safetensors.numpy import load as read_tensors
from sqlalchemy import create_engine, text

from crowdml.core.ops import ZeroCoins
from crowdml.device import Device, Ledger
from crowdml.device.device_home import Home
from crowdml.device.server_connection import Backoff, Connection
from crowdml.server.store.open_database import parse
from crowdml.task.live_task import open_task

# Everything is imported once, and most servers are forks of it: a start then takes no time and is a start all the same.
NURSERY = """
import os, sys
import crowdml.server.setup.application, crowdml.server.setup.framework
import crowdml.server.setup.serving, crowdml.server.setup.serve_options
from crowdml.cli import main
for _ in sys.stdin:
    pid = os.fork()
    if pid == 0:
        sys.stdin.close()
        main()
        os._exit(0)
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print("ended", flush=True)
"""


class Nursery:
    """Starts servers in the place of one that was killed; what is given as `more` is run before the first."""

    def __init__(self, server: Any, more: str = "") -> None:
        self.server, self.running = server, 0
        place = ["--home", str(server.folder), "--port", str(server.port), *server.options]
        command = [sys.executable, "-c", more + NURSERY, "serve", *place]
        with open(server.folder / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        if self.running:  # a test that failed half-way: its server holds our pipe open
            os.kill(self.running, signal.SIGKILL)
        self.process.communicate()

    def start(self) -> int:
        """Start a server; return its process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.running = int(self.process.stdout.readline())
        return self.running

    def end(self, pid: int, how: int = signal.SIGKILL) -> None:
        """End the server that was started, and wait for that."""
        assert self.process.stdout is not None
        os.kill(pid, how)
        assert self.process.stdout.readline() == "ended\n"
        self.running = 0

    def pause(self, pid: int, seconds: float) -> None:
        """Let the server stand still for a while."""
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)

    def start_and_kill(self, crowd: list[Busy], more: int) -> None:
        """Start a server, let the crowd go on, and kill it."""
        pid = self.start()
        wait_for(crowd, more)
        self.end(pid)


class Network:
    """What goes wrong on the way: a seeded share of check-ins is cut off, sent twice, or not answered."""

    def __init__(self, seed: int = 0, share: float = 0.0) -> None:
        self._chance, self._share = random.Random(seed), share
        self.faults: Counter[str] = Counter()

    def strikes(self, fault: str) -> bool:
        struck = self._chance.random() < self._share
        self.faults[fault] += struck
        return struck


class Recorder(httpx.HTTPTransport):
    """Keeps the bytes of every check-in, and what was acknowledged."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.sent: dict[str, bytes] = {}
        self.acknowledged: dict[str, dict[str, Any]] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method != "POST" or not request.url.path.endswith("/check-ins"):
            return super().handle_request(request)
        key, body = request.headers["idempotency-key"], request.read()
        assert self.sent.setdefault(key, body) == body, "a resend has the very same bytes"
        if self.network.strikes("cut before it was sent"):
            raise httpx.ConnectError("cut", request=request)
        if self.network.strikes("sent twice"):
            super().handle_request(request).close()
        with closing(super().handle_request(request)) as response:
            content = response.read()
        if self.network.strikes("answer lost"):
            raise httpx.ReadError("lost", request=request)
        if response.status_code == 200:
            self.acknowledged[key] = json.loads(content)
        return httpx.Response(response.status_code, headers=response.headers, stream=httpx.ByteStream(content))


class Busy(threading.Thread):
    """A device that never rests."""

    def __init__(self, place: Path, seed: int, faults: float = 0.0) -> None:
        super().__init__(daemon=True)
        self.place, self.recorder, self.stop = place, Recorder(Network(seed, faults)), threading.Event()
        self.chance = np.random.default_rng(seed)
        self.error: BaseException | None = None

    def rows(self) -> Any:
        while not self.stop.is_set():
            row = self.chance.normal(size=3).astype(np.float32)
            yield row, "walking" if row[0] > 0 else "standing"

    def device(self) -> Device:
        backoff = Backoff(first_s=0.05, longest_s=0.5)
        return Device(self.place, connect=partial(Connection, transport=self.recorder, backoff=backoff))

    def run(self) -> None:
        try:
            with self.device() as device:
                device.run(self.rows())
        except BaseException as error:
            self.error = error


STREAM = (("max-releases = 400", "max-releases = 100000"), ("batch = 10", "batch = 2"))
"""Changes of a task: rows are a stream of new samples, so that devices may release as long as there is time."""


def gather(server: Any, folder: Path, count: int, kind: type[Busy] = Busy) -> list[Busy]:
    """Make a task, and let busy devices join it and begin."""
    server.open(*STREAM)
    crowd = [kind(folder / f"device-{number}", number) for number in range(count)]
    for device in crowd:
        Device.join(server.invite(), device.place, accept=lambda offer: True)
    for device in crowd:
        device.start()
    return crowd


def finish(crowd: list[Busy]) -> None:
    """Let the crowd come to its end."""
    for device in crowd:
        device.stop.set()
    for device in crowd:
        device.join(60.0)
        assert not device.is_alive() and device.error is None, device.error


def check(server: Any, crowd: list[Busy], least: int) -> int:
    """Compare what the server has with what devices were told, what they charged and what they sent.

    Returns:
        The number of receipts, which is at least `least`.
    """
    sent = {key: body for device in crowd for key, body in device.recorder.sent.items()}
    acknowledged = {key: told for device in crowd for key, told in device.recorder.acknowledged.items()}
    charged = [key for device in crowd for key in charges(device.place)]
    shown, model = server.ask(f"/v1/tasks/{server.task}"), read_tensors(server.fetch(f"/v1/tasks/{server.task}/model"))
    rows = receipts(server.database, server.task)
    found = {row["key"]: row for row in rows}
    assert len(found) == len(rows) == shown["check_ins"] == shown["version"] >= least, "applied once each"
    assert set(acknowledged) <= set(found), "acknowledged and lost"
    assert all(told["version"] == found[key]["version"] for key, told in acknowledged.items())
    assert len(set(charged)) == len(charged), "charged once each"
    assert set(found) <= set(charged), "every receipt has its charge"
    assert np.array_equal(replay(crowd[0].place, rows, sent), model["0/w"].reshape(-1))
    return len(rows)


def replay(place: Path, rows: list[dict[str, Any]], sent: dict[str, bytes]) -> Any:
    """Fold in the recorded bytes once more, in the order of the receipts."""
    home = Home(place)
    live = open_task(home.document(home.member()))
    part = live.server.last.server
    server, kept = part.init(ZeroCoins()), dict[int, Any]()
    for version, row in enumerate(rows):
        message = live.server_messages.check_in.decode(sent[row["key"]])
        assert (row["version"], int(message["version"])) == (version + 1, row["started"])
        before, stale = kept.get(row["slot"], part.row()), np.int32(version - row["started"])
        server, kept[row["slot"]] = part.absorb(server, before, message["content"], stale)
        server, _ = part.commit(server)
    return part.report(server).parameters


def wait_for(crowd: list[Busy], more: int) -> None:
    """Wait until the crowd has got so many more acknowledgements."""
    wanted = acknowledgements(crowd) + more
    end = time.monotonic() + 60.0
    while acknowledgements(crowd) < wanted:
        assert time.monotonic() < end, [device.error for device in crowd]
        time.sleep(0.002)


def acknowledgements(crowd: list[Busy]) -> int:
    return sum(len(device.recorder.acknowledged) for device in crowd)


def charges(place: Path) -> list[str]:
    with Ledger(place / "ledger.sqlite") as ledger:  # verifies the chain
        return [entry["key"] for entry in map(json.loads, ledger.entries()) if entry["kind"] == "charge"]


def receipts(database: str, task: str) -> list[dict[str, Any]]:
    engine = create_engine(parse(database))
    query = text("SELECT r.* FROM receipts r JOIN tasks t ON t.id = r.task WHERE t.name = :task ORDER BY r.version")
    try:
        with engine.connect() as connection:
            return [dict(row) for row in connection.execute(query, {"task": task}).mappings()]
    finally:
        engine.dispose()
