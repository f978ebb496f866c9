"""The calls a device makes, as the protocol names them: one method per route, answers as checked records."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

from crowdml.core import record
from crowdml.core.errors import MalformedMessage, TermsViolated
from crowdml.core.keys import SigningKey
from crowdml.device.device_home import Member
from crowdml.device.server_connection import SMALL_ANSWER, Answer, Connection, readable
from crowdml.wire import Layout, SignedTask
from crowdml.wire.join_link import InviteLink, sign_enrolment
from crowdml.wire.signed_task import LARGEST_DOCUMENT

REFUSED = (409, 410, 413, 415, 422)
"""Statuses by which a server refuses a check-in for good: it is spent, and never sent again."""

_JSON = {"Content-Type": "application/json"}
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
        refused: Releases that it refused for good; they are spent too.
        task_hash: Hash of the task as it is signed now.
        state: State of the task.
    """

    check_ins: int
    refused: int
    task_hash: str
    state: str


@record
class Described:
    """A task as the server describes it.

    Attributes:
        signed: As the operator signed it.
        state: draft, open, paused or stopped; not signed, so good for a message only.
        reason: Why it has ended, if it has.
    """

    signed: SignedTask
    state: str
    reason: str


@record
class CheckOut:
    """A broadcast.

    Attributes:
        version: Version of the parameters.
        content: The broadcast.
        task_hash: Hash of the signed task it belongs to.
        body: Its bytes, as they came.
    """

    version: int
    content: Any
    task_hash: str
    body: bytes


class Calls:
    """The routes of one task.

    Args:
        connection: To the server; its token is this device's.
        task: Name of the task.
    """

    def __init__(self, connection: Connection, task: str) -> None:
        self.connection, self.task = connection, task
        self._etag, self._kept = "", b""

    def __enter__(self) -> Calls:
        """Use in a `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.connection.close()

    def described(self) -> Described:
        """Ask for the task as the server describes it; nothing of it is checked yet."""
        content = self._task().json()
        return Described(
            signed=SignedTask.from_json(content.get("signed_task")),
            state=readable(content.get("state")),
            reason=readable(content.get("reason")),
        )

    def version(self) -> int:
        """Ask which version the task is at."""
        return self._task().number("version")

    def enrol(self, link: InviteLink, key: SigningKey) -> Enrolled:
        """Use an invite. Asked again with the same key it answers again, with a new token."""
        content = {
            "invite": link.code,
            "key": base64.urlsafe_b64encode(key.public).decode(),
            "task_hash": link.task_hash,
            "signature": base64.urlsafe_b64encode(sign_enrolment(key, self.task, link.code, link.task_hash)).decode(),
        }
        body = json.dumps(content).encode()
        answer = self.connection.ask("POST", self._path("devices"), content=body, headers=_JSON).require(200, 201)
        if answer.text("task_hash") != link.task_hash:
            raise TermsViolated("the server enrolled this device for another signed task than its owner accepted")
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
            task_hash=answer.headers.get("crowdml-task-hash", ""),
            body=body,
        )

    def model(self, size_bytes: int) -> bytes:
        """Ask for the model as it stands, which the server gives to every device of the task, also after its end.

        Args:
            size_bytes: Its parameters alone; names and what was promised come on top.
        """
        limit = size_bytes + LARGEST_DOCUMENT + SMALL_ANSWER
        return self.connection.ask("GET", self._path("model"), limit=limit).require(200).body

    def check_in(self, key: str, body: bytes) -> Answer:
        """Hand over a check-in until somebody answers: a receipt, or a refusal for good."""
        headers = {"Content-Type": "application/octet-stream", "Idempotency-Key": key}
        answer = self.connection.ask("POST", self._path("check-ins"), headers=headers, content=body)
        return answer.require(200, *REFUSED)

    def me(self) -> Me:
        """Ask what the server keeps of this device."""
        answer = self.connection.ask("GET", "/v1/devices/me").require(200)
        return Me(
            check_ins=answer.number("check_ins"),
            refused=answer.number("refused", missing=0),
            task_hash=answer.text("task_hash"),
            state=answer.text("state"),
        )

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
                found |= {str(receipt["key"]): str(receipt["body"]) for receipt in page["receipts"]}
                following = page["next"]
            except (KeyError, TypeError):
                raise MalformedMessage("the server's list of receipts is not one") from None
            if following is not None and (type(following) is not int or following <= after):
                raise MalformedMessage("the server's list of receipts does not end")
            after = following
        return found

    def _task(self) -> Answer:
        # Inside of JSON every quotation mark of the signed text takes a second byte.
        return self.connection.ask("GET", self._path(), limit=2 * LARGEST_DOCUMENT + SMALL_ANSWER).require(200)

    def _path(self, *more: str) -> str:
        return "/".join(("/v1/tasks", self.task, *more))


def connected(member: Member, connect: Callable[..., Connection] = Connection, **options: Any) -> Calls:
    """Make the calls of a member to its server; close them after use."""
    options = {"patience_s": 60.0} | options
    connection = connect(member.server, ca=member.ca, plain_http=member.plain_http, **options)
    connection.token = member.token
    return Calls(connection, member.task)
