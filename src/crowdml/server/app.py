"""The application: raw routes, control plane, pages and measurements put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

import crowdml
from crowdml.core import CrowdError, record
from crowdml.server import control, pages, status
from crowdml.server.answers import Refusal, refusal_of
from crowdml.server.asgi import Asgi
from crowdml.server.bodies import BodyLimit
from crowdml.server.coordinator import Coordinator, Options
from crowdml.server.events import Watchers
from crowdml.server.exchange import Exchange
from crowdml.server.failure import end_process
from crowdml.server.front import Front
from crowdml.server.limits import Limiter, Pace
from crowdml.server.openapi import complete
from crowdml.server.store import Store, StoreFailed
from crowdml.server.sums import SumRoutes

LARGEST_TEXT = 500
"""Characters of an error that repeats what was sent."""


@record
class Access:
    """Who may ask, and how often.

    Attributes:
        hosts: Names this server answers to.
        device_pace: Requests of one device.
        stranger_pace: Requests of one address without a valid token, enrolments included.
        address: What invites give as the server's address; None: as the request was made.
    """

    hosts: Collection[str] = ("127.0.0.1", "localhost", "[::1]")
    device_pace: Pace = Pace(per_second=50.0, burst=200)
    stranger_pace: Pace = Pace(per_second=5.0, burst=100)
    address: str | None = None


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
    coordinator = Coordinator(store, failed, options)
    strangers = Limiter(access.stranger_pace)
    fast = _framework(_lifespan(coordinator))
    fast.state.coordinator = coordinator
    fast.state.public_address = access.address
    fast.state.watchers = Watchers()
    fast.state.creating = asyncio.Lock()
    devices = Limiter(access.device_pace)
    fast.state.require_pace = lambda request: strangers.require(request.client.host if request.client else "")
    fast.state.require_device_pace = devices.require
    pages.mount_static(fast)
    _add_errors(fast, failed)
    exchange = Exchange(coordinator, devices, strangers)
    inner = SumRoutes(coordinator, exchange, BodyLimit(fast, coordinator.is_operator))
    return Front(exchange, inner, access.hosts)


def describe() -> dict[str, Any]:
    """Return what /openapi.json says, without a server."""
    return _framework(None).openapi()


def _framework(lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None) -> FastAPI:
    """Make the control plane and the pages: everything but the two raw routes, which are only described."""
    fast = FastAPI(
        title="crowdml",
        version=crowdml.__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    for router in (control.router, status.router, pages.router):
        fast.include_router(router)
    complete(fast, (control.router, status.router))
    return fast


def _lifespan(coordinator: Coordinator) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        for stored in coordinator.store.tasks():
            coordinator.start(stored)
        yield
        await coordinator.close()

    return lifespan


def _add_errors(fast: FastAPI, failed: Callable[[BaseException], None]) -> None:
    """Give every error the one shape."""

    @fast.exception_handler(CrowdError)
    async def ours(_: Request, error: CrowdError) -> Response:
        if isinstance(error, StoreFailed):
            # Reading failed: the store is as unreliable as if a writer had met it.
            failed(error)
        return control.to_response(refusal_of(error).answer())

    @fast.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        text = f"{place}: {first['msg']}".lstrip(": ")
        return control.to_response(Refusal(422, "bad-input", text[:LARGEST_TEXT]).answer())

    @fast.exception_handler(HTTPException)
    async def framework(_: Request, error: HTTPException) -> Response:
        codes = {404: "not-found", 405: "method"}
        code = codes.get(error.status_code, "refused")
        answer = control.to_response(Refusal(error.status_code, code, str(error.detail)).answer())
        for name, value in (error.headers or {}).items():
            answer.headers[name] = value
        return answer

    @fast.exception_handler(Exception)
    async def ours_alone(_: Request, error: Exception) -> Response:
        # It is raised again after this answer, and so reaches the log.
        return control.to_response(Refusal(500, "internal", "a mistake in this server").answer())
