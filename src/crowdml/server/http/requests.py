"""Requests: headers, who asks and how often, a body of known size; and answers to raw routes.

Bodies are limited before anything is read. Pace goes by a clock that never goes back.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, MutableMapping
from typing import Any

from crowdml.core import CrowdError, record
from crowdml.server.http.whole_body import EXTENSION
from crowdml.server.refusals import ALWAYS, BODILESS, Answer, Refusal, refusal_of

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

FORMS, SIGN_IN = "/operator/", "/operator/sign-in"
"""Where forms are sent, and the one that strangers send."""

LARGEST_BODY = 64 << 10
LARGEST_TASK = 96 << 20
"""A new task carries the arrays of its transforms. Only the operator may send so much."""

LARGEST_FORM = 4 << 20
"""A form with a task file, which goes from page to page. Only a browser that has signed in may send so much."""

REFUSED = "crowdml.refused"
"""Where the framework finds why a form is not read."""

LARGEST_TABLE = 100_000
"""Callers remembered at most; the one not seen for longest is forgotten first."""

_SINGLE = frozenset(
    (
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"idempotency-key",
        b"origin",
        b"range",
    )
)


def caller_of(address: str) -> str:
    """Name who stands behind an address: of IPv6 the network, within which everybody has addresses without number.

    >>> caller_of("192.0.2.7"), caller_of("::ffff:192.0.2.7"), caller_of("2001:db8:1:2:3::4")
    ('192.0.2.7', '192.0.2.7', '2001:db8:1:2::/64')
    """
    if ":" not in address:
        return address
    try:
        full = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    return str(full.ipv4_mapped or ipaddress.IPv6Network((int(full) >> 64 << 64, 64)))


@record
class Pace:
    """So many requests a second in the long run, and so many at once."""

    per_second: float
    burst: int


class Limiter:
    """A bucket of tokens for every caller.

    >>> now = [0.0]
    >>> limiter = Limiter(Pace(per_second=1.0, burst=2), clock=lambda: now[0])
    >>> [limiter.wait("a") for _ in range(3)]
    [0.0, 0.0, 1.0]
    """

    def __init__(self, pace: Pace, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with full buckets."""
        self._whole = self._pace = pace
        self._clock = clock
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def share(self, among: int) -> None:
        """Give each caller one part of its pace here, as others count the rest."""
        whole = self._whole
        self._pace = Pace(per_second=whole.per_second / among, burst=max(whole.burst // among, 1))

    def wait(self, caller: Hashable) -> float:
        """Take one token and return 0, or return after how many seconds there will be one."""
        now, pace = self._clock(), self._pace
        tokens, seen = self._buckets.pop(caller, (float(pace.burst), now))
        tokens = min(float(pace.burst), tokens + (now - seen) * pace.per_second)
        allowed = tokens >= 1.0
        self._buckets[caller] = (tokens - 1.0 if allowed else tokens), now
        if len(self._buckets) > LARGEST_TABLE:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - tokens) / pace.per_second

    def require(self, caller: Hashable) -> None:
        """Take one token, or refuse."""
        wait_s = self.wait(caller)
        if wait_s:
            raise Refusal(429, "too-fast", "too many requests", retry_after_s=math.ceil(wait_s))


@dataclasses.dataclass(slots=True, kw_only=True)
class Request:
    """What a raw route looks at. Not frozen, because that would triple what making one costs; nobody changes it.

    Attributes:
        headers: Headers by lower-case name.
        address: Where the request came from, as limits count it.
        task: Name of the task in its path, where there is one.
        stage: Stage of a secure sum in its path, where there is one.
        whole_body: Reads a large body without copies, where the connection can: see `whole_body`.
    """

    headers: dict[bytes, bytes]
    address: str
    task: str = ""
    stage: str = ""
    whole_body: Callable[[int], Awaitable[memoryview | None]] | None = None

    @staticmethod
    def of(scope: Scope) -> Request:
        """Read what ASGI says of a request."""
        client = scope.get("client")
        request = Request.read(scope["headers"], caller_of(client[0]) if client else "")
        if "extensions" in scope:
            request.whole_body = scope["extensions"].get(EXTENSION)
        return request

    @staticmethod
    def read(pairs: Iterable[tuple[bytes, bytes]], address: str) -> Request:
        """Read the headers; one that must be single and is not is refused."""
        headers: dict[bytes, bytes] = {}
        for name, value in pairs:
            if name in headers and name in _SINGLE:
                raise Refusal(400, "repeated-header", f"the header {name.decode('latin-1')} stands twice")
            headers[name] = value
        return Request(headers=headers, address=address)

    def token(self) -> bytes:
        """Return the bearer token, or nothing."""
        kind, _, token = self.headers.get(b"authorization", b"").partition(b" ")
        return token if kind.lower() == b"bearer" else b""

    def bearer(self) -> bytes:
        """Return the bearer token, or refuse."""
        token = self.token()
        if not token:
            raise Refusal(401, "not-authorised", "a token is needed", hint="Authorization: Bearer TOKEN")
        return token


def length_of(value: bytes) -> int:
    """Read a Content-Length; one that is no number counts as larger than anything."""
    return int(value) if value.isdigit() and len(value) < 16 else 1 << 62


async def send_answer(send: Send, answer: Answer) -> None:
    """Send an answer with its length and the headers that every answer has."""
    headers = [*answer.headers, *ALWAYS]
    if answer.status not in BODILESS:
        headers.append((b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def read_large_body(request: Request, receive: Receive, size: int) -> bytes | memoryview:
    """Read a body of exactly that size, as `read_body` does, and without copies where it is large."""
    if request.whole_body is not None and (body := await request.whole_body(size)) is not None:
        return body
    return await read_body(receive, size)


async def read_body(receive: Receive, size: int) -> bytes:
    """Read a body of exactly that size; the deadline of the connection ends a body that never comes."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) == size:
            return body
    parts, got = [message.get("body", b"")], len(message.get("body", b""))
    while message.get("more_body") and got <= size:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        parts.append(message.get("body", b""))
        got += len(parts[-1])
    require_size(got, size)
    return b"".join(parts)


def require_size(got: int, size: int) -> None:
    """Refuse a body of another length."""
    if got != size:
        raise Refusal(422, "malformed", f"the body has {got} bytes, {size} were expected")


class BodyLimit:
    """Refuses bodies of the control plane that are too long, by their headers alone.

    Args:
        inner: The application.
        is_operator: Tells the operator's token.
        has_session: Tells by its headers whether a request comes from a browser in which the operator has signed in.
    """

    def __init__(
        self, inner: Asgi, is_operator: Callable[[bytes], bool], has_session: Callable[[Iterable[Header]], bool]
    ) -> None:
        self._inner, self._is_operator, self._has_session = inner, is_operator, has_session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._inner(scope, receive, send)
            return
        path: str = scope["path"]
        makes_task, is_form = path == "/v1/tasks", path.startswith(FORMS) and path != SIGN_IN
        try:
            request = Request.of(scope)
            if makes_task:
                known = self._is_operator(request.token())
            else:
                known = not is_form or self._has_session(scope["headers"])
            if known:
                _require_short(request, LARGEST_TASK if makes_task else LARGEST_FORM if is_form else LARGEST_BODY)
            else:
                # Refused by its token or its cookie; not a byte of it is kept in memory.
                receive = _nothing
        except CrowdError as error:
            if not is_form:
                await send_answer(send, refusal_of(error).answer())
                return
            # Somebody sits before that form: the framework says it on a page.
            scope[REFUSED], receive = error, _nothing
        await self._inner(scope, receive, send)


def _require_short(request: Request, largest: int) -> None:
    headers = request.headers
    if b"transfer-encoding" in headers:
        raise Refusal(411, "length", "a request says how long it is", hint="Content-Length: BYTES")
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise Refusal(415, "encoding", "bodies are not compressed")
    if length_of(headers.get(b"content-length", b"0")) > largest:
        raise Refusal(413, "too-large", f"a body may have {largest} bytes")


async def _nothing() -> MutableMapping[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}
