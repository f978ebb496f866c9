"""Several front ends on one PostgreSQL, and devices that ask now one, now another of them, as through a proxy."""

from __future__ import annotations

import itertools
import random
import shutil
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from crowdml.device import Device
from crowdml.device.joining import Offer
from crowdml.device.server_connection import Backoff, Connection
from tests.support.crowd import Busy, Network, Recorder
from tests.support.server import Server

READY_S = 60.0


class FrontEnds:
    """Front ends that are started, killed and stopped one by one.

    Args:
        folder: A folder for each of them is made in it.
        database: Address of an empty database.
        count: How many there are.
    """

    def __init__(self, folder: Path, database: str, count: int = 2) -> None:
        self.database, self.servers = database, list[Server]()
        for number in range(count):
            home = folder / f"front-{number}"
            home.mkdir()
            if self.servers:
                shutil.copy(self.servers[0].folder / "operator.token", home)
            self.servers.append(Server(home, "--db", database))
        self.wait_until_ready(*self.servers)

    def __enter__(self) -> FrontEnds:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            if server.process.poll() is None:
                server.process.send_signal(signal.SIGCONT)
                server.kill()

    @property
    def addresses(self) -> list[str]:
        return [server.address for server in self.servers]

    @property
    def task(self) -> str:
        return self.servers[0].task

    def open(self, *changes: tuple[str, str]) -> None:
        """Make a task, by the first front end."""
        self.servers[0].open(*changes)

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        return self.living.ask(path, body, method)

    def fetch(self, path: str) -> bytes:
        return self.living.fetch(path)

    @property
    def living(self) -> Server:
        return next(server for server in self.servers if server.process.poll() is None)

    def aggregator(self) -> Server:
        """Return the one that aggregates, once there is one among those that live."""
        end = time.monotonic() + READY_S
        while True:
            for server in self.servers:
                if server.process.poll() is None and _role(server) == "aggregates":
                    return server
            assert time.monotonic() < end, "nobody aggregates"
            time.sleep(0.01)

    def follower(self) -> Server:
        """Return one that follows."""
        aggregator = self.aggregator()
        return next(each for each in self.servers if each is not aggregator and each.process.poll() is None)

    @staticmethod
    def wait_for_role(server: Server, role: str) -> None:
        """Wait until a front end says what it does: aggregates, or follows."""
        end = time.monotonic() + READY_S
        while _role(server) != role:
            assert time.monotonic() < end, (server.folder / "server.log").read_text()
            time.sleep(0.02)

    @staticmethod
    def wait_until_ready(*servers: Server) -> None:
        """Wait until front ends answer."""
        for server in servers:
            end = time.monotonic() + READY_S
            while True:
                try:
                    if httpx.get(f"{server.address}/healthz", timeout=READY_S).status_code == 200:
                        break
                except httpx.TransportError:
                    pass
                assert time.monotonic() < end, (server.folder / "server.log").read_text()
                time.sleep(0.05)


def _role(server: Server) -> str:
    lines = (server.folder / "server.log").read_text().splitlines()
    told = [line.rsplit(" ", 1)[1] for line in lines if " INFO front end " in line]
    # Others say with whom it is linked, before or after.
    return next((word for word in reversed(told) if word in ("aggregates", "follows")), "")


class Balanced(Recorder):
    """Sends each request to one of the front ends, by chance; to another one, where that does not listen.

    Attributes:
        longest_s: Longest time for which nothing but refusals and broken connections came.
    """

    def __init__(self, network: Network, addresses: list[str], seed: int) -> None:
        super().__init__(network)
        self._addresses, self._chance = [httpx.URL(address) for address in addresses], random.Random(seed)
        self._well = time.monotonic()
        self.longest_s = 0.0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        began = time.monotonic()
        for address in self._chance.sample(self._addresses, len(self._addresses)):
            request.url = request.url.copy_with(scheme=address.scheme, host=address.host, port=address.port)
            try:
                response = super().handle_request(request)
            except httpx.ConnectError:
                continue
            if response.status_code < 500:
                self.longest_s = max(self.longest_s, time.monotonic() - min(self._well, began))
                self._well = time.monotonic()
            return response
        raise httpx.ConnectError("no front end listens", request=request)


class BusyEverywhere(Busy):
    """A busy device that asks all front ends."""

    def __init__(self, place: Path, seed: int, addresses: list[str], faults: float = 0.0) -> None:
        super().__init__(place, seed, faults)
        self.recorder = Balanced(Network(seed, faults), addresses, seed)

    def device(self) -> Device:
        backoff = Backoff(first_s=0.05, longest_s=0.5)
        return Device(self.place, connect=partial(Connection, transport=self.recorder, backoff=backoff))


def yes(_: Offer) -> bool:
    """Accept whatever a task offers."""
    return True


def join(
    fronts: FrontEnds, folder: Path, count: int, faults: float = 0.0, kind: type[BusyEverywhere] = BusyEverywhere
) -> list[Busy]:
    """Let devices join by all front ends in turn, and begin."""
    crowd: list[Busy] = [kind(folder / f"device-{number}", number, fronts.addresses, faults) for number in range(count)]
    for device, server in zip(crowd, itertools.cycle(fronts.servers), strict=False):
        server.task = fronts.task
        Device.join(server.invite(), device.place, accept=yes, accept_no_guarantee=yes)
    for device in crowd:
        device.start()
    return crowd
