"""The crowd of a task, for its operator: invites as links and codes, devices with their totals, and revoking one."""

from __future__ import annotations

import asyncio
import io
from typing import Annotated

import segno
from fastapi import Depends, Request, Response
from markupsafe import Markup
from pydantic import Field

from crowdml.core import record
from crowdml.server.http.control import described, running_of
from crowdml.server.pages.operator.session_gate import In, Sent, Signed, go_to, show
from crowdml.server.refusals import Refusal
from crowdml.server.tasks.running_task import RunningTask

Of = Annotated[RunningTask, Depends(running_of)]
MOST_CODES = 100
"""Invites on one page: drawing a code takes some milliseconds."""
ON_A_PAGE = 100


@record
class Code:
    """An invite: its link, and the same as a QR code."""

    link: str
    svg: Markup


@record
class InvitesPage:
    """What the operator sees of new invites. It is the only time: the server keeps a hash of each."""

    task: str
    objective: str
    state: str
    codes: tuple[Code, ...]


@record
class DeviceLine:
    """A device in the list.

    Attributes:
        name: Name given by the server.
        slot: Its number.
        check_ins: Check-ins that have a receipt.
        most: Check-ins it may make; None: any number.
        last_version: Version its last check-in started from; -1: there was none.
        refused: Check-ins since the server started that no honest device sends.
    """

    name: str
    slot: int
    check_ins: int
    most: int | None
    last_version: int
    refused: int


@record
class DevicesPage:
    """What the operator sees of the devices of a task.

    Attributes:
        task: Its name.
        state: Its state.
        devices: Those on this page.
        total: How many there are.
        before: Slot of the page before; None: this is the first.
        after: Slot of the next page; None: this is the last.
    """

    task: str
    state: str
    devices: tuple[DeviceLine, ...]
    total: int
    before: int | None
    after: int | None


@record
class RevokePage:
    """What somebody sees before a device is revoked."""

    task: str
    device: DeviceLine


@described("Invite devices")
async def invite(request: Request, session: Signed, sent: Sent, coordinator: In, running: Of) -> Response:
    """Make invites, and show each as a link and as a code to print or to scan."""
    count = _count(sent.text("count"))
    server = str(request.app.state.public_address or str(request.base_url).rstrip("/"))
    links = await asyncio.to_thread(coordinator.enrolment.invite, running, count, server, "portal")
    codes = await asyncio.to_thread(lambda: tuple(Code(link=link, svg=draw(link)) for link in links))
    page = InvitesPage(
        task=running.name, objective=running.live.task.objective, state=running.snapshot.state, codes=codes
    )
    return show(session, "invites.html", page, section="tasks")


@described("Devices of a task, for its operator")
async def devices_page(session: Signed, running: Of, start: Annotated[int, Field(ge=0, le=1 << 31)] = 0) -> Response:
    """List devices: names given by the server, what each has sent, nothing about owners."""
    slots = sorted(running.snapshot.devices)
    shown = [slot for slot in slots if slot >= start]
    earlier = [slot for slot in slots if slot < start]
    page = DevicesPage(
        task=running.name,
        state=running.snapshot.state,
        devices=tuple(_line(running, slot) for slot in shown[:ON_A_PAGE]),
        total=len(slots),
        before=earlier[-ON_A_PAGE:][0] if earlier else None,
        after=shown[ON_A_PAGE] if len(shown) > ON_A_PAGE else None,
    )
    return show(session, "devices.html", page, section="tasks")


@described("What revoking a device would mean")
async def confirm_revoke(session: Signed, running: Of, device: str) -> Response:
    """Say what revoking means, before it is done."""
    slot = next((slot for slot, totals in running.snapshot.devices.items() if totals.device == device), None)
    if slot is None:
        raise Refusal(404, "no-device", "there is no such device")
    return show(session, "revoke.html", RevokePage(task=running.name, device=_line(running, slot)), section="tasks")


@described("Revoke a device")
async def revoke(session: Signed, coordinator: In, running: Of, device: str) -> Response:
    """Take a device's token away, at once."""
    found = coordinator.enrolment.shut_out(running, device)
    answer = await coordinator.writers[running.name].submit(
        lambda task: coordinator.enrolment.revoke(task, found, by="portal")
    )
    if answer.status != 204:
        raise Refusal(answer.status, "failed", "the device could not be revoked", hint="try again")
    return go_to(f"/operator/tasks/{running.name}/devices")


def draw(link: str) -> Markup:
    """Draw a link as a QR code, SVG inside the page."""
    written = io.BytesIO()
    code = segno.make(link, error="m", micro=False)
    code.save(written, kind="svg", xmldecl=False, svgns=True, nl=False, omitsize=True, svgclass="qr", lineclass=None)
    return Markup(written.getvalue().decode())  # noqa: S704  squares alone: the link is in none of its attributes


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MOST_CODES):
        raise Refusal(
            422,
            "bad-input",
            f"{text[:20]!r} is no number of invites: from 1 to {MOST_CODES} are shown at once",
            hint="crowdml invite prints thousands",
        )
    return int(text)


def _line(running: RunningTask, slot: int) -> DeviceLine:
    totals, device = running.snapshot.devices[slot], running.devices.get(slot)
    return DeviceLine(
        name=totals.device,
        slot=slot,
        check_ins=totals.check_ins,
        most=running.live.task.stop.max_releases,
        last_version=totals.last_version,
        refused=device.refused if device else 0,
    )
