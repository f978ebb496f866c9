"""The front door: which hosts may be asked for, and which requests go to raw routes instead of the framework."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, MutableMapping
from typing import Any

from crowdml.core import CrowdError
from crowdml.server.answers import PROTOCOL, Answer, Refusal, json_answer, refusal_of
from crowdml.server.asgi import Asgi, Receive, Request, Scope, Send, send_answer
from crowdml.server.coordinator import Coordinator
from crowdml.server.exchange import Exchange
from crowdml.server.lifespan import live

_EXCHANGE = re.compile(r"/v1/tasks/([a-z0-9-]{1,63})/(check-out|check-ins)")
_METHODS = {"check-out": "GET", "check-ins": "POST"}
_LARGEST_PARTS = 4
_SAFE = ("GET", "HEAD", "OPTIONS")
HEALTH = "/healthz"
"""Asked often, and before anything else; so it does not wait for the framework."""


class Front:
    """Routes by path and method; everything else is the framework's.

    Args:
        coordinator: All tasks.
        exchange: Check-out and check-in.
        framework: The control plane and the pages.
        hosts: Values of the Host header, without port, that this server answers to.
        begun: Called once devices are served.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        exchange: Exchange,
        framework: Asgi,
        hosts: Collection[str],
        begun: Callable[[], object],
    ) -> None:
        """Keep the parts."""
        self._coordinator, self._exchange, self._framework = coordinator, exchange, framework
        self._begun = begun
        self._hosts = frozenset(host.lower().encode() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await live(self._coordinator, self._begun, receive, send)
            return
        try:
            request = Request.of(scope)
            self._require_host(request.headers, scope["method"])
        except CrowdError as error:
            await send_answer(send, refusal_of(error).answer())
            return
        found = _EXCHANGE.fullmatch(scope["path"])
        if found is None and scope["path"] == HEALTH and scope["method"] == "GET":
            await send_answer(send, health_of(self._coordinator))
        elif found is None:
            await self._framework(scope, receive, _marked(send))
        elif scope["method"] != _METHODS[found[2]]:
            await send_answer(send, _not_allowed(_METHODS[found[2]]))
        elif found[2] == "check-ins":
            await self._exchange.check_in(found[1], request, receive, send)
        else:
            await self._exchange.check_out(found[1], request, send)

    def _require_host(self, headers: dict[bytes, bytes], method: str) -> None:
        """Refuse foreign names (DNS rebinding), and unsafe methods that come from foreign pages."""
        host, origin = headers.get(b"host"), headers.get(b"origin")
        if host is None or (host not in self._hosts and _bare(host) not in self._hosts):
            raise Refusal(400, "host", "this server does not answer to that name", hint="crowdml serve --allow-host")
        if b"range" in headers and headers[b"range"].count(b",") >= _LARGEST_PARTS:
            raise Refusal(400, "range", "too many parts of a file at once")
        if origin is not None and method not in _SAFE:
            _, _, place = origin.partition(b"://")
            if place.lower() != host.lower():
                raise Refusal(403, "origin", "requests from other pages are not answered")


def health_of(coordinator: Coordinator) -> Answer:
    """Say whether every writer works."""
    well = all(writer.alive for writer in coordinator.writers.values())
    return json_answer({"status": "ok" if well else "failed"}, 200 if well else 503)


def _marked(send: Send) -> Send:
    """Name the protocol in the framework's answers too."""

    async def marked(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start" and PROTOCOL not in message["headers"]:
            message["headers"] = [*message["headers"], PROTOCOL]
        await send(message)

    return marked


def _not_allowed(method: str) -> Answer:
    answer = Refusal(405, "method", f"this is asked for by {method}").answer()
    return Answer(status=405, body=answer.body, headers=(*answer.headers, (b"allow", method.encode())))


def _bare(host: bytes) -> bytes:
    """Take the port off a host."""
    name, colon, port = host.rpartition(b":")
    return (name if colon and port.isdigit() else host).lower()
