"""A link between two front ends: one TCP connection, on which everything is sealed with a secret of the database.

Whoever aggregates listens on the address by which it reaches the database, and leaves address and secret in a table
there. Whoever can read that table is one of us; nobody else can read or write a single frame. Each side says a random
number first; the keys of both directions follow from those and the secret, so that nothing can be played again. A frame
is its length and AES-GCM's bytes, numbered from zero. Until the other side has shown that it knows the secret, it may
send a few bytes, and has little time.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import struct
from collections.abc import Callable
from typing import cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crowdml.core import record

GREET_S = 2.0
"""Seconds in which the other side must show that it knows the secret."""
LARGEST_FRAME = 1 << 30
SECRET_BYTES = 32
_SAID = 16
_HEAD = struct.Struct(">I")
_TAG = 16
_GREETING = b"crowdml link 1"
"""Names what frames mean: front ends of releases that mean other things by them are not linked."""


@record
class Place:
    """Where an aggregator listens.

    Attributes:
        front: Its number.
        host: Its address.
        port: Its port.
        secret: What both sides know.
    """

    front: int
    host: str
    port: int
    secret: bytes


class Link(asyncio.Protocol):
    """One end of a link.

    Args:
        secret: What both sides know.
        dialled: Whether this end has begun the connection.
        took: Called with each frame that came, and this link.
        lost: Called once with this link when it is over, if it ever was proved.

    Attributes:
        proved: Done when the other side has shown that it knows the secret; fails where it does not.
        over: Whether it has ended.
    """

    def __init__(
        self,
        secret: bytes,
        dialled: bool,
        took: Callable[[Link, bytes], None],
        lost: Callable[[Link], None],
    ) -> None:
        self._secret, self._dialled, self._took, self._lost = secret, dialled, took, lost
        self._said, self._came = os.urandom(_SAID), bytearray()
        self._seal: AESGCM | None = None
        self._open: AESGCM | None = None
        self._sent = self._read = 0
        self.over = self._unwanted = False
        loop = asyncio.get_running_loop()
        self.proved: asyncio.Future[None] = loop.create_future()
        self.proved.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._late = loop.call_later(GREET_S, self.close)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say our number, unless this was ended before it began."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own do not say that they are
        if self._unwanted:
            self._transport.abort()
        else:
            self._transport.write(self._said)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that it is over."""
        self._late.cancel()
        self.over = True
        if not self.proved.done():
            self.proved.set_exception(ConnectionError("the other side does not know the secret"))
        elif self.proved.exception() is None:
            self._lost(self)

    def data_received(self, data: bytes) -> None:
        """Take what came; whoever sends what cannot be opened is cut off."""
        came = self._came
        came += data
        try:
            if self._open is None:
                if len(came) < _SAID:
                    return
                self._agree(bytes(came[:_SAID]))
                del came[:_SAID]
            at = 0
            while (end := self._end(at)) <= len(came):
                content = self._opened(bytes(memoryview(came)[at + _HEAD.size : end]))
                at = end
                if self.proved.done():
                    self._took(self, content)
                else:
                    self._greeted(content)
            del came[:at]
        except (InvalidTag, ValueError):
            self.close()

    def send(self, content: bytes) -> None:
        """Send a frame; once the link is over this does nothing."""
        if self._transport is None or self._seal is None or self._transport.is_closing():
            return
        sealed = self._seal.encrypt(self._sent.to_bytes(12), content, None)
        self._sent += 1
        self._transport.write(_HEAD.pack(len(sealed)) + sealed)

    def close(self) -> None:
        """End it; what was sent before still goes."""
        self._unwanted = True
        if self._transport is not None:
            self._transport.close()

    def _agree(self, theirs: bytes) -> None:
        numbers = self._said + theirs if self._dialled else theirs + self._said
        keys = [AESGCM(hmac.digest(self._secret, way + numbers, "sha256")) for way in (b"to listener", b"to dialler")]
        self._seal, self._open = keys if self._dialled else keys[::-1]
        self.send(_GREETING)

    def _greeted(self, content: bytes) -> None:
        if content != _GREETING:
            raise ValueError("this is no greeting")
        self._late.cancel()
        self.proved.set_result(None)

    def _end(self, at: int) -> int:
        """Say where the frame ends that begins there, as far as is known."""
        if len(self._came) - at < _HEAD.size:
            return at + _HEAD.size + _TAG
        (size,) = _HEAD.unpack_from(self._came, at)
        if size > (LARGEST_FRAME if self.proved.done() else len(_GREETING) + _TAG):
            raise ValueError("a frame is too long")
        return at + _HEAD.size + int(size)

    def _opened(self, sealed: bytes) -> bytes:
        assert self._open is not None  # noqa: S101  agreed
        content = self._open.decrypt(self._read.to_bytes(12), sealed, None)
        self._read += 1
        return content
