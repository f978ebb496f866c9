"""Networks that are slow or lose packets: peers that send a byte now and then, connections that stall and break."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from crowdml.device import Device
from tests.support.crowd import Busy, Network, Recorder, check, finish, gather, wait_for
from tests.support.proxies import LoopThread, Proxy, cancel
from tests.support.server import Server

DEVICES = 4
SLOW = 600
"""Slow connections at once: more than one address may have."""
FILES = 2_048
"""With so many open files an address may have 448 connections."""
PATIENCE_S = 60.0


class SlowPeers(LoopThread):
    """Connections that send their request byte by byte and never finish it; each that is ended begins again.

    Attributes:
        sent: Bytes that were sent.
        ended: Connections that the server has ended or refused.
    """

    def __init__(self, port: int, count: int) -> None:
        super().__init__()
        self._port, self._count = port, count
        self.sent = self.ended = 0

    async def _work(self) -> None:
        peers = [asyncio.create_task(self._peer()) for _ in range(self._count)]
        await self._until_left()
        await cancel(peers)

    async def _peer(self) -> None:
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=("127.0.0.2", 0))
                try:
                    await self._drip(reader, writer)
                finally:
                    writer.transport.abort()
            self.ended += 1
            await asyncio.sleep(0.2)

    async def _drip(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send a byte now and then until the server has had enough."""
        writer.write(b"POST /v1/tasks/walk-1/check-ins HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        while not writer.is_closing():
            writer.write(b"x")
            self.sent += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    if not await reader.read(1000):
                        return


def test_slow_peers_lock_nobody_out(server: Server, tmp_path: Path) -> None:
    crowd = gather(server, tmp_path, DEVICES)
    wait_for(crowd, DEVICES)
    slow = SlowPeers(server.port, SLOW)
    slow.start()
    try:
        _wait_until(lambda: slow.sent > 5 * SLOW)
        wait_for(crowd, 5 * DEVICES)
        # Somebody new finds a place at once: one address cannot take them all.
        for number in range(5):
            Device.join(server.invite(), tmp_path / f"new-{number}", accept=lambda offer: True)
        # The server ends each by its deadline, however busily it sends: so all of them begin again.
        _wait_until(lambda: slow.ended >= SLOW)
        wait_for(crowd, DEVICES)
    finally:
        slow.leave()
    finish(crowd)
    check(server, crowd, least=7 * DEVICES)


class LossyProxy(Proxy):
    """Passes bytes on, in small pieces: some come late, as what is lost is sent again, and some connections break.

    A connection may break anywhere: within headers or a body, or between a request and its answer.

    Attributes:
        faults: What went wrong, and how often.
    """

    LATE, BREAKS = 0.05, 0.02
    """Shares of the pieces."""

    def __init__(self, to: int, seed: int) -> None:
        super().__init__()
        self._to, self._chance = to, random.Random(seed)
        self.faults: Counter[str] = Counter()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._to)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(self._chance.randint(1, 400)):
            if self._chance.random() < self.BREAKS:
                self.faults["broken"] += 1
                return
            if self._chance.random() < self.LATE:
                self.faults["late"] += 1
                await asyncio.sleep(self._chance.uniform(0.05, 0.3))
            writer.write(piece)
            await writer.drain()


class Redirected(Recorder):
    """Sends every request through a proxy."""

    def __init__(self, network: Network, port: int) -> None:
        super().__init__(network)
        self._port = port

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(port=self._port)
        return super().handle_request(request)


class Remote(Busy):
    """A busy device behind a proxy."""

    def __init__(self, place: Path, seed: int, port: int) -> None:
        super().__init__(place, seed)
        self.recorder = Redirected(Network(seed), port)


def test_a_network_that_loses_packets_costs_time_alone(server: Server, tmp_path: Path) -> None:
    proxy = LossyProxy(server.port, seed=7)
    proxy.start()
    try:
        kind: Any = partial(Remote, port=proxy.port)
        crowd = gather(server, tmp_path, DEVICES, kind)
        _wait_until(lambda: min(proxy.faults["broken"], proxy.faults["late"]) >= 10)
        wait_for(crowd, 5 * DEVICES)
        finish(crowd)
    finally:
        proxy.leave()
    check(server, crowd, least=5 * DEVICES)


def _wait_until(found: Any) -> None:
    end = time.monotonic() + PATIENCE_S
    while not found():
        assert time.monotonic() < end
        time.sleep(0.02)
