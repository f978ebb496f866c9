"""The front door: who may ask and how often, and which requests go to raw routes instead of the framework."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, MutableMapping
from typing import Any, Protocol

from crowdml.core import CrowdError, record
from crowdml.server.http.direct import Expected
from crowdml.server.http.requests import Asgi, Limiter, Pace, Receive, Request, Scope, Send, send_answer
from crowdml.server.http.routes import RAW_ROUTES, SUM_STAGES
from crowdml.server.http.websockets.relay import refuse_socket
from crowdml.server.refusals import ALWAYS, NO_STORE, PROTOCOL, Answer, Headers, Refusal, json_answer, refusal_of
from crowdml.server.tasks.device_tokens import Tokens

RawHandler = Callable[[Request, Receive], Awaitable[Answer]]
DirectHandler = Callable[[Request], Expected | Answer | None]
"""Begins to answer without waiting for anything, or leaves it to the usual way; see `direct`."""
SocketHandler = Callable[[Request, Scope, Receive, Send], Awaitable[None]]
"""Serves a WebSocket from its handshake to its end."""

_IN_TASK = re.compile(r"/v1/tasks/([a-z0-9-]{1,63})(/[a-z0-9/-]+)")
_RELAY = re.compile(r"/v1/tasks/([a-z0-9-]{1,63})/relay")
_LARGEST_PARTS = 4
_SAFE = ("GET", "HEAD", "OPTIONS")
_OWN_SITE = (b"same-origin", b"none")
"""What browsers say of a request that comes from a page of ours, or from no page."""
_ISOLATED: Headers = (
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
)
"""Keeps other sites from taking what the framework answers into their pages."""
_KNOWN = (*_SAFE, "POST", "PUT", "PATCH", "DELETE")


@record
class Access:
    """Who may ask, and how often.

    Attributes:
        hosts: Values of the Host header, without port, that this server answers to.
        device_pace: Requests of one device.
        stranger_pace: Requests of one address with a token that is not valid, enrolments included.
        reader_pace: Requests of one address that has no valid token, whatever it reads.
        address: What invites give as the server's address; None: as the request was made.
        scheme: http or https, as browsers know this server; None: as the request was made.
        secure_s: Seconds for which browsers shall ask by https alone; 0: they are not told.
    """

    hosts: Collection[str] = ("127.0.0.1", "localhost", "[::1]")
    device_pace: Pace = Pace(per_second=50.0, burst=200)
    stranger_pace: Pace = Pace(per_second=5.0, burst=100)
    reader_pace: Pace = Pace(per_second=20.0, burst=200)
    address: str | None = None
    scheme: str | None = None
    secure_s: int = 0


class RawTable:
    """Finds the raw route of a path: with one look at a pattern and one into a dictionary, because devices wait.

    Args:
        handlers: The functions that the table names.
    """

    def __init__(self, handlers: Mapping[str, RawHandler]) -> None:
        self._fixed: dict[str, dict[str, RawHandler]] = {}
        self._in_task: dict[str, tuple[dict[str, RawHandler], str]] = {}
        for route in RAW_ROUTES:
            for method in route.methods:
                self._add(method, route.path, handlers[route.handler])

    def _add(self, method: str, path: str, handler: RawHandler) -> None:
        _, task, rest = path.partition("/v1/tasks/{task}")
        if not task:
            self._fixed.setdefault(path, {})[method] = handler
            return
        for stage in SUM_STAGES if "{stage}" in rest else ("",):
            methods, _ = self._in_task.setdefault(rest.replace("{stage}", stage), ({}, stage))
            methods[method] = handler

    def find(self, path: str) -> tuple[dict[str, RawHandler], str, str] | None:
        """Return the handlers of a path by method, with its task and stage; None if the framework has to answer."""
        found = _IN_TASK.fullmatch(path)
        if found is None:
            fixed = self._fixed.get(path)
            return None if fixed is None else (fixed, "", "")
        known = self._in_task.get(found[2])
        return None if known is None else (known[0], found[1], known[1])


class Crowd(Protocol):
    """What the door knows of tasks: who may speak, and whether all goes well."""

    tokens: Tokens

    def is_operator(self, token: bytes) -> bool:
        """Tell the operator's token."""
        ...

    @property
    def well(self) -> bool:
        """Whether whatever changes tasks still works."""
        ...


class FrontDoor:
    """Answers raw routes; everything else goes on to the framework.

    Args:
        coordinator: Knows the tasks.
        handlers: The functions that the table names for raw routes, but for that of health.
        framework: The control plane and the pages.
        access: Who may ask, and how often.
        lifespan: Starts and ends the server.
        direct: Functions that answer some of the raw routes without a coroutine, by the same names.
        relay: Serves WebSockets of a task's members.

    Attributes:
        always: Headers of every answer.
    """

    def __init__(
        self,
        coordinator: Crowd,
        handlers: Mapping[str, RawHandler],
        framework: Asgi,
        access: Access,
        lifespan: Asgi,
        direct: Mapping[str, DirectHandler],
        relay: SocketHandler,
    ) -> None:
        self._relay = relay
        self._coordinator, self._framework, self._access, self._lifespan = coordinator, framework, access, lifespan
        self._readers = Limiter(access.reader_pace)
        # Asked often, and before anything else; so it does not wait for the framework.
        self._raw = RawTable({**handlers, "front_door.health": self._health})
        self._direct: dict[RawHandler | None, DirectHandler] = {handlers[name]: direct[name] for name in direct}
        self._hosts = frozenset(host.lower().encode() for host in access.hosts)
        secure = f"max-age={access.secure_s}".encode()
        self.always: Headers = (*ALWAYS, (b"strict-transport-security", secure)) if access.secure_s else ALWAYS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
            return
        if self._access.secure_s:
            send = _marked(send, self.always)
        method, found = scope["method"], self._raw.find(scope["path"])
        if method not in _KNOWN:
            unknown = Refusal(405, "method", "this server knows no such method")
            await send_answer(send, _not_allowed(unknown, ", ".join(_KNOWN)))
            return
        try:
            request = Request.of(scope)
            _require_protocol(request.headers)
            self._require_host(request.headers, method, scope["scheme"])
            if found is None:
                self._require_pace(request)
        except CrowdError as error:
            await send_answer(send, refusal_of(error).answer())
            return
        if found is None:
            await self._framework(scope, receive, _marked(send, (*self.always, NO_STORE, *_ISOLATED)))
            return
        methods, request.task, request.stage = found
        handler = methods.get(method)
        if handler is None:
            allowed = ", ".join(sorted(methods))
            await send_answer(send, _not_allowed(Refusal(405, "method", f"this is asked for by {allowed}"), allowed))
            return
        try:
            answer = await handler(request, receive)
        except CrowdError as error:
            answer = refusal_of(error).answer()
        await send_answer(send, answer)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a WebSocket: there is one route that takes them, and no page may open one from elsewhere."""
        found = _RELAY.fullmatch(scope["path"])
        try:
            request = Request.of(scope)
            _require_protocol(request.headers)
            self._require_host(request.headers, "POST", {"ws": "http", "wss": "https"}[scope["scheme"]])
            if found is None:
                self._readers.require(request.address)
                raise Refusal(404, "no-route", "no WebSocket is served here", hint="/v1/tasks/TASK/relay")
        except CrowdError as error:
            await receive()
            await refuse_socket(send, refusal_of(error).answer())
            return
        request.task = found[1]
        await self._relay(request, scope, receive, send)

    def expect(
        self, method: bytes, url: bytes, headers: Iterable[tuple[bytes, bytes]], address: str, scheme: str
    ) -> Expected | Answer | None:
        """Begin to answer a request without a coroutine; None where it goes the usual way."""
        found, verb = self._raw.find(url.decode("latin-1")), method.decode("latin-1")
        handler = found and self._direct.get(found[0].get(verb))
        if not (found and handler):
            return None
        try:
            request = Request.read(headers, address)
            _require_protocol(request.headers)
            self._require_host(request.headers, verb, scheme)
        except CrowdError as error:
            return refusal_of(error).answer()
        request.task, request.stage = found[1:]
        return handler(request)

    async def _health(self, request: Request, receive: Receive) -> Answer:
        """Say whether every writer works."""
        well = self._coordinator.well
        return json_answer({"status": "ok" if well else "failed"}, 200 if well else 503)

    def _require_pace(self, request: Request) -> None:
        """Refuse a stranger that asks too often; devices have a pace of their own, and the operator none."""
        token = request.token()
        if not token or not (self._coordinator.tokens.find(token) or self._coordinator.is_operator(token)):
            self._readers.require(request.address)

    def _require_host(self, headers: dict[bytes, bytes], method: str, scheme: str) -> None:
        """Refuse foreign names (DNS rebinding), and unsafe methods that come from foreign pages."""
        host, origin = headers.get(b"host"), headers.get(b"origin")
        if host is None or (host not in self._hosts and _bare(host) not in self._hosts):
            raise Refusal(400, "host", "this server does not answer to that name", hint="crowdml serve --allow-host")
        if b"range" in headers and headers[b"range"].count(b",") >= _LARGEST_PARTS:
            raise Refusal(400, "range", "too many parts of a file at once")
        if method not in _SAFE:
            here = f"{self._access.scheme or scheme}://".encode() + host
            site = headers.get(b"sec-fetch-site", b"none")
            if (origin is not None and origin.lower() != here.lower()) or site not in _OWN_SITE:
                raise Refusal(403, "origin", "requests from other pages are not answered")


def _require_protocol(headers: dict[bytes, bytes]) -> None:
    """Refuse a device or a command that speaks another protocol; browsers name none."""
    spoken = headers.get(PROTOCOL[0], PROTOCOL[1])
    if spoken != PROTOCOL[1]:
        raise Refusal(
            400,
            "protocol",
            f"this server speaks protocol {PROTOCOL[1].decode()}, and the request {spoken[:20].decode('latin-1')!r}",
            hint="install the crowdml that fits this server",
        )


def _marked(send: Send, wanted: Headers) -> Send:
    """Add headers to an answer, but for those that it has already."""

    async def marked(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            known = {name for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(header for header in wanted if header[0] not in known)]
        await send(message)

    return marked


def _not_allowed(refusal: Refusal, allowed: str) -> Answer:
    """Refuse a method, and say which there are."""
    answer = refusal.answer()
    return Answer(status=answer.status, body=answer.body, headers=(*answer.headers, (b"allow", allowed.encode())))


def _bare(host: bytes) -> bytes:
    """Take the port off a host."""
    name, colon, port = host.rpartition(b":")
    return (name if colon and port.isdigit() else host).lower()
