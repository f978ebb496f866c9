"""The server's application in this process, without a socket."""

from __future__ import annotations

import asyncio
import dataclasses
import queue
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import uvloop

from crowdml.server.http.requests import Pace
from crowdml.server.setup.application import Access, create_app
from crowdml.server.setup.serving import TOKEN_FILE, require_identity
from crowdml.server.store import Applied, open_store
from crowdml.server.tasks.coordinator import Options
from tests.support.served import WAIT_S, Member, Served

FAST = Pace(per_second=1e6, burst=1_000_000)
OPEN = Access(device_pace=FAST, stranger_pace=FAST, reader_pace=FAST)
"""Nobody is too fast, so that a test meets the answer it asks for."""


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def begin(self, work: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Any) -> Any:
        return self.begin(work).result(WAIT_S)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WAIT_S)
        self.loop.close()


class Application(Served):
    """The application without a socket, and its store, in this process."""

    address = "http://127.0.0.1"

    def __init__(self, home: Path, access: Access = OPEN, options: Options = Options()) -> None:  # noqa: B008
        self.home, self.failures = home, list[BaseException]()
        self.store = open_store(f"sqlite:///{home / 'crowdml.sqlite'}")
        require_identity(self.store, home)
        self.token = (home / TOKEN_FILE).read_text().strip()
        options = dataclasses.replace(options, token_file=options.token_file or home / TOKEN_FILE)
        self.app = create_app(self.store, options, access, self.failures.append)
        self.thread = Loop()
        self._begin()

    def _begin(self) -> None:
        self._to_app: asyncio.Queue[Any] = asyncio.Queue()
        self._from_app: queue.Queue[Any] = queue.Queue()

        async def told(event: Any) -> None:
            self._from_app.put(event)

        scope = {"type": "lifespan", "asgi": {"version": "3.0"}}
        self._life = self.thread.begin(self.app(scope, self._to_app.get, told))
        self._tell("startup")
        transport = httpx.ASGITransport(self.app)
        self.session = httpx.AsyncClient(base_url=self.address, transport=transport)

    def _tell(self, what: str) -> None:
        self.thread.begin(self._to_app.put({"type": f"lifespan.{what}"}))
        answer = self._from_app.get(timeout=WAIT_S)
        assert answer["type"] == f"lifespan.{what}.complete", answer

    def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        answer: httpx.Response = self.thread.run(self.session.request(method, path, **more))
        return answer

    def framework(self) -> Any:
        """Return the framework behind the front door."""
        return self.app._framework._inner._loading.result()  # type: ignore[attr-defined]

    def begin(self, method: str, path: str, **more: Any) -> Future[Any]:
        """Send a request without waiting for its answer: a future."""
        return self.thread.begin(self.session.request(method, path, **more))

    def waiting(self, task: str = "walk") -> int:
        """How many check-ins wait for the writer of a task."""
        lines = self.send("GET", "/metrics").text.splitlines()
        (line,) = (text for text in lines if text.startswith(f'crowdml_waiting{{task="{task}"'))
        return int(line.split()[-1])

    def await_waiting(self, number: int) -> None:
        give_up = time.monotonic() + WAIT_S
        while self.waiting() != number:
            assert time.monotonic() < give_up
            time.sleep(0.002)

    def begin_check_in(self, device: Member, body: bytes) -> Future[Any]:
        return self.begin("POST", f"/v1/tasks/{device.task}/check-ins", headers=device.headers(), content=body)

    def close(self) -> None:
        if not self._life.done():
            self._tell("shutdown")
            self._life.result(WAIT_S)
        self.thread.close()


class Makes:
    """Makes applications in a folder; one with the same name continues where the one before was."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made = folder, list[Application]()

    def __call__(self, name: str = "home", kind: type[Application] = Application, **options: Any) -> Application:
        home = self._folder / name
        home.mkdir(exist_ok=True)
        self._made.append(kind(home, **options))
        return self._made[-1]

    def close(self) -> None:
        for application in self._made:
            if not application.thread.loop.is_closed():
                application.close()


class Gate:
    """Lets a store write only when it is told to."""

    def __init__(self, app: Application) -> None:
        self._apply, self.open, self.reached = app.store.apply, threading.Event(), threading.Event()
        app.store.apply = self  # type: ignore[method-assign]

    def __call__(self, applied: Applied) -> None:
        self.reached.set()
        assert self.open.wait(WAIT_S)
        self._apply(applied)
