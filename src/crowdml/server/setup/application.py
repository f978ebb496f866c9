"""The application of one server: its parts put together, its start, its end, and its sudden end."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any

from crowdml.core.blas_threads import one_blas_thread
from crowdml.server.http.exchange import Exchange
from crowdml.server.http.front_door import Access as Access
from crowdml.server.http.front_door import DirectHandler, FrontDoor, RawHandler
from crowdml.server.http.requests import Asgi, BodyLimit, Limiter, Receive, Scope, Send
from crowdml.server.http.secure_routes import SecureRoutes
from crowdml.server.http.session_cookies import SessionCookies
from crowdml.server.http.websockets.relay import Relay
from crowdml.server.store import Store
from crowdml.server.tasks.coordinator import Coordinator, Options

log = logging.getLogger("crowdml.server")
FAILED_EXIT = 70
_FLUSH_S = 0.2


def end_process(error: BaseException) -> None:
    """End the process, after pending requests were given their refusals: only a new start can tell what is on disk."""
    log.critical("the store failed, so this server ends: %s", type(error).__name__, exc_info=error)
    asyncio.get_running_loop().call_later(_FLUSH_S, os._exit, FAILED_EXIT)


def create_app(
    store: Store,
    options: Options = Options(),  # noqa: B008  a frozen record
    access: Access = Access(),  # noqa: B008  a frozen record
    failed: Callable[[BaseException], None] = end_process,
) -> Asgi:
    """Make the application of one server.

    Args:
        store: An open store with an identity. The application closes it.
        options: How tasks are run.
        access: Who may ask.
        failed: What happens when the store fails; a test gives something milder.
    """
    return make_door(Coordinator(store, failed, options), access, failed, Limiter(access.device_pace))


def make_door(
    coordinator: Coordinator, access: Access, failed: Callable[[BaseException], None], devices: Limiter
) -> FrontDoor:
    """Put the parts of an application together.

    Args:
        coordinator: All tasks.
        access: Who may ask.
        failed: What happens when the store fails.
        devices: Pace of each device.
    """
    cookies, strangers = SessionCookies(secure=bool(access.secure_s)), Limiter(access.stranger_pace)

    def load() -> Asgi:
        from crowdml.server.setup.framework import make_framework

        return make_framework(coordinator, devices, strangers, access.address, failed, cookies)

    framework = LazyApp(load)
    exchange = Exchange(coordinator, devices, strangers)
    secure, relay = SecureRoutes(coordinator, exchange), Relay(coordinator, exchange)
    handlers: dict[str, RawHandler] = {
        "exchange.check_out": exchange.check_out,
        "exchange.check_in": exchange.check_in,
        "secure_routes.status": secure.status,
        "secure_routes.hand_over": secure.hand_over,
        "secure_routes.ask_again": secure.ask_again,
        "relay.plain": relay.plain,
    }
    limited = BodyLimit(
        framework,
        coordinator.is_operator,
        lambda headers: coordinator.sessions.find(cookies.read(headers)) is not None,
    )
    direct: dict[str, DirectHandler] = {
        "exchange.check_out": exchange.expect_check_out,
        "exchange.check_in": exchange.expect_check_in,
    }

    def begun() -> None:
        secure.begin()
        framework.begin()

    lifespan = Lifespan(coordinator, begun)
    return FrontDoor(coordinator, handlers, limited, access, lifespan, direct, relay.serve)


class LazyApp:
    """Loads an application once, in a thread, while the server serves already.

    Devices need few routes, and those are there at once. The framework of the control plane and the pages takes a
    second to load; whoever asks for them in that second waits.

    Args:
        load: Returns the application; it may take its time.
    """

    def __init__(self, load: Callable[[], Asgi]) -> None:
        self._load = load
        self._loading: asyncio.Task[Asgi] | None = None

    def begin(self) -> asyncio.Task[Asgi]:
        """Begin to load, unless that was done before; an event loop must be running."""
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(asyncio.to_thread(self._load))
        return self._loading

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, once the application is there; a request that gives up does not stop the loading."""
        loading = self._loading or self.begin()
        inner = loading.result() if loading.done() else await asyncio.shield(loading)
        await inner(scope, receive, send)


class Lifespan:
    """The life of a server: tasks are taken up where the store has them, and let go of when it ends.

    Args:
        coordinator: Holds the tasks and the store.
        begun: Called when devices are served.
    """

    def __init__(self, coordinator: Coordinator, begun: Callable[[], object]) -> None:
        self._coordinator, self._begun = coordinator, begun

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Speak ASGI's protocol of start and end."""
        with one_blas_thread():
            await self._live(receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            for stored in self._coordinator.store.tasks():
                self._coordinator.start(stored)
        except BaseException:
            await send({"type": "lifespan.startup.failed"})
            raise
        await send({"type": "lifespan.startup.complete"})
        self._begun()
        await receive()
        await self._coordinator.close()
        await send({"type": "lifespan.shutdown.complete"})


class AppLife:
    """The other side of a `Lifespan`: starts and ends an application, for whoever takes over while serving already.

    Args:
        app: The application.
    """

    def __init__(self, app: Asgi) -> None:
        self._app = app
        self._events = asyncio.Queue[dict[str, str]]()
        self._told = asyncio.Queue[Any]()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start it; raise what its start raises."""
        self._events.put_nowait({"type": "lifespan.startup"})
        self._task = asyncio.get_running_loop().create_task(self._run())
        if (await self._told.get())["type"] != "lifespan.startup.complete":
            await self._task

    async def _run(self) -> None:
        await self._app({"type": "lifespan"}, self._events.get, self._told.put)

    async def end(self) -> None:
        """End it, and wait until it has."""
        assert self._task is not None  # noqa: S101  begun
        self._events.put_nowait({"type": "lifespan.shutdown"})
        await self._task
