"""Answers and refusals: the one shape of every error, and which error of ours becomes which status.

{"error": {"code": "stale", "message": "…", "hint": "…", …}}
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from crowdml.core import CrowdError
from crowdml.core.errors import (
    BadInput,
    BudgetExhausted,
    MalformedMessage,
    NotAuthorised,
    StaleCheckIn,
    TaskClosed,
    TermsViolated,
)
from crowdml.server.store.store_records import StoreConflict, StoreFailed
from crowdml.wire import PROTOCOL_HEADER, PROTOCOL_VERSION

JSON = (b"content-type", b"application/json")
PROTOCOL = (PROTOCOL_HEADER.encode(), str(PROTOCOL_VERSION).encode())
NOSNIFF = (b"x-content-type-options", b"nosniff")
NO_STORE = (b"cache-control", b"no-store")
ALWAYS = (PROTOCOL, NOSNIFF)
"""Headers of every answer."""
BODILESS = (204, 304)
"""Statuses of answers that have no body, and say no length."""
Headers = tuple[tuple[bytes, bytes], ...]

KINDS: dict[type[CrowdError], tuple[int, str]] = {
    BadInput: (422, "bad-input"),
    MalformedMessage: (422, "malformed"),
    StaleCheckIn: (409, "stale"),
    TermsViolated: (409, "terms"),
    BudgetExhausted: (409, "budget"),
    NotAuthorised: (401, "not-authorised"),
    TaskClosed: (410, "closed"),
    StoreConflict: (409, "conflict"),
    StoreFailed: (503, "failed"),
}
"""Kind of error → status and code."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Answer:
    """What goes back for one request. Not frozen, because that would triple what making one costs; nobody changes it.

    Attributes:
        status: HTTP status.
        body: Bytes of the body.
        headers: Headers beside length and protocol.
    """

    status: int
    body: bytes = b""
    headers: Headers = (JSON, NO_STORE)


class Refusal(CrowdError):
    """A request that is refused, with the answer that says why.

    Args:
        status: HTTP status.
        code: Short name of the reason, for programs.
        message: What is wrong, for people.
        hint: What would be right.
        retry_after_s: Seconds after which the same request may succeed.
        extra: More values for programs.
    """

    def __init__(
        self, status: int, code: str, message: str, *, hint: str = "", retry_after_s: int | None = None, **extra: Any
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.hint, self.retry_after_s, self.extra = status, code, hint, retry_after_s, extra

    def answer(self) -> Answer:
        """Make the answer: code, message and hint as JSON, and the headers that go with the status."""
        error = {"code": self.code, "message": str(self)} | ({"hint": self.hint} if self.hint else {}) | self.extra
        headers: Headers = (JSON, NO_STORE)
        if self.retry_after_s is not None:
            headers = (*headers, (b"retry-after", str(self.retry_after_s).encode()))
        if self.status == 401:
            headers = (*headers, (b"www-authenticate", b"Bearer"))
        return Answer(status=self.status, body=json.dumps({"error": error}).encode(), headers=headers)


def refusal_of(error: CrowdError) -> Refusal:
    """Turn one of our errors into a refusal."""
    if isinstance(error, Refusal):
        return error
    status, code = next((known for kind, known in KINDS.items() if isinstance(error, kind)), (422, "bad-input"))
    if isinstance(error, BadInput):
        message = f"{error.where}: {error.what}" if error.where else error.what
        return Refusal(status, code, message, hint=error.hint)
    if isinstance(error, StoreFailed):
        # What went wrong inside is for the log; whoever asked only learns that it may be asked again.
        return Refusal(status, code, "the server could not store this", retry_after_s=5)
    return Refusal(status, code, str(error))


def json_answer(content: Any, status: int = 200) -> Answer:
    """Answer with JSON."""
    return Answer(status=status, body=json.dumps(content).encode())
