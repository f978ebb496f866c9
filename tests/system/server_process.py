"""The server: the real application on a virtual loop, asked by ASGI, killed and started again on the same files."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from crowdml.core.ops import ZeroCoins
from crowdml.server.refusals import Answer
from crowdml.server.setup.application import create_app
from crowdml.server.setup.serving import TOKEN_FILE
from crowdml.server.store import Store, open_store
from crowdml.server.tasks.coordinator import Options
from tests.support.application import OPEN
from tests.system.disk import Disk
from tests.system.timeline import Killed, Process, Timeline
from tests.system.virtual_loop import VirtualLoop, make_loop

Headers = list[tuple[bytes, bytes]]
Answered = Callable[[int, Headers, bytes], None]
ADDRESS = "http://127.0.0.1"
CLIENT = ("127.0.0.1", 1)


class Server(Process):
    """One server, in all its lives.

    Args:
        folder: Its files.
        timeline: Everything that happens.
        disk: Where its files are.
        chance: Draws how long the disk takes.
        stage_s: Seconds that a stage of a secure sum waits.
        patience_s: Seconds after which a round makes up for the silent.

    Attributes:
        slow_disk: Part of all accesses to the disk that take seconds.
        serving: Whether it answers.
        mistakes: What went wrong in it and should not have.
    """

    def __init__(
        self, folder: Path, timeline: Timeline, disk: Disk, chance: Random, stage_s: float, patience_s: float
    ) -> None:
        super().__init__("server", folder)
        self._timeline, self._disk, self._chance = timeline, disk, chance
        self.slow_disk, self.serving = 0.0, False
        self.mistakes: list[str] = []
        self._open: dict[int, Callable[[], None]] = {}
        self._requests = 0
        self._store: Store | None = None
        self._graves: list[VirtualLoop] = []
        self._options = Options(
            coins=ZeroCoins,
            stage_s=stage_s,
            patience_s=patience_s,
            clock=lambda: self._timeline.now + 1000.0 * self.lives,
        )

    @property
    def path(self) -> Path:
        """Its database."""
        return self.folder / "crowdml.sqlite"

    @property
    def token(self) -> str:
        """The operator's."""
        return (self.folder / TOKEN_FILE).read_text().strip()

    def prepare(self, template: Path) -> None:
        """Copy the files of a server that has not done anything yet."""
        shutil.copytree(template, self.folder)

    def start(self) -> None:
        """Start on what the disk has; it serves once it has taken its tasks up."""
        self.live()
        self.serving = False
        self._loop = loop = make_loop(self._timeline, self, self._disk_s)
        try:
            self._store = open_store(f"sqlite:///{self.path}")
            self._app: Any = create_app(self._store, self._options, OPEN, partial(self._failed, self.lives))
        except Killed:
            return
        told = asyncio.Event()

        async def receive() -> dict[str, str]:
            if not self.serving:
                return {"type": "lifespan.startup"}
            await told.wait()
            return {"type": "lifespan.shutdown"}

        async def send(event: Any) -> None:
            assert event["type"] == "lifespan.startup.complete", event
            self.serving = True

        self._life = self._in_loop(lambda: loop.create_task(self._app({"type": "lifespan"}, receive, send)))

    def kill(self, *, power: bool = False) -> None:
        """End at once; with a power cut, what was not forced to disk is gone."""
        self.die()
        self._bury(power)

    def die(self) -> None:
        """Be dead; `kill` or `bury` follows."""
        super().die()
        self.serving = False
        self.commits_left = None

    def bury(self, *, power: bool) -> None:
        """Leave the files of a server that has died at a commit."""
        self._bury(power)

    def tidy_up(self) -> None:
        """Let go of everything that dead processes had begun; after this nothing is looked at any more."""
        for loop in self._graves:
            loop.tidy_up()

    def request(self, method: str, path: str, headers: Headers, body: bytes, answered: Answered, cut: Any) -> None:
        """Take a request; the answer is given when it is complete, or `cut` is called when the server dies before."""
        if not (self.alive and self.serving):
            cut()
            return
        self._requests += 1
        number = self._requests
        self._open[number] = cut

        def done(status: int, answer_headers: Headers, content: bytes) -> None:
            if self.alive and self._open.pop(number, None) is not None:
                answered(status, answer_headers, content)

        route, _, query = path.partition("?")
        headers = [(b"host", b"127.0.0.1"), *headers, (b"content-length", b"%d" % len(body))]
        if route.endswith("/check-ins") and self._chance.random() < 0.5:
            self._in_loop(lambda: self._direct(method, path, headers, body, done))
        else:
            self._in_loop(lambda: self._ask(method, route, query, headers, body, done))

    def _direct(self, method: str, path: str, headers: Headers, body: bytes, done: Answered) -> None:
        """Ask as a connection does that needs no coroutine."""
        app = self._app
        expected = app.expect(method.encode(), path.encode(), headers, CLIENT[0], "http")

        def answered(answer: Answer) -> None:
            done(answer.status, [*answer.headers, *app.always], answer.body)

        answered(expected) if isinstance(expected, Answer) else expected.take(body, answered)

    def _ask(self, method: str, route: str, query: str, headers: Headers, body: bytes, done: Answered) -> None:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": route,
            "raw_path": route.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": headers,
            "client": CLIENT,
            "server": ("127.0.0.1", 80),
            "state": {},
        }
        pieces = [{"type": "http.request", "body": body, "more_body": False}]
        start: dict[str, Any] = {}
        content: list[bytes] = []

        async def receive() -> Any:
            if pieces:
                return pieces.pop()
            await asyncio.Event().wait()

        async def send(event: Any) -> None:
            if event["type"] == "http.response.start":
                start.update(event)
                return
            content.append(event.get("body", b""))
            if not event.get("more_body"):
                done(start["status"], list(start["headers"]), b"".join(content))

        self._loop.create_task(self._app(scope, receive, send))

    def _in_loop(self, act: Callable[[], Any]) -> Any:
        """Act as the loop's own callbacks do."""
        loop = self._loop
        asyncio._set_running_loop(loop)
        before, self._timeline.current = self._timeline.current, self
        try:
            return act()
        finally:
            self._timeline.current = before
            asyncio._set_running_loop(None)

    def _disk_s(self) -> float:
        slow = self._chance.random() < self.slow_disk
        return self._chance.expovariate(1 / 3.0) if slow else 0.0002 + self._chance.random() * 0.004

    def _failed(self, life: int, error: BaseException) -> None:
        """End as the process does whose store has failed."""
        if self.alive and self.lives == life:
            self.mistakes.append(f"the server ended: {error!r}")
            self.die()
            self._timeline.after(0.0, self.collapsed)

    def _bury(self, power: bool) -> None:
        store, self._store = self._store, None
        self.mistakes += [str(found.get("exception") or found) for found in self._loop.errors]
        # What a dead process was about to do never happens, nor is it tidied up before the end.
        self._graves.append(self._loop)
        if store is not None:
            self._disk.end(self.folder, store.close, power=power, older=lambda _: 0)
        cut, self._open = list(self._open.values()), {}
        for tell in cut:
            tell()
