"""The calls a device makes, as the protocol names them: one method per route, answers as checked records."""

from __future__ import annotations

import base64
import json
import re
from typing import Any, Literal

from crowdml.core import record
from crowdml.core.errors import MalformedMessage, TermsViolated
from crowdml.device.answers import Answer, readable
from crowdml.device.connection import SMALL_ANSWER, Connection
from crowdml.protocol import Layout, SignedSheet
from crowdml.protocol.joining import InviteLink, sign_enrolment
from crowdml.protocol.keys import SigningKey
from crowdml.protocol.sheet import LARGEST_SHEET

REFUSED = (409, 410, 413, 415, 422)
"""Statuses by which a server refuses a check-in for good: it is spent, and never sent again."""

_PLAIN = re.compile(r"[A-Za-z0-9_.~+/=-]{1,512}")
_ETAG = re.compile(r'"[A-Za-z0-9_.-]{1,100}"')


@record
class Enrolled:
    """What a device gets when it joins: its name at the server, its token, its slot."""

    device: str
    token: str
    slot: int


@record
class Me:
    """What the server keeps of this device.

    Attributes:
        check_ins: Receipts it gave.
        sheet: Hash of the task's present sheet.
        state: State of the task.
    """

    check_ins: int
    sheet: str
    state: str


@record
class Described:
    """A task as the server describes it.

    Attributes:
        signed: Its sheet.
        state: draft, open, paused or stopped; not signed, so good for a message only.
        reason: Why it has ended, if it has.
    """

    signed: SignedSheet
    state: str
    reason: str


@record
class CheckOut:
    """A broadcast.

    Attributes:
        version: Version of the parameters.
        content: The broadcast.
        sheet: Hash of the sheet it belongs to.
        body: Its bytes, as they came.
    """

    version: int
    content: Any
    sheet: str
    body: bytes


@record
class Receipt:
    """What the server answers once a check-in is stored.

    Attributes:
        key: Idempotency key.
        status: Folded in already, or waiting for it.
        number: This device's how-manieth.
        version: Version after it.
        sheet: Hash of the sheet.
    """

    key: str
    status: Literal["applied", "queued"]
    number: int
    version: int
    sheet: str


class Calls:
    """The routes of one task.

    Args:
        connection: To the server; its token is this device's.
        task: Name of the task.
    """

    def __init__(self, connection: Connection, task: str) -> None:
        """Keep the parts; nothing is sent yet."""
        self.connection, self.task = connection, task
        self._etag, self._kept = "", b""

    def __enter__(self) -> Calls:
        """Use in a `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.connection.close()

    def signed_sheet(self) -> SignedSheet:
        """Ask for the task's sheet; nothing of it is checked yet."""
        return self.described().signed

    def described(self) -> Described:
        """Ask for the task as the server describes it; nothing of it is checked yet."""
        # Inside of JSON every quotation mark of the sheet's text takes a second byte.
        answer = self.connection.ask("GET", self._path(), limit=2 * LARGEST_SHEET + SMALL_ANSWER)
        content = answer.require(200).json()
        return Described(
            signed=SignedSheet.from_json(content.get("signed_sheet")),
            state=readable(content.get("state")),
            reason=readable(content.get("reason")),
        )

    def version(self) -> int:
        """Ask which version the task is at."""
        limit = 2 * LARGEST_SHEET + SMALL_ANSWER
        return self.connection.ask("GET", self._path(), limit=limit).require(200).number("version")

    def enrol(self, link: InviteLink, key: SigningKey) -> Enrolled:
        """Use an invite. Asked again with the same key it answers again, with a new token."""
        content = {
            "invite": link.code,
            "key": base64.urlsafe_b64encode(key.public).decode(),
            "sheet": link.sheet,
            "signature": base64.urlsafe_b64encode(sign_enrolment(key, self.task, link.code, link.sheet)).decode(),
        }
        answer = self.connection.ask(
            "POST", self._path("devices"), content=json.dumps(content).encode(), headers=_JSON
        ).require(200, 201)
        if answer.text("sheet") != link.sheet:
            raise TermsViolated("the server enrolled this device for another sheet than its owner accepted")
        device, token = answer.text("device"), answer.text("token")
        if not _PLAIN.fullmatch(device) or not _PLAIN.fullmatch(token):
            raise MalformedMessage("the server gave a name or a token that is none")
        return Enrolled(device=device, token=token, slot=answer.number("slot"))

    def check_out(self, layout: Layout) -> CheckOut | Answer:
        """Ask for the parameters; an answer instead means that there are none for this device now."""
        known = {"If-None-Match": self._etag} if self._etag else {}
        limit = max(layout.size_bytes, SMALL_ANSWER)  # a refusal may be longer than a small model
        answer = self.connection.ask("GET", self._path("check-out"), headers=known, limit=limit)
        if answer.require(200, 204, 304).status == 204:
            return answer
        body = answer.body if answer.status == 200 else self._kept
        message = layout.decode(body)
        if answer.headers.get("crowdml-version", "") != str(int(message["version"])):
            raise MalformedMessage("the server names another version than the one it sent")
        etag = answer.headers.get("etag", "")
        self._etag, self._kept = (etag, body) if _ETAG.fullmatch(etag) else ("", b"")
        return CheckOut(
            version=int(message["version"]),
            content=message["content"],
            sheet=answer.headers.get("crowdml-sheet", ""),
            body=body,
        )

    def model(self, size_bytes: int) -> bytes:
        """Ask for the model as it stands, which the server gives to every device of the task, also after its end.

        Args:
            size_bytes: Its parameters alone; names and what was promised come on top.
        """
        limit = size_bytes + LARGEST_SHEET + SMALL_ANSWER
        return self.connection.ask("GET", self._path("model"), limit=limit).require(200).body

    def check_in(self, key: str, body: bytes) -> Answer:
        """Hand over a check-in until somebody answers: a receipt, or a refusal for good."""
        headers = {"Content-Type": "application/octet-stream", "Idempotency-Key": key}
        return self.connection.ask("POST", self._path("check-ins"), headers=headers, content=body).require(
            200, *REFUSED
        )

    def me(self) -> Me:
        """Ask what the server keeps of this device."""
        answer = self.connection.ask("GET", "/v1/devices/me").require(200)
        return Me(check_ins=answer.number("check_ins"), sheet=answer.text("sheet"), state=answer.text("state"))

    def withdraw(self) -> None:
        """Have this device's space and its token erased."""
        self.connection.ask("DELETE", "/v1/devices/me").require(204)

    def receipts(self) -> dict[str, str]:
        """List all receipts: key, and SHA-256 of the bytes in hexadecimal."""
        found: dict[str, str] = {}
        after: int | None = 0
        while after is not None:
            page = self.connection.ask("GET", f"/v1/devices/me/receipts?after={after}").require(200).json()
            try:
                found |= {str(own["key"]): str(own["body"]) for own in page["receipts"]}
                following = page["next"]
            except (KeyError, TypeError):
                raise MalformedMessage("the server's list of receipts is not one") from None
            if following is not None and (type(following) is not int or following <= after):
                raise MalformedMessage("the server's list of receipts does not end")
            after = following
        return found

    def _path(self, *more: str) -> str:
        return "/".join(("/v1/tasks", self.task, *more))


_JSON = {"Content-Type": "application/json"}


def receipt_of(answer: Answer, task: str, key: str) -> Receipt:
    """Read a receipt, and refuse one that is not for this check-in."""
    status = answer.text("status")
    if (answer.text("task"), answer.text("key")) != (task, key) or status not in ("applied", "queued"):
        raise MalformedMessage("the server's receipt is not for the check-in that was sent")
    return Receipt(
        key=key,
        status="applied" if status == "applied" else "queued",
        number=answer.number("number"),
        version=answer.number("version"),
        sheet=answer.text("sheet"),
    )
