"""The gate of the operator's pages: a browser that has signed in, and forms that are really ours.

Only the cookie counts here; a bearer token opens no page, as the cookie opens no route of the API. What changes
something must come from a page of this server (its browser says so), and carry the secret of the session's own forms.
The form is read after its sender was found, so that strangers make the server read nothing.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.responses import RedirectResponse

from crowdml.core import record
from crowdml.server.http.control import coordinator_of
from crowdml.server.http.form_bodies import Form, read_form
from crowdml.server.http.requests import REFUSED
from crowdml.server.http.session_cookies import SessionCookies
from crowdml.server.pages.rendering import respond
from crowdml.server.refusals import Refusal
from crowdml.server.tasks.coordinator import Coordinator
from crowdml.server.tasks.operator.operator_sessions import Session, is_form_of

FORM_SECRET = "form-secret"  # noqa: S105  the name of a field
SAFE = ("GET", "HEAD")


class SignInNeeded(Refusal):
    """Nobody has signed in here, or the session is over."""

    def __init__(self) -> None:
        super().__init__(
            403,
            "sign-in",
            "nobody has signed in here, or the session is over: nothing was done",
            hint="sign in at /operator, then do it again",
        )


@record
class OperatorPage:
    """What a page of the operator's shows.

    Attributes:
        form_secret: What its forms carry.
        more: What the page is about.
        section: Which of the operator's pages it belongs to.
    """

    form_secret: str
    more: Any
    section: str = ""


def cookies_of(request: Request) -> SessionCookies:
    """Return how this server's cookies look."""
    found: SessionCookies = request.app.state.cookies
    return found


def session_of(request: Request) -> Session | None:
    """Find the session of a browser."""
    coordinator: Coordinator = request.app.state.coordinator
    return coordinator.sessions.find(cookies_of(request).read(request.scope["headers"]))


def require_own_page(request: Request) -> None:
    """Refuse what may come from another site: a browser that sends a form says where its page is from.

    That it is this server, where it is said, was compared at the front door.
    """
    if "origin" not in request.headers and request.headers.get("sec-fetch-site") != "same-origin":
        raise Refusal(403, "origin", "a form is sent by a page of this server", hint="open /operator in a browser")


async def form_of(request: Request) -> Form:
    """Read the form of a request, unless it was refused by its headers."""
    refused: Refusal | None = request.scope.get(REFUSED)
    if refused is not None:
        raise refused
    return read_form(request.headers.get("content-type", ""), await request.body())


async def require_session(request: Request) -> Session:
    """Let only a browser pass in which the operator has signed in; with a form of its own where something changes."""
    found = session_of(request)
    if found is None:
        raise SignInNeeded
    if request.method not in SAFE:
        require_own_page(request)
        form = await form_of(request)
        if not is_form_of(found, form.text(FORM_SECRET)):
            raise Refusal(
                403,
                "form-secret",
                "this form does not belong to this session: nothing was done",
                hint="load the page again, then send the form",
            )
        request.state.form = form
    return found


def taken_form(request: Request) -> Form:
    """Return the form that passed the gate."""
    found: Form = request.state.form
    return found


Signed = Annotated[Session, Depends(require_session)]
Sent = Annotated[Form, Depends(taken_form)]
In = Annotated[Coordinator, Depends(coordinator_of)]


def show(session: Session, template: str, more: Any, *, section: str = "", status: int = 200) -> Response:
    """Answer with one of the operator's pages."""
    page = OperatorPage(form_secret=session.form_secret, more=more, section=section)
    return respond(f"operator/{template}", page, status, forms=True)


def go_to(path: str) -> Response:
    """Send a browser on after something was done, so that loading again does not do it again."""
    return RedirectResponse(path, 303)
