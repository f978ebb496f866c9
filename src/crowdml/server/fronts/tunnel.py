"""A tunnel for requests: what a front end cannot answer by itself is answered by the aggregator's own application.

Whatever ASGI says passes through the post office: a request and its answer, a stream of events, a WebSocket. Sign-in,
invites, pages, secure sums and relays of sliced groups thus have one place, and behave as on a single server.

Where the aggregator is lost, a request that only reads is asked again, and so is a WebSocket's handshake; one that may
have changed something is answered by 503, because nobody knows whether it did; streams and WebSockets end, and whoever
needs them connects again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import MutableMapping
from typing import Any

from crowdml.server.fronts.letters import read_event, write_event
from crowdml.server.fronts.post import MORE, OPEN, Post
from crowdml.server.http.requests import Asgi, Receive, Scope, Send, send_answer
from crowdml.server.http.websockets.relay import refuse_socket
from crowdml.server.refusals import Refusal

log = logging.getLogger("crowdml.server")

ANSWER_S = 30.0
"""An answer must begin within this time: stages of secure sums wait for ten seconds."""
GRACE_S = 3.0
"""How long whoever takes over has for a request that its predecessor may have taken."""
_SAFE = ("GET", "HEAD", "OPTIONS")
_RESTART = 1012
"""WebSocket: the server restarts."""
LOST: dict[str, Any] = {"type": "crowdml.lost"}
GONE: dict[str, Any] = {"type": "crowdml.gone"}
"""Events of our own: the aggregator was lost; whoever asked is gone."""
_SCOPE = ("type", "method", "path", "query_string", "scheme", "http_version", "subprotocols", "root_path")


class _Asked:
    """A request that is open.

    Args:
        opening: Asks for it, as a letter.
        gone: Tells the aggregator that nobody waits for it any more.

    Attributes:
        number: Names it at the aggregator.
        over: Whether the aggregator knows its end.
    """

    def __init__(self, opening: bytes, gone: dict[str, Any]) -> None:
        self.opening, self.gone = opening, write_event(gone)
        self.came = asyncio.Queue[dict[str, Any]]()
        self.number, self.over = 0, False


class Tunnel:
    """The end at which requests come in.

    Args:
        post: Carries letters.
    """

    def __init__(self, post: Post) -> None:
        self._post, self._numbers = post, itertools.count(1)
        self._open: dict[int, _Asked] = {}

    async def collect(self) -> None:
        """Hand out what the aggregator has answered."""
        for number, raw in await self._post.collect():
            if (asked := self._open.get(number)) is not None:
                asked.came.put_nowait(read_event(raw))

    def lose(self) -> None:
        """Tell all that are open that somebody else aggregates now."""
        for asked in self._open.values():
            asked.came.put_nowait(LOST)

    async def request(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Pass a request on, and its answer back."""
        asked = _Asked(write_event(_told(scope) | {"body": body}), {"type": "http.disconnect"})
        leaving = asyncio.get_running_loop().create_task(self._pump(asked, receive))
        try:
            await self._ask(asked)
            wait_s, begun = ANSWER_S, False
            while True:
                try:
                    async with asyncio.timeout(None if begun else wait_s):
                        event = await asked.came.get()
                except TimeoutError:
                    await send_answer(send, _unknown().answer())
                    return
                if event is GONE:
                    return
                if event is LOST:
                    if begun:
                        raise ConnectionResetError("the aggregator of a stream was lost")
                    if scope["method"] in _SAFE:
                        await self._ask(asked)
                    else:
                        wait_s = GRACE_S
                    continue
                if not begun:
                    start = {"type": "http.response.start", "status": event["status"], "headers": event["headers"]}
                    await send(start)
                    begun = True
                asked.over = not event["more_body"]
                await send({"type": "http.response.body", "body": event["body"], "more_body": event["more_body"]})
                if asked.over:
                    return
        finally:
            leaving.cancel()
            self._end(asked)

    async def socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a WebSocket on, from its handshake to its end."""
        asked = _Asked(write_event(_told(scope)), {"type": "websocket.disconnect", "code": 1006})
        await receive()
        leaving = asyncio.get_running_loop().create_task(self._pump(asked, receive))
        try:
            await self._ask(asked)
            accepted = False
            while True:
                try:
                    async with asyncio.timeout(None if accepted else ANSWER_S):
                        event = await asked.came.get()
                except TimeoutError:
                    await refuse_socket(send, _unknown().answer())
                    return
                if event is GONE:
                    return
                if event is LOST:
                    if not accepted:
                        # To close it now would be 403, and who is told that never comes again.
                        await self._ask(asked)
                        continue
                    await send({"type": "websocket.close", "code": _RESTART, "reason": "the server restarts"})
                    return
                accepted = accepted or event["type"] == "websocket.accept"
                last = event["type"] == "websocket.http.response.body" and not event.get("more_body")
                asked.over = last or event["type"] == "websocket.close"
                await send(event)
                if asked.over:
                    return
        finally:
            leaving.cancel()
            self._end(asked)

    async def _ask(self, asked: _Asked) -> None:
        """Ask, or ask again: by another number, as half an answer of an aggregator that was stopped may yet come."""
        self._end(asked)
        asked.number = next(self._numbers)
        self._open[asked.number] = asked
        await self._post.send(OPEN, asked.number, asked.opening)

    def _end(self, asked: _Asked) -> None:
        """Wait for it no more; a stream that nobody knows the end of would go on for ever."""
        if self._open.pop(asked.number, None) is not None and not asked.over:
            self._post.send(MORE, asked.number, asked.gone).add_done_callback(_heard)

    async def _pump(self, asked: _Asked, receive: Receive) -> None:
        """Pass on what comes later: messages of a WebSocket, and that whoever asked is gone."""
        while True:
            event = await receive()
            if event["type"] == "http.request":
                continue  # of a body that is too long to be passed on, or of one that was never announced
            await self._post.send(MORE, asked.number, write_event(event))
            if event["type"].endswith("disconnect"):
                asked.over = True
                asked.came.put_nowait(GONE)
                return


def _heard(sent: asyncio.Future[Any]) -> None:
    """Take note of how sending went: where it failed, the connection is lost, and with it this front end."""
    if not sent.cancelled():
        sent.exception()


class Conversations:
    """The end at which requests are answered.

    Args:
        post: Carries letters.
        app: Answers them.
    """

    def __init__(self, post: Post, app: Asgi) -> None:
        self._post, self._app = post, app
        self._open: dict[tuple[int, int], tuple[asyncio.Task[None], asyncio.Queue[dict[str, Any]]]] = {}

    def begin(self, front: int, number: int, raw: bytes) -> None:
        """Answer a request of another front end."""
        scope = read_event(raw)
        body = scope.pop("body", None)
        queue = asyncio.Queue[dict[str, Any]]()
        if scope["type"] == "websocket":
            queue.put_nowait({"type": "websocket.connect"})
        else:
            queue.put_nowait({"type": "http.request", "body": body or b"", "more_body": False})
        scope["query_string"] = scope["query_string"].encode("latin-1")
        scope["raw_path"] = scope["path"].encode("latin-1", "replace")
        scope["client"] = tuple(scope["client"]) if scope["client"] else None
        scope["asgi"], scope["extensions"], scope["state"] = {"version": "3.0"}, {"websocket.http.response": {}}, {}
        task = asyncio.get_running_loop().create_task(self._run(front, number, scope, queue))
        self._open[front, number] = task, queue
        task.add_done_callback(lambda _: self._open.pop((front, number), None))

    def go_on(self, front: int, number: int, raw: bytes) -> None:
        """Hand another event to a request that is under way."""
        if (found := self._open.get((front, number))) is not None:
            found[1].put_nowait(read_event(raw))

    def forget(self, front: int) -> None:
        """End what a front end has asked that is gone."""
        for (whose, _), (task, _) in list(self._open.items()):
            if whose == front:
                task.cancel()

    async def close(self) -> None:
        """End everything."""
        tasks = [task for task, _ in self._open.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, front: int, number: int, scope: Scope, queue: asyncio.Queue[dict[str, Any]]) -> None:
        started: dict[str, Any] = {}

        async def send(event: MutableMapping[str, Any]) -> None:
            if event["type"] == "http.response.start":
                started.update(event)
                return
            if event["type"] == "http.response.body":
                event = {
                    **started,
                    "type": "http.response",
                    "body": event.get("body", b""),
                    "more_body": event.get("more_body", False),
                }
            await self._post.reply(front, number, write_event(event))

        try:
            await self._app(scope, queue.get, send)
        except Exception as error:
            log.error("a request of another front end could not be answered", exc_info=error)
            if scope["type"] == "http":
                await send_answer(send, Refusal(500, "internal", "a mistake in this server").answer())


def _told(scope: Scope) -> dict[str, Any]:
    """Take from a scope what the other end needs."""
    told = {name: scope[name] for name in _SCOPE if name in scope}
    told["query_string"] = scope.get("query_string", b"").decode("latin-1")
    told["headers"], told["client"] = scope["headers"], scope.get("client")
    told["server"] = scope.get("server")
    return told


def _unknown() -> Refusal:
    return Refusal(
        503, "failed", "the server that was asked has ended, and whether it did this is not known", retry_after_s=1
    )
