"""The relay: a WebSocket for every member of a group, through which frames pass to other members.

A connection is admitted by its headers, as every request of a device is. Then the device has ten seconds for its hello.
What it sends is bounded by the signed task; who sends anything else is closed, and told why. Nothing of it is kept on
disk.
"""

from __future__ import annotations

import asyncio
import logging

from crowdml.core import CrowdError
from crowdml.core.errors import MalformedMessage
from crowdml.server.http.exchange import Exchange
from crowdml.server.http.requests import Receive, Request, Scope, Send
from crowdml.server.http.websockets.bounded_socket import RTT, SEND_NOW
from crowdml.server.refusals import ALWAYS, Answer, Refusal, refusal_of
from crowdml.server.tasks.coordinator import Coordinator
from crowdml.server.tasks.folding import require_open
from crowdml.server.tasks.groups.live_group import Line
from crowdml.server.tasks.groups.slice_groups import SliceGroups
from crowdml.server.tasks.running_task import RunningTask
from crowdml.slicing.live.controls import Hello, read_of_member

log = logging.getLogger("crowdml.server")
HELLO_S = 10.0
_OVER = 1008


class Relay:
    """Answers WebSockets of group members.

    Args:
        coordinator: All tasks.
        exchange: Tells who may speak.
    """

    def __init__(self, coordinator: Coordinator, exchange: Exchange) -> None:
        self._coordinator, self._exchange = coordinator, exchange

    async def plain(self, request: Request, receive: Receive) -> Answer:
        """Refuse a request that is no WebSocket."""
        self._admit(request)
        raise Refusal(426, "upgrade", "this is asked for by a WebSocket", hint="Upgrade: websocket")

    async def serve(self, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection from its handshake to its end."""
        await receive()
        try:
            running, groups = self._admit(request)
            require_open(running.snapshot.state, running.snapshot.reason)
        except CrowdError as error:
            await refuse_socket(send, refusal_of(error).answer())
            return
        device = self._coordinator.tokens.find(request.token())
        assert device is not None  # noqa: S101  admitted just now
        extensions = scope.get("extensions", {})
        line = Line(device, groups.most_bytes, extensions.get(RTT), extensions.get(SEND_NOW))
        await send({"type": "websocket.accept", "headers": list(ALWAYS)})
        writing = asyncio.get_running_loop().create_task(_write(line, send))
        why = "the connection ended"
        try:
            await self._talk(groups, line, receive)
        except (CrowdError, TimeoutError) as error:
            why = str(error) or "no hello came in time"
            line.close(why)
        finally:
            groups.leave(line, why)
            line.close(why)
            await writing

    async def _talk(self, groups: SliceGroups, line: Line, receive: Receive) -> None:
        async with asyncio.timeout(HELLO_S):
            first = await _next(receive, groups.largest)
            hello = read_of_member(first) if isinstance(first, str) else None
            if not isinstance(hello, Hello):
                raise MalformedMessage("a connection begins with a hello")
            deposits = list[bytes]()
            while len(deposits) < hello.deposits:
                shown = await _next(receive, groups.largest)
                if not isinstance(shown, bytes):
                    raise MalformedMessage("deposits that were announced do not come")
                deposits.append(shown)
        await groups.join(line, hello, deposits)
        while not line.closed:
            message = await _next(receive, groups.largest)
            if message is None:
                return
            if line.device.revoked:
                raise Refusal(401, "revoked", "the operator has revoked this device")
            groups.take(line, message)

    def _admit(self, request: Request) -> tuple[RunningTask, SliceGroups]:
        running, _ = self._exchange.admit(request)
        return running, self._coordinator.groups_of(running)


async def _next(receive: Receive, largest: int) -> str | bytes | None:
    """Return the next message; None at the end of the connection."""
    message = await receive()
    if message["type"] != "websocket.receive":
        return None
    found: bytes | str | None = message.get("bytes")
    found = message.get("text") if found is None else found
    if found is None or len(found) > largest:
        raise MalformedMessage(f"a message of more than {largest} bytes")
    return found


async def _write(line: Line, send: Send) -> None:
    """Send what waits; in the end say why it is over."""
    waiting = line.waiting
    try:
        while True:
            while waiting:
                # It waits until it is sent: nothing that comes meanwhile may overtake it.
                message = waiting[0]
                kind = "text" if isinstance(message, str) else "bytes"
                await send({"type": "websocket.send", kind: message})
                waiting.popleft()
                line.bytes -= len(message)
            if line.closed:
                break
            line.news.clear()
            await line.news.wait()
        await send({"type": "websocket.close", "code": _OVER, "reason": line.closed[:120]})
    except OSError:
        # The other side is gone; whoever reads from it notices as well.
        line.close("the connection was lost")
        waiting.clear()


async def refuse_socket(send: Send, answer: Answer) -> None:
    """Refuse a WebSocket before it is one, with the answer that any request would get."""
    headers = [*answer.headers, *ALWAYS, (b"content-length", b"%d" % len(answer.body))]
    await send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": answer.body})
