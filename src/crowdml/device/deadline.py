"""A deadline for one whole exchange with a server, the headers of its answer and every byte of it included.

The usual timeouts hold for one read each: an answer that comes at two bytes a second never exceeds them, and would hold
a device for as long as the server likes. Here the time that is left is what every read and write may take.

httpx is imported here, without its own command line, which would load rich and pygments: a quarter of a second per
device. `None` in `sys.modules` makes an import fail; httpx then does without.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable, Iterable
from typing import Any

import httpcore

_COMMAND_LINE = "httpx._main"
_absent = _COMMAND_LINE not in sys.modules
if _absent:
    sys.modules[_COMMAND_LINE] = None  # type: ignore[assignment]

import httpx as httpx  # noqa: E402

if _absent:
    del sys.modules[_COMMAND_LINE]

SLOWEST_BYTES_PER_S = 16 << 10
"""A link that is slower than this is an outage."""

_PIECE = 64 << 10
"""Bytes written before the time is looked at again."""
_LARGE_PIECE = 1 << 20
"""Bytes of an answer that are read at once, at most."""


class Deadline:
    """When the present exchange must be over.

    Args:
        clock: Monotonic seconds.
        grace_s: What every exchange has, however small it is.
    """

    def __init__(self, clock: Callable[[], float], grace_s: float) -> None:
        self._clock, self._grace_s = clock, grace_s
        self._until, self.allowed_s = float("inf"), float("inf")

    def begin(self, size_bytes: int) -> None:
        """Begin an exchange of at most so many bytes."""
        self.allowed_s = self._grace_s + size_bytes / SLOWEST_BYTES_PER_S
        self._until = self._clock() + self.allowed_s

    def cut(self, timeout: float | None) -> float:
        """Return how long the next step may take: as long as it would, but no longer than the time that is left."""
        left_s = self._until - self._clock()
        if left_s <= 0:
            raise httpcore.ReadTimeout(f"the answer was not whole after {self.allowed_s:.3g} s")
        return left_s if timeout is None else min(timeout, left_s)

    def guard(self, client: httpx.Client) -> None:
        """Put everything that a client reads and writes under this deadline, through proxies too."""
        for transport in (client._transport, *client._mounts.values()):
            if isinstance(transport, httpx.HTTPTransport):
                pool = transport._pool
                pool._network_backend = _Backend(pool._network_backend, self)


class _Backend(httpcore.NetworkBackend):
    """Connects, and hands out streams that keep to the deadline."""

    def __init__(self, inner: httpcore.NetworkBackend, deadline: Deadline) -> None:
        self._inner, self._deadline = inner, deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        found = self._inner.connect_tcp(host, port, self._deadline.cut(timeout), local_address, socket_options)
        return _Stream(found, self._deadline)

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


class _Stream(httpcore.NetworkStream):
    """Bytes in both directions, within the deadline."""

    def __init__(self, inner: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._inner, self._deadline = inner, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        # A large answer comes in larger pieces than httpcore asks for; whoever asks for few bytes gets no more.
        wanted = _LARGE_PIECE if max_bytes >= _PIECE else max_bytes
        try:
            return self._inner.read(wanted, self._deadline.cut(timeout))
        except httpcore.ReadTimeout:
            self._deadline.cut(timeout)  # says so, if it was the deadline and not the usual timeout
            raise

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        whole: Any = memoryview(buffer)  # whose parts are no copies
        for start in range(0, len(whole), _PIECE):
            self._inner.write(whole[start : start + _PIECE], self._deadline.cut(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        inner = self._inner.start_tls(ssl_context, server_hostname, self._deadline.cut(timeout))
        return _Stream(inner, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
