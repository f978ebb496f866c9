"""Networks that a test spoils: threads with an event loop of their own, and proxies in them."""

from __future__ import annotations

import abc
import asyncio
import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any


class LoopThread(threading.Thread, abc.ABC):
    """A thread in which an event loop works until it is told to leave."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._leave = threading.Event()

    def run(self) -> None:
        asyncio.run(self._work())  # noqa: TID251 -- a thread of its own

    def leave(self) -> None:
        """Let it leave, and wait until it has."""
        self._leave.set()
        self.join()

    @abc.abstractmethod
    async def _work(self) -> None: ...

    async def _until_left(self) -> None:
        while not self._leave.is_set():
            await asyncio.sleep(0.05)


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """End tasks, and wait until they have ended."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


class Proxy(LoopThread):
    """Leads from a port to somewhere else; what passes, and how, is said by whoever spoils it.

    Attributes:
        port: Where it listens.
    """

    def __init__(self) -> None:
        super().__init__()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._pairs: set[asyncio.Task[Any]] = set()

    @abc.abstractmethod
    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to where it leads."""

    @abc.abstractmethod
    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what comes in one direction, until either side ends."""

    async def _work(self) -> None:
        async with await asyncio.start_server(self._pair, sock=self._listening):
            await self._until_left()
            await cancel(self._pairs)

    async def _pair(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pairs.add(task)
        with suppress(OSError, asyncio.CancelledError):
            there, back = await self._connect()
            ways = [asyncio.create_task(self._pass(*way)) for way in ((reader, back), (there, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await cancel(ways)
                back.transport.abort()
        writer.transport.abort()
        self._pairs.discard(task)
