"""The front door: which hosts may be asked for, and which requests go to raw routes instead of the framework."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, MutableMapping
from typing import Any

from crowdml.core import CrowdError, record
from crowdml.server.answers import ALWAYS, NO_STORE, Answer, Headers, Refusal, json_answer, refusal_of
from crowdml.server.asgi import Asgi, Receive, Request, Scope, Send, send_answer
from crowdml.server.coordinator import Coordinator
from crowdml.server.exchange import Exchange
from crowdml.server.lifespan import live
from crowdml.server.limits import Limiter

_EXCHANGE = re.compile(r"/v1/tasks/([a-z0-9-]{1,63})/(check-out|check-ins)")
_METHODS = {"check-out": "GET", "check-ins": "POST"}
_LARGEST_PARTS = 4
_SAFE = ("GET", "HEAD", "OPTIONS")
_KNOWN = (*_SAFE, "POST", "PUT", "PATCH", "DELETE")
HEALTH = "/healthz"
"""Asked often, and before anything else; so it does not wait for the framework."""


@record
class Door:
    """Who is let in.

    Attributes:
        hosts: Values of the Host header, without port, that this server answers to.
        readers: Pace of each address that reads without a valid token.
        scheme: Of the address under which browsers know this server; None: as the request was made.
        secure_s: Seconds for which browsers shall ask by https alone; 0: they are not told.
    """

    hosts: Collection[str]
    readers: Limiter
    scheme: str | None = None
    secure_s: int = 0


class Front:
    """Routes by path and method; everything else is the framework's.

    Args:
        coordinator: All tasks.
        exchange: Check-out and check-in.
        framework: The control plane and the pages.
        door: Names that this server answers to, its scheme, and the pace of strangers.
        begun: Called once devices are served.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        exchange: Exchange,
        framework: Asgi,
        door: Door,
        begun: Callable[[], object],
    ) -> None:
        """Keep the parts."""
        self._coordinator, self._exchange, self._framework = coordinator, exchange, framework
        self._begun, self._door = begun, door
        self._hosts = frozenset(host.lower().encode() for host in door.hosts)
        secure = f"max-age={door.secure_s}".encode()
        self._always = (*ALWAYS, (b"strict-transport-security", secure)) if door.secure_s else ALWAYS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await live(self._coordinator, self._begun, receive, send)
            return
        if self._door.secure_s:
            send = _marked(send, self._always)
        found = _EXCHANGE.fullmatch(scope["path"])
        if scope["method"] not in _KNOWN:
            await send_answer(send, _not_allowed(", ".join(_KNOWN), "this server knows no such method"))
            return
        try:
            request = Request.of(scope)
            self._require_host(request.headers, scope["method"], scope["scheme"])
            if found is None and scope["path"] != HEALTH:
                self._require_pace(request)
        except CrowdError as error:
            await send_answer(send, refusal_of(error).answer())
            return
        if found is None and scope["path"] == HEALTH and scope["method"] == "GET":
            await send_answer(send, health_of(self._coordinator))
        elif found is None:
            await self._framework(scope, receive, _marked(send, (*self._always, NO_STORE)))
        elif scope["method"] != _METHODS[found[2]]:
            await send_answer(send, _not_allowed(_METHODS[found[2]]))
        elif found[2] == "check-ins":
            await self._exchange.check_in(found[1], request, receive, send)
        else:
            await self._exchange.check_out(found[1], request, send)

    def _require_pace(self, request: Request) -> None:
        """Refuse a stranger that asks too often; devices have a pace of their own, and the operator none."""
        token = request.token()
        if not token or not (self._coordinator.tokens.find(token) or self._coordinator.is_operator(token)):
            self._door.readers.require(request.address)

    def _require_host(self, headers: dict[bytes, bytes], method: str, scheme: str) -> None:
        """Refuse foreign names (DNS rebinding), and unsafe methods that come from foreign pages."""
        host, origin = headers.get(b"host"), headers.get(b"origin")
        if host is None or (host not in self._hosts and _bare(host) not in self._hosts):
            raise Refusal(400, "host", "this server does not answer to that name", hint="crowdml serve --allow-host")
        if b"range" in headers and headers[b"range"].count(b",") >= _LARGEST_PARTS:
            raise Refusal(400, "range", "too many parts of a file at once")
        if origin is not None and method not in _SAFE:
            here = f"{self._door.scheme or scheme}://".encode() + host
            if origin.lower() != here.lower():
                raise Refusal(403, "origin", "requests from other pages are not answered")


def health_of(coordinator: Coordinator) -> Answer:
    """Say whether every writer works."""
    well = all(writer.alive for writer in coordinator.writers.values())
    return json_answer({"status": "ok" if well else "failed"}, 200 if well else 503)


def _marked(send: Send, wanted: Headers) -> Send:
    """Add headers to an answer, but for those that it has already."""

    async def marked(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            known = {name for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(own for own in wanted if own[0] not in known)]
        await send(message)

    return marked


def _not_allowed(allowed: str, why: str = "") -> Answer:
    answer = Refusal(405, "method", why or f"this is asked for by {allowed}").answer()
    return Answer(status=405, body=answer.body, headers=(*answer.headers, (b"allow", allowed.encode())))


def _bare(host: bytes) -> bytes:
    """Take the port off a host."""
    name, colon, port = host.rpartition(b":")
    return (name if colon and port.isdigit() else host).lower()
