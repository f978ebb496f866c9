"""A link between front ends: what passes is what was sent, and who does not know the secret learns and says nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from crowdml.server.fronts import link as links
from crowdml.server.fronts.link import Link
from tests.support.own_loop import run_apart

SECRET = b"s" * links.SECRET_BYTES


class Listener:
    """Takes links on a port of its own, and keeps what came by them."""

    def __init__(self) -> None:
        self.came: asyncio.Queue[bytes] = asyncio.Queue()
        self.made: list[Link] = []
        self.lost: list[Link] = []

    async def __aenter__(self) -> Listener:
        self._server = await asyncio.get_running_loop().create_server(self._make, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for made in self.made:
            made.close()

    def _make(self) -> Link:
        self.made.append(Link(SECRET, False, lambda link, frame: self.came.put_nowait(frame), self.lost.append))
        return self.made[-1]

    async def dial(self, secret: bytes, took: Callable[[bytes], None] = lambda frame: None) -> Link:
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(
            lambda: Link(secret, True, lambda link, frame: took(frame), lambda link: None), "127.0.0.1", self.port
        )
        return link


def run(work: Callable[[Listener], Coroutine[Any, Any, None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(60), Listener() as listener:
            await work(listener)

    # The loop that servers run on.
    run_apart(within, uvloop.new_event_loop)


def test_frames_come_in_order_and_whole_whatever_their_size() -> None:
    frames = [b"", b"x", os.urandom(3), os.urandom(300_000), b"last"]

    async def work(listener: Listener) -> None:
        link = await listener.dial(SECRET)
        await link.proved
        for frame in frames:
            link.send(frame)
        assert [await listener.came.get() for _ in frames] == frames

    run(work)


def test_both_ends_may_speak() -> None:
    async def work(listener: Listener) -> None:
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        link = await listener.dial(SECRET, heard.put_nowait)
        await link.proved
        await listener.made[0].proved
        listener.made[0].send(b"an answer")
        assert await heard.get() == b"an answer"

    run(work)


def test_who_does_not_know_the_secret_is_cut_off_and_neither_side_believes_it() -> None:
    async def work(listener: Listener) -> None:
        link = await listener.dial(b"t" * links.SECRET_BYTES)
        with pytest.raises(ConnectionError):
            await link.proved
        with pytest.raises(ConnectionError):
            await listener.made[0].proved
        assert listener.came.empty() and not listener.lost

    run(work)


def test_what_was_said_on_one_link_says_nothing_on_another() -> None:
    """The whole of one side, played again to a listener that has said another number."""

    async def work(listener: Listener) -> None:
        told = bytearray()
        link = await listener.dial(SECRET)
        write = link._transport.write  # type: ignore[union-attr]
        link._transport = _Overheard(link._transport, told, write)  # type: ignore[assignment,arg-type]
        await link.proved
        link.send(b"once")
        assert await listener.came.get() == b"once"
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(link._said + told)
        await reader.read()  # what it says, until it hangs up
        writer.close()
        assert listener.came.empty()

    run(work)


class _Overheard:
    """A transport that keeps what is written to it."""

    def __init__(self, transport: asyncio.Transport, told: bytearray, write: Callable[[bytes], None]) -> None:
        self._transport, self._told, self._write = transport, told, write

    def write(self, data: bytes) -> None:
        self._told += data
        self._write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()


def test_a_stranger_may_not_announce_a_long_frame() -> None:
    async def work(listener: Listener) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(bytes(16) + (1 << 20).to_bytes(4))
        await reader.read()  # ends without a byte of that frame
        writer.close()
        with pytest.raises(ConnectionError):
            await listener.made[0].proved

    run(work)


def test_a_stranger_who_says_nothing_is_cut_off_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "GREET_S", 0.01)

    async def work(listener: Listener) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        await reader.read()
        writer.close()

    run(work)


def test_a_link_that_ends_is_told_once() -> None:
    async def work(listener: Listener) -> None:
        link = await listener.dial(SECRET)
        await asyncio.gather(link.proved, listener.made[0].proved)
        link.close()
        while not listener.lost:
            await asyncio.sleep(0)
        assert listener.lost == listener.made
        listener.made[0].send(b"nobody hears this")

    run(work)
