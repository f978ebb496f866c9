"""Signing in and out, and the operator's first page: all tasks, and what to do next."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request, Response

from crowdml.core import record
from crowdml.server.http.control import described
from crowdml.server.http.requests import Limiter, Pace, caller_of
from crowdml.server.pages.operator.session_gate import (
    In,
    Signed,
    cookies_of,
    form_of,
    go_to,
    require_own_page,
    session_of,
    show,
)
from crowdml.server.pages.rendering import respond
from crowdml.server.refusals import Refusal

SIGN_IN_PACE = Pace(per_second=0.2, burst=10)
"""Tries of one address: a token has 256 bits, so this spares the log more than it keeps anybody out."""


@record
class SignInPage:
    """What somebody sees who has not signed in.

    Attributes:
        error: Why the last try failed; empty where there was none.
        arrived: Whether a link on another site led here: then a browser keeps the cookie to itself.
    """

    error: str
    arrived: bool


@record
class FrontPage:
    """What the operator sees first: every task in short."""

    tasks: list[dict[str, Any]]


def sign_in_limiter() -> Limiter:
    """Return what paces those who try to sign in."""
    return Limiter(SIGN_IN_PACE)


@described("Sign in, or all tasks of the operator")
async def front_page(request: Request, coordinator: In) -> Response:
    """Show the tasks to who has signed in, the way in to anybody else."""
    session = session_of(request)
    if session is None:
        return _sign_in_page(arrived=request.headers.get("sec-fetch-site") == "cross-site")
    tasks = [running.summary() for running in coordinator.tasks.values()]
    return show(session, "front.html", FrontPage(tasks=tasks[::-1]), section="tasks")


@described("Sign in")
async def sign_in(request: Request, coordinator: In) -> Response:
    """Begin a session for whoever has the operator's token; one that was there before ends."""
    require_own_page(request)
    request.app.state.sign_ins.require(caller_of(request.client.host) if request.client else "")
    given = (await form_of(request)).text("token").strip()
    # Never the number that the browser came with: somebody else may have put it there.
    value = await asyncio.to_thread(coordinator.sign_in, given.encode())
    if value is None:
        coordinator.count_refusal("stranger", "refused sign-in")
        return _sign_in_page("This is not the operator's token.", status=403)
    before, cookies, host = session_of(request), cookies_of(request), request.headers["host"].encode("latin-1")
    if before is not None:
        await asyncio.to_thread(coordinator.sessions.end, before)
    answer = go_to("/operator")
    answer.headers["set-cookie"] = cookies.write(host, value)
    return answer


@described("Sign out")
async def sign_out(request: Request, coordinator: In, session: Signed) -> Response:
    """End the session of this browser."""
    await asyncio.to_thread(coordinator.sessions.end, session)
    answer = go_to("/operator")
    answer.headers["set-cookie"] = cookies_of(request).erase(request.headers["host"].encode("latin-1"))
    return answer


def needed(request: Request, refusal: Refusal) -> Response:
    """Answer somebody who has not signed in: who only looks is led to the way in, who sent a form is told."""
    if request.method in ("GET", "HEAD"):
        return go_to("/operator")
    return _sign_in_page(f"{str(refusal).capitalize()}.", status=refusal.status)


def _sign_in_page(error: str = "", status: int = 200, arrived: bool = False) -> Response:
    return respond("operator/sign-in.html", SignInPage(error=error, arrived=arrived), status, forms=True)
