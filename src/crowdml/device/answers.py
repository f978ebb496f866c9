"""Answers of a server: the bytes, and which of our errors a refusal becomes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from crowdml.core import BadInput, CrowdError, record
from crowdml.core.errors import (
    BudgetExhausted,
    MalformedMessage,
    NotAuthorised,
    StaleCheckIn,
    TaskClosed,
    TermsViolated,
)

LONGEST_RETRY_S = 300.0
"""A server cannot make a device wait longer than this between two tries."""

_CODES: dict[str, type[CrowdError]] = {
    "already-in-round": StaleCheckIn,
    "not-invited": StaleCheckIn,
    "future-version": StaleCheckIn,
    "late": StaleCheckIn,
    "sum-aborted": StaleCheckIn,
    "sum-over": StaleCheckIn,
    "invite-used": NotAuthorised,
    "revoked": NotAuthorised,
    "releases-spent": BudgetExhausted,
    "sheet-changed": TermsViolated,
    "stale": StaleCheckIn,
}
WAITING = {
    "paused": "the operator has paused the task: this device waits, and sends nothing",
    "draft": "the task is not open yet: this device waits, and sends nothing",
    "round": "this device is not in the present round: it waits for the next",
}
"""Why there is nothing to do now, as the server names it."""
_BEGINNINGS = {"stopped": "the task has ended", "paused": "the task is paused"}
"""How a sentence begins where a refusal is no fault of the device; elsewhere the server has refused."""
_STATUSES: dict[int, type[CrowdError]] = {
    401: NotAuthorised,
    403: NotAuthorised,
    409: StaleCheckIn,
    410: TaskClosed,
    413: MalformedMessage,
    415: MalformedMessage,
    422: MalformedMessage,
}


@record
class Answer:
    """What came back.

    Attributes:
        status: HTTP status.
        headers: By lower-case name.
        body: Its bytes.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def retry_after_s(self) -> float | None:
        """How long the server asks to wait, capped; None where it does not say."""
        text = self.headers.get("retry-after", "")
        return min(float(text), LONGEST_RETRY_S) if text.isascii() and text.isdigit() and len(text) < 10 else None

    def json(self) -> dict[str, Any]:
        """Read the body as a JSON object."""
        try:
            content = json.loads(self.body)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise MalformedMessage(f"the server's answer ({self.status}) is not a JSON object")
        return content

    def text(self, name: str) -> str:
        """Take a text out of the JSON object."""
        value = self.json().get(name)
        if not isinstance(value, str):
            raise MalformedMessage(f'the server\'s answer has no text "{name}"')
        return value

    def number(self, name: str) -> int:
        """Take a whole number out of the JSON object."""
        value = self.json().get(name)
        if type(value) is not int or not 0 <= value < 2**63:
            raise MalformedMessage(f'the server\'s answer has no whole number "{name}"')
        return value

    @property
    def code(self) -> str:
        """Short name of the reason for a refusal; empty where there is none."""
        return str(self._error().get("code", ""))

    def error(self) -> CrowdError:
        """Turn a refusal into one of our errors."""
        found = self._error()
        message = readable(found.get("message")) or f"the server answered with status {self.status}"
        hint = readable(found.get("hint"))
        kind = _CODES.get(self.code) or _STATUSES.get(self.status)
        told = f"{_BEGINNINGS.get(self.code, 'the server refused')}: {message}"
        if kind is None:
            return BadInput(told, hint=hint)
        return kind(told + (f"\n  {hint}" if hint else ""))

    def require(self, *statuses: int) -> Answer:
        """Return this answer if its status is one of these, else raise what it means."""
        if self.status in statuses:
            return self
        if self.status < 400:
            raise MalformedMessage(f"the server answered with status {self.status}, which means nothing here")
        raise self.error()

    def _error(self) -> dict[str, Any]:
        try:
            found = self.json().get("error")
        except MalformedMessage:
            return {}
        return found if isinstance(found, dict) else {}


def waiting(answer: Answer) -> str:
    """Say why there are no parameters for this device now."""
    return WAITING.get(answer.headers.get("crowdml-waiting", ""), "the server has no work for this device now")


def readable(text: object) -> str:
    r"""Keep what a terminal can show of a stranger's text, and not too much of it.

    >>> readable("\x1b[2Jtoo old")
    '[2Jtoo old'
    """
    return "".join(letter for letter in str(text or "")[:300] if letter.isprintable())
