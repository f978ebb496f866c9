"""WebSockets that do not wait for ever, and that give back what they took.

uvicorn hands a connection from its HTTP protocol to another one, which alone hears of its end. So the place that the
connection took among those of its address is given back here. A peer that does not read for ten seconds is cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

STALL_S = 10.0
"""Seconds for which messages wait for a peer that does not read them."""
RTT = "crowdml.rtt"
"""The extension that tells an application how long the way to the other side and back takes, in seconds."""

SEND_NOW = "crowdml.send-now"
"""The extension with which an application sends without waiting: it returns whether that was possible."""


class BoundedSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol with limits.

    Attributes:
        leave: Called once at the end: makes room for another connection of the same address.
    """

    leave: Callable[[], None] | None = None
    _stall: asyncio.TimerHandle | None = None

    def handle_connect(self, event: Any) -> None:
        """Let the application ask how far away the other side is."""
        super().handle_connect(event)
        if hasattr(self, "scope"):
            extensions: Any = self.scope["extensions"]
            extensions[RTT] = lambda: self.last_ping_rtt
            extensions[SEND_NOW] = self.send_now

    def send_now(self, message: str | bytes) -> bool:
        """Send a message if the other side takes it now; tell whether it did."""
        gone = self.disconnected or self.close_sent or self.transport.is_closing()
        if gone or not self.handshake_complete or not self.writable.is_set():
            return False
        try:
            if isinstance(message, str):
                self.conn.send_text(message.encode())
            else:
                self.conn.send_binary(message)
        except InvalidState:
            return False
        self.transport.write(b"".join(self.conn.data_to_send()))
        return True

    async def send(self, message: Any) -> None:
        """Send, and know that a refusal ends a handshake as well: uvicorn would log it as a mistake of ours."""
        await super().send(message)
        if self.close_sent:
            self.handshake_complete = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Make room for another connection."""
        self._let_go()
        super().connection_lost(exc)
        leave, self.leave = self.leave, None
        if leave is not None:
            leave()

    def pause_writing(self) -> None:
        """Give a peer that does not read some time."""
        super().pause_writing()
        if self._stall is None:
            self._stall = self.loop.call_later(STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Forget the stall: the other side reads again."""
        self._let_go()
        super().resume_writing()

    def _let_go(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
