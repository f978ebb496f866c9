"""The event log for the operator: a page, and a file for a spreadsheet."""

from __future__ import annotations

import csv
import io
import time
from typing import Annotated

from fastapi import Response
from pydantic import Field

from crowdml.core import record
from crowdml.server.http import json_bodies
from crowdml.server.http.control import described
from crowdml.server.http.operator_routes import LARGEST_NUMBER, read_log
from crowdml.server.pages.operator.session_gate import In, Signed, show
from crowdml.server.store import Event

WHO = {
    "operator": "operator, by token",
    "portal": "operator, by portal",
    "device": "device",
    "server": "server",
    "stranger": "stranger",
}
NAMES = ("time", "who", "what", "task", "more")
ON_A_PAGE = 50
IN_A_FILE = 100_000
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a cell begins with that a spreadsheet would work out."""


@record
class Line:
    """An entry in words.

    Attributes:
        when: Time, in UTC.
        who: Who did it.
        what: What was done, and how often.
        task: To which task; empty: to the server.
        more: About which device, and further words.
    """

    when: str
    who: str
    what: str
    task: str
    more: str

    @staticmethod
    def of(event: Event) -> Line:
        """Put an entry into words."""
        what = event.action if event.count == 1 else f"{event.action} ({event.count})"
        device = "" if event.slot is None else f"device {event.slot}"
        return Line(
            when=time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(event.time)),
            who=WHO.get(event.actor, event.actor),
            what=what,
            task=event.task or "",
            more=", ".join(part for part in (device, event.detail) if part),
        )


@record
class LogPage:
    """A page of the log.

    Attributes:
        lines: Entries, latest first.
        task: Whose entries; empty: all.
        next: Number from which the next page goes on; None: there is none.
        later: Whether there are pages before this one.
    """

    lines: tuple[Line, ...]
    task: str
    next: int | None
    later: bool


@described("Who did what, and when")
async def log_page(
    session: Signed,
    coordinator: In,
    before: Annotated[int, Field(ge=1, le=LARGEST_NUMBER)] = LARGEST_NUMBER,
    task: json_bodies.Name | None = None,
) -> Response:
    """Show entries, latest first."""
    found = await read_log(coordinator, before, task, ON_A_PAGE + 1)
    shown = found[:ON_A_PAGE]
    page = LogPage(
        lines=tuple(map(Line.of, shown)),
        task=task or "",
        next=shown[-1].id if len(found) > ON_A_PAGE else None,
        later=before != LARGEST_NUMBER,
    )
    return show(session, "log.html", page, section="log")


@described("The event log as a file")
async def log_file(session: Signed, coordinator: In) -> Response:
    """Send the whole log as CSV; no cell is a formula."""
    written = io.StringIO()
    rows = csv.writer(written)
    rows.writerow(NAMES)
    for event in await read_log(coordinator, LARGEST_NUMBER, None, IN_A_FILE):
        line = Line.of(event)
        rows.writerow([harmless(cell) for cell in (line.when, line.who, line.what, line.task, line.more)])
    headers = {"content-disposition": 'attachment; filename="event-log.csv"'}
    return Response(written.getvalue().encode(), media_type="text/csv; charset=utf-8", headers=headers)


def harmless(cell: str) -> str:
    """Keep a spreadsheet from taking a text for a formula.

    >>> harmless("=1+1"), harmless("digits")
    ("'=1+1", 'digits')
    """
    return f"'{cell}" if cell.startswith(FORMULA) else cell
