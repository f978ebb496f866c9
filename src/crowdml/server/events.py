"""Events: how a task goes on, sent to whoever watches (server-sent events)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi.responses import StreamingResponse

from crowdml.server.answers import Refusal

INTERVAL_S = 0.5
HEARTBEAT_S = 15.0
PER_ADDRESS = 20
IN_ALL = 2000
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class Watchers:
    """Counts open streams, so that nobody can hold thousands."""

    def __init__(self, per_address: int = PER_ADDRESS, in_all: int = IN_ALL) -> None:
        """Begin with none."""
        self._per_address, self._in_all = per_address, in_all
        self._open: Counter[str] = Counter()

    def admit(self, address: str) -> None:
        """Count a stream in, or refuse it."""
        if self._open[address] >= self._per_address or self._open.total() >= self._in_all:
            raise Refusal(429, "too-many-streams", "too many open streams", retry_after_s=10)
        self._open[address] += 1

    def leave(self, address: str) -> None:
        """Count a stream out."""
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


class EventStream(StreamingResponse):
    """An open stream. It is counted out when its connection ends, even if it never began."""

    def __init__(self, watchers: Watchers, address: str, summary: Callable[[], dict[str, Any]]) -> None:
        """Take a stream that was admitted."""
        super().__init__(_events(summary), media_type="text/event-stream", headers=HEADERS)
        self._watchers, self._address = watchers, address

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send events until the task has stopped or the watcher leaves."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._watchers.leave(self._address)


async def _events(summary: Callable[[], dict[str, Any]]) -> AsyncIterator[bytes]:
    """Tell the state whenever it has changed."""
    last, silent_s = None, 0.0
    while True:
        now = summary()
        if now != last:
            yield b"event: state\ndata: " + json.dumps(now).encode() + b"\n\n"
            last, silent_s = now, 0.0
        elif silent_s >= HEARTBEAT_S:
            yield b": still here\n\n"
            silent_s = 0.0
        if now["state"] == "stopped":
            return
        await asyncio.sleep(INTERVAL_S)
        silent_s += INTERVAL_S
