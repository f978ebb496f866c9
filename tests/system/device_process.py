"""A device: the real one, whose every wait is a switch to the timeline. It is killed and started again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import httpx
from greenlet import getcurrent, greenlet

from crowdml.core import CrowdError
from crowdml.device import Device
from crowdml.device.server_connection import Backoff, Connection
from tests.system.disk import Disk
from tests.system.history import History
from tests.system.network import Network
from tests.system.server_process import Headers
from tests.system.timeline import Killed, Process, Timeline


class Wire(httpx.BaseTransport):
    """What stands for the network in a device's connection."""

    def __init__(self, process: DeviceProcess) -> None:
        self._process = process

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and switch away until something comes back."""
        return self._process.exchange(request)


class DeviceProcess(Process):
    """One device, in all its lives.

    Args:
        number: Which.
        folder: Its files.
        timeline: Everything that happens.
        network: To the server.
        disk: Where its files are.
        history: Is told what it sends.
        chance: Draws its rows and its waits.
        pause_s: Seconds between two rows, on average.

    Attributes:
        reason: Why its last run ended; empty while it runs.
        mistakes: What went wrong in it and should not have.
    """

    def __init__(
        self,
        number: int,
        folder: Path,
        timeline: Timeline,
        network: Network,
        disk: Disk,
        history: History,
        chance: Random,
        pause_s: float,
        rows: Callable[[Random], tuple[list[float], str]],
    ) -> None:
        super().__init__(f"device {number}", folder)
        self.number, self._timeline, self._network = number, timeline, network
        self._disk, self._history, self._chance, self._pause_s, self._row = disk, history, chance, pause_s, rows
        self.reason = ""
        self._kept = [rows(chance) for _ in range(4)]
        self.mistakes: list[str] = []
        self._greenlet: greenlet | None = None
        self._hub = getcurrent()
        backoff = Backoff(uniform=chance.uniform)
        self.connect = partial(
            Connection, transport=Wire(self), clock=lambda: timeline.now, sleep=self.sleep, backoff=backoff
        )

    def begin(self, work: Callable[[], object]) -> None:
        """Do something, as this process, from the next moment on."""
        self.live()
        self.reason = ""

        def main() -> None:
            try:
                work()
            except Killed:
                return
            except CrowdError as error:
                self.mistakes.append(f"{self.name}: {type(error).__name__}: {error}")
            self.alive = False

        self._greenlet = greenlet(main, self._hub)
        self._timeline.after(0.0, self._greenlet.switch, self)

    def join(self, link: str) -> None:
        """Join a task."""
        self.begin(
            lambda: Device.join(
                link,
                self.folder,
                accept=lambda _: True,
                accept_no_guarantee=lambda _: True,
                connect=self.connect,
                patience_s=None,
            )
        )

    def run(self) -> None:
        """Take part until there is a reason to end."""

        def work() -> None:
            with Device(self.folder, connect=self.connect) as device:
                rows: Any = self._table if device.live.algorithm.schedule.whole else self._rows()
                self.reason = device.run(rows).reason

        self.begin(work)

    def kill(self, *, power: bool = False) -> None:
        """End at once."""
        self.die()
        self.bury(power=power)

    def bury(self, *, power: bool) -> None:
        """Leave the files of a process that is dead."""
        running, self._greenlet, self.commits_left = self._greenlet, None, None

        def close() -> None:
            if running is not None and not running.dead and running:
                running.throw(Killed)

        self._disk.end(self.folder, close, power=power, older=lambda count: self._chance.randrange(count))

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self._require_alive()
        me = getcurrent()
        self._timeline.after(seconds, lambda: me.switch(), self)
        self._hub.switch()
        self._require_alive()

    def exchange(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and wait for what comes back."""
        self._require_alive()
        me, found = getcurrent(), list[Any]()
        body = request.read()
        path = request.url.raw_path.decode()
        headers: Headers = [
            (name.lower(), value)
            for name, value in request.headers.raw
            if name.lower() not in (b"host", b"content-length", b"connection")
        ]
        self._history.sent(self.folder, request.method, path, dict(headers), body)

        def wake(*what: Any) -> None:
            found.extend(what)
            self._timeline.after(0.0, lambda: me.switch(), self)

        self._network.ask(self.name, request.method, path, headers, body, wake, wake)
        self._hub.switch()
        self._require_alive()
        if len(found) == 1:
            raise httpx.ReadError(found[0], request=request)
        status, answer_headers, content = found
        return httpx.Response(status, headers=answer_headers, stream=httpx.ByteStream(content))

    def _rows(self) -> Iterator[tuple[list[float], str]]:
        while True:
            self.sleep(self._chance.expovariate(1 / self._pause_s))
            yield self._row(self._chance)

    def _table(self) -> list[tuple[list[float], str]]:
        self.sleep(self._chance.expovariate(1 / self._pause_s))
        return self._kept

    def _require_alive(self) -> None:
        if not self.alive:
            raise Killed
