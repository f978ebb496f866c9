"""Rendering: how a page is made of a record and a template, with the headers of every page; refusals as pages.

A template gets one record, `page`, and escapes whatever is in it. There is no script and no style inside a page: both
are files of this server, named with their hashes. Nothing on a page is asked of anybody else.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from crowdml.core import record
from crowdml.server.pages.page_headers import page_headers
from crowdml.server.pages.static_files import integrity, takes_gzip
from crowdml.server.refusals import PROTOCOL, Refusal
from crowdml.version import __version__


@record
class RefusalPage:
    """What somebody sees who asked for what is not there, or may not have it."""

    status: int
    message: str
    hint: str

    @property
    def title(self) -> str:
        """Say in a few words whether it is worth another try."""
        if self.status == 404:
            return "There is nothing here"
        if self.status in (429, 503):
            return "Not at this moment"
        return "This went wrong" if self.status == 500 else "This is not possible"


def render(template: str, page: Any) -> str:
    """Write a page; `page` is a record with what it shows."""
    return _TEMPLATES.get_template(template).render(page=page)


def respond(template: str, page: Any, status: int = 200, *, forms: bool = False) -> Response:
    """Answer with a page; one with forms has to say so, or browsers send none."""
    return HTMLResponse(render(template, page), status, headers=page_headers(forms))


@record
class WrittenPage:
    """A page that many ask for: written once, and compressed once.

    A page that holds a secret of whoever asks is never compressed, since its length would tell of the secret.
    """

    plain: bytes
    compressed: bytes

    @staticmethod
    def of(template: str, page: Any) -> WrittenPage:
        """Write a page."""
        plain = render(template, page).encode()
        return WrittenPage(plain=plain, compressed=gzip.compress(plain, 5, mtime=0))

    def respond(self, request: Request) -> Response:
        """Answer with it, compressed where the browser says that it can read that."""
        answer = HTMLResponse(self.compressed if takes_gzip(request) else self.plain, headers=page_headers(forms=False))
        answer.headers["vary"] = "accept-encoding"
        if takes_gzip(request):
            answer.headers["content-encoding"] = "gzip"
        return answer


def wants_page(request: Request) -> bool:
    """Tell whether a person asks: a browser that looks for a page, not a program that calls the API."""
    reads = request.method in ("GET", "HEAD") or request.url.path.startswith("/operator/")
    return reads and "text/html" in request.headers.get("accept", "")


def refusal_page(refusal: Refusal) -> Response:
    """Say in HTML what the one shape of errors says to programs, with a way back."""
    shown = RefusalPage(status=refusal.status, message=str(refusal), hint=refusal.hint)
    answer = respond("refusal.html", shown, refusal.status)
    for name, value in (*refusal.answer().headers[1:], PROTOCOL):
        answer.headers[name.decode()] = value.decode()
    return answer


def counted(number: int, noun: str) -> str:
    """Write a number with its noun.

    >>> counted(1, "device"), counted(1200, "check-in")
    ('1 device', '1,200 check-ins')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def sentence(words: str) -> str:
    """Write a sentence as people do, of what programs are told.

    >>> sentence("the task is paused"), sentence("is it?"), sentence("crowdml invite prints more"), sentence("")
    ('The task is paused.', 'Is it?', 'crowdml invite prints more.', '')
    """
    first = words.partition(" ")[0]
    begun = words[:1].upper() + words[1:] if first.isalpha() and first != "crowdml" else words
    return begun + ("." if begun and not begun.endswith((".", "!", "?", "…")) else "")


def _asset(name: str) -> Markup:
    """Write the tag that loads a style or a script, with its hash."""
    known = f'integrity="{integrity(name)}"'
    if name.endswith(".css"):
        return Markup(f'<link rel="stylesheet" href="/static/{name}" {known}>')  # noqa: S704  names of ours
    return Markup(f'<script type="module" src="/static/{name}" {known}></script>')  # noqa: S704


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals |= {"asset": _asset, "release": __version__}
_TEMPLATES.filters |= {"counted": counted, "sentence": sentence}
