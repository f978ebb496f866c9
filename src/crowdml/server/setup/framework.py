"""The framework: control plane and pages put together, everything in the table of routes but the raw ones.

It takes as long to load as everything else together, so a server begins to serve devices without it: see `LazyApp`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

import crowdml
from crowdml.core import CrowdError
from crowdml.server.http import control, openapi, operator_routes
from crowdml.server.http.documents import Documents
from crowdml.server.http.requests import Limiter, caller_of
from crowdml.server.http.routes import FRAMEWORK_ROUTES, Who
from crowdml.server.http.session_cookies import SessionCookies
from crowdml.server.pages import device_page, join_page, rendering, static_files, status_routes, task_page, tasks_page
from crowdml.server.pages.operator import (
    crowd_pages,
    log_pages,
    new_task_pages,
    server_pages,
    session_gate,
    sign_in,
    task_control,
)
from crowdml.server.refusals import Refusal, refusal_of
from crowdml.server.store import StoreFailed
from crowdml.server.tasks.coordinator import Coordinator

LARGEST_TEXT = 500
"""Characters of an error that repeats what was sent."""

_PUBLIC = (control, operator_routes, status_routes, tasks_page, task_page, join_page, device_page, static_files)
_OPERATOR = (sign_in, new_task_pages, task_control, crowd_pages, log_pages, server_pages)
_MODULES: dict[str, ModuleType] = {module.__name__.rpartition(".")[2]: module for module in (*_PUBLIC, *_OPERATOR)}
"""Where the functions are that the table names."""
_REQUIRED: dict[Who, list[Any]] = {
    "anyone": [],
    "operator": [Depends(control.require_operator)],
    "device": [Depends(control.device_of)],
    "operator or device": [Depends(control.bearer_of)],
    "session": [Depends(session_gate.require_session)],
}
"""What lets only those pass that the table names."""


def make_framework(
    coordinator: Coordinator,
    devices: Limiter,
    strangers: Limiter,
    address: str | None,
    failed: Callable[[BaseException], None],
    cookies: SessionCookies,
) -> FastAPI:
    """Make the control plane and the pages of a server.

    Args:
        coordinator: All tasks.
        devices: Pace of each device.
        strangers: Pace of each address that shows no valid token.
        address: What invites give as the server's address; None: as the request was made.
        failed: What happens when the store fails.
        cookies: How the cookies of sessions look.
    """
    fast = _routes()
    fast.state.coordinator, fast.state.documents = coordinator, Documents(coordinator.store)
    fast.state.public_address = address
    fast.state.task_pages = task_page.TaskPages(fast.state.documents, coordinator.group_figures, coordinator.leak_of)
    fast.state.task_cards = tasks_page.TaskCards(fast.state.documents)
    fast.state.watchers = status_routes.Watchers()
    fast.state.creating, fast.state.backing_up = asyncio.Lock(), asyncio.Lock()
    fast.state.cookies, fast.state.sign_ins = cookies, sign_in.sign_in_limiter()
    fast.state.require_pace = lambda request: strangers.require(
        caller_of(request.client.host) if request.client else ""
    )
    fast.state.require_device_pace = devices.require
    fast.state.description = json.dumps(openapi.describe(fast), ensure_ascii=False, separators=(",", ":")).encode()
    _add_errors(fast, failed)
    return fast


def describe() -> dict[str, Any]:
    """Return what /openapi.json says, without a server."""
    return openapi.describe(_routes())


def _routes() -> FastAPI:
    """Make everything but the raw routes, as the table has it."""
    fast = FastAPI(title="crowdml", version=crowdml.__version__, docs_url=None, redoc_url=None, openapi_url=None)
    for route in FRAMEWORK_ROUTES:
        module, _, name = route.handler.partition(".")
        handler = getattr(_MODULES[module], name)
        fast.add_api_route(
            route.path,
            handler,
            methods=list(route.methods),
            dependencies=_REQUIRED[route.who],
            include_in_schema=route.described,
            **handler.details,
        )
    return fast


def _add_errors(fast: FastAPI, failed: Callable[[BaseException], None]) -> None:
    """Give every error the one shape."""

    @fast.exception_handler(CrowdError)
    async def ours(request: Request, error: CrowdError) -> Response:
        if isinstance(error, StoreFailed):
            # Reading failed: the store is as unreliable as if a writer had met it.
            failed(error)
        if isinstance(error, session_gate.SignInNeeded) and rendering.wants_page(request):
            return sign_in.needed(request, error)
        return _refuse(request, refusal_of(error))

    @fast.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["loc"][0] == "path" and rendering.wants_page(request):
            return rendering.refusal_page(Refusal(404, "not-found", "there is nothing of that name"))
        place = ".".join(str(part) for part in first["loc"][1:])
        text = f"{place}: {first['msg']}".lstrip(": ")
        return _refuse(request, Refusal(422, "bad-input", text[:LARGEST_TEXT]))

    @fast.exception_handler(HTTPException)
    async def framework(request: Request, error: HTTPException) -> Response:
        codes = {404: "not-found", 405: "method"}
        code = codes.get(error.status_code, "refused")
        answer = _refuse(request, Refusal(error.status_code, code, str(error.detail)))
        for name, value in (error.headers or {}).items():
            answer.headers[name] = value
        return answer

    @fast.exception_handler(Exception)
    async def ours_alone(request: Request, error: Exception) -> Response:
        # It is raised again after this answer, and so reaches the log.
        return _refuse(request, Refusal(500, "internal", "a mistake in this server"))


def _refuse(request: Request, refusal: Refusal) -> Response:
    """Answer people with a page, and programs in the one shape."""
    return rendering.refusal_page(refusal) if rendering.wants_page(request) else control.to_response(refusal.answer())
