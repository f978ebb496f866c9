"""The connection to a server: one request at a time, asked again with patience when nobody answers.

Between two tries a device waits a random time below a limit that doubles (full jitter, from the operating system's
entropy), so that a thousand devices do not come back at the same moment. A server may ask for more time, up to a cap.
An answer that is not whole after a while is given up like one that never came. Answers larger than expected,
compressed answers and redirects are refused. Clock and sleep are arguments.

A refusal becomes one of our errors; what a server says in words is shown, as far as a terminal can show it.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import random
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from crowdml.core import BadInput, CrowdError, record
from crowdml.core.errors import (
    BudgetExhausted,
    MalformedMessage,
    NotAuthorised,
    StaleCheckIn,
    TaskClosed,
    TermsViolated,
    Unreachable,
    untrusted,
)
from crowdml.device.deadline import Deadline, httpx
from crowdml.wire import PROTOCOL_HEADER, PROTOCOL_VERSION
from crowdml.wire.messages import server_protocol_problem

BUSY = (408, 429, 500, 502, 503, 504)
"""Statuses after which the same request is sent again."""
SMALL_ANSWER = 1 << 20
LONGEST_PAUSE_S = 4.0
"""How much longer than the server asked a device waits for the next round, at most."""
ANSWER_S = 60.0
"""How long a server may take for an exchange; what is sent and what may be answered add their time on a slow link."""
TIMEOUT = httpx.Timeout(connect=10.0, read=60.0, write=60.0, pool=10.0)
LONGEST_RETRY_S = 300.0
"""A server cannot make a device wait longer than this between two tries."""

GO_ON = (
    *("stale", "future-version", "already-in-round", "not-invited"),
    *("late", "not-a-member", "sum-aborted", "sum-over"),
)
"""Refusals after which the next release may well be used. A member that was silent for too long is one no more."""
_CODES: dict[str, type[CrowdError]] = {
    **dict.fromkeys(GO_ON, StaleCheckIn),
    "invite-used": NotAuthorised,
    "revoked": NotAuthorised,
    "releases-spent": BudgetExhausted,
    "task-changed": TermsViolated,
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
    **dict.fromkeys((401, 403), NotAuthorised),
    409: StaleCheckIn,
    410: TaskClosed,
    **dict.fromkeys((413, 415, 422), MalformedMessage),
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

    def number(self, name: str, missing: int | None = None) -> int:
        """Take a whole number out of the JSON object; `missing` is for what earlier servers do not say."""
        value = self.json().get(name, missing)
        if type(value) is not int or not 0 <= value < 2**63:
            raise MalformedMessage(f'the server\'s answer has no whole number "{name}"')
        return value

    @property
    def code(self) -> str:
        """Short name of the reason for a refusal; empty where there is none."""
        return str(self._error().get("code", ""))

    @property
    def waiting(self) -> str:
        """Why there are no parameters for this device now."""
        return WAITING.get(self.headers.get("crowdml-waiting", ""), "the server has no work for this device now")

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


def readable(text: object) -> str:
    r"""Keep what a terminal can show of a stranger's text, and not too much of it.

    >>> readable("\x1b[2Jtoo old")
    '[2Jtoo old'
    """
    return "".join(letter for letter in str(text or "")[:300] if letter.isprintable())


@record
class Backoff:
    """How long to wait between tries.

    Attributes:
        first_s: Limit of the first wait.
        longest_s: No limit grows beyond this.
        uniform: `uniform(low, high)`: a random number; from the operating system unless a test gives one.
    """

    first_s: float = 0.5
    longest_s: float = 60.0
    uniform: Callable[[float, float], float] = random.SystemRandom().uniform

    def wait_s(self, tries: int, asked_s: float | None) -> float:
        """Return how long to wait after so many tries in a row, at least as long as the server asked for.

        >>> Backoff(uniform=lambda low, high: high).wait_s(tries=3, asked_s=None)
        2.0
        """
        limit = min(self.longest_s, self.first_s * 2.0 ** min(tries - 1, 60))
        return (asked_s or 0.0) + self.uniform(0.0, limit)


class Connection:
    """Requests to one server.

    Args:
        server: Its address, such as `https://crowd.example:8800`.
        ca: File of the certificates to trust instead of the usual ones.
        plain_http: Whether http may be used beyond this machine, where anybody on the way can read the token.
        patience_s: How long to go on asking when nobody answers; None: for ever.
        tell: Called with one line about every wait.
        answer_s: How long a server may take for an exchange, beside the time its bytes take on the slowest link.
        transport: For tests: what stands for the network.
        clock: Monotonic seconds.
        sleep: Waits.
        backoff: How long to wait between tries.
    """

    def __init__(
        self,
        server: str,
        *,
        ca: Path | None = None,
        plain_http: bool = False,
        patience_s: float | None = None,
        tell: Callable[[str], None] | None = None,
        answer_s: float = ANSWER_S,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        backoff: Backoff = Backoff(),  # noqa: B008  a frozen record
    ) -> None:
        """Check the address; nothing is sent yet."""
        local = _is_local(_host(server))
        if server.startswith("http:") and not local and not plain_http:
            raise BadInput(
                f"{server} is not encrypted: anybody on the way could read this device's token",
                hint="use https, or --plain-http if you trust the network",
            )
        self.server, self.token = server, ""
        self._patience_s, self._tell = patience_s, tell or (lambda line: None)
        self._clock, self._sleep, self._backoff = clock, sleep, backoff
        self.trust, self.trust_env = _trust(server, ca), not local
        self._http = httpx.Client(
            base_url=server,
            verify=self.trust,
            transport=transport,
            timeout=TIMEOUT,
            follow_redirects=False,
            trust_env=self.trust_env,
            headers={PROTOCOL_HEADER: str(PROTOCOL_VERSION), "Accept-Encoding": "identity"},
        )
        self._deadline = Deadline(clock, answer_s)
        self._deadline.guard(self._http)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request: which protocol, and who asks."""
        token = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {PROTOCOL_HEADER: str(PROTOCOL_VERSION), **token}

    def gives_up(self, waited_s: float) -> bool:
        """Tell whether nobody has answered for as long as we are patient."""
        return self._patience_s is not None and waited_s > self._patience_s

    def close(self) -> None:
        """Let go of the network."""
        self._http.close()

    def ask(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        limit: int = SMALL_ANSWER,
    ) -> Answer:
        """Send a request until it is answered, always with the same bytes.

        Args:
            method: HTTP method.
            path: Below the server's address.
            headers: Beside protocol and token.
            content: Body of the request.
            limit: Bytes in an answer at most.

        Raises:
            Unreachable: Nobody answered for as long as we were patient.
            MalformedMessage: The answer is too large, compressed, or of another protocol.
        """
        begun, tries = self._clock(), 0
        sent = dict(headers or {}) | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        while True:
            tries += 1
            answer, why = self._try(method, path, sent, content, limit)
            if answer is not None and answer.status not in BUSY:
                return answer
            asked_s = answer.retry_after_s if answer else None
            wait_s = self._backoff.wait_s(tries, asked_s)
            if self._patience_s is not None and self._clock() + wait_s - begun > self._patience_s:
                raise Unreachable(f"{self.server}: {why} ({tries} tries)")
            self._tell(f"{why}; asking again in {wait_s:.1f} s")
            self._sleep(wait_s)

    def pause(self, asked_s: float | None, tries: int, why: str) -> None:
        """Wait before asking for something that is not there yet, but may come at any moment."""
        soon = dataclasses.replace(self._backoff, longest_s=min(self._backoff.longest_s, LONGEST_PAUSE_S))
        wait_s = soon.wait_s(tries, asked_s)
        if tries == 1:
            self._tell(f"{why}; asking again from time to time")
        self._sleep(wait_s)

    def _try(
        self, method: str, path: str, headers: dict[str, str], content: bytes | None, limit: int
    ) -> tuple[Answer | None, str]:
        """Send once; return the answer, or None, and what to say if it is not final."""
        self._deadline.begin(limit + len(content or b""))
        try:
            with self._http.stream(method, path, headers=headers, content=content) as response:
                answer = _read(response, limit)
        except (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError) as error:
            _explain_certificate(error, self.server)
            return None, f"no answer ({str(error) or type(error).__name__})"
        problem = server_protocol_problem(answer.headers)
        if problem is not None:
            raise MalformedMessage(problem)
        return answer, WAITING.get(answer.code, f"the server is busy ({answer.status})")


def _read(response: httpx.Response, limit: int) -> Answer:
    """Read an answer up to a limit, exactly as it came."""
    if 300 <= response.status_code < 400 and response.status_code != 304:
        raise MalformedMessage(f"the server redirects ({response.status_code}); a device follows no redirect")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise MalformedMessage("the server's answer is compressed, though that was not asked for")
    parts, size = [], 0
    for part in response.iter_raw():
        size += len(part)
        if size > limit:
            raise MalformedMessage(f"the server's answer is larger than {limit} bytes")
        parts.append(part)
    return Answer(status=response.status_code, headers=response.headers, body=b"".join(parts))


def _explain_certificate(error: BaseException, server: str) -> None:
    """A certificate that is not trusted does not become so by waiting."""
    why = untrusted(error)
    if why is not None:
        raise BadInput(
            f"{server} shows a certificate that is not trusted: {why}",
            hint="get the operator's certificate authority, compare its fingerprint, and join with it: crowdml device "
            "join LINK --ca FILE",
        ) from None


def _trust(server: str, ca: Path | None) -> ssl.SSLContext:
    if not server.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used; reading all usual certificates takes time
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except (OSError, ssl.SSLError) as error:
        raise BadInput(f"{ca} holds no certificates: {error}", where="--ca") from None


def _host(server: str) -> str:
    try:
        url = httpx.URL(server)
        if (url.port or 0) < 1 << 16:
            return url.host
        why = f"there is no port {url.port}"
    except httpx.InvalidURL as error:
        why = str(error)
    raise BadInput(f"{server} is not an address: {why}", hint="such as https://crowd.example:8800")


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
