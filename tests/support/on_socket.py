"""The application on a socket in this process, spoken to in plain bytes."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import httpx

from crowdml.server.http.bounded_connection import BoundedProtocol, ConnectionLimits, bounded
from crowdml.server.setup.serving import Place, bind, make_server
from tests.support.application import Application
from tests.support.served import WAIT_S


class OnSocket(Application):
    """The application on a socket, in this process."""

    protocol: type[BoundedProtocol] = BoundedProtocol

    def _begin(self) -> None:
        place = Place(port=0)
        listening = bind(place)
        self.port = listening.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.server = make_server(self.app, place, self.protocol)
        self._life = self.thread.begin(self.server.serve([listening]))
        self.plain = httpx.Client(base_url=self.address, timeout=WAIT_S)

    def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.plain.request(method, path, **more)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), WAIT_S)

    def raw(self, *parts: bytes) -> list[tuple[int, dict[str, str], bytes]]:
        """Send bytes as they are; return the answers that come back until the connection is closed."""
        with self.connect() as link:
            with contextlib.suppress(ConnectionError):
                for part in parts:
                    link.sendall(part)
            return parse_answers(read_all(link))

    def close(self) -> None:
        self.plain.close()
        self.server.should_exit = True
        self._life.result(WAIT_S)
        self.thread.close()


class Hasty(OnSocket):
    """On a socket, with deadlines that a test can wait for."""

    protocol = bounded(
        ConnectionLimits(deadline_s=0.3, bytes_per_second=100, linger_s=0.2, stall_s=0.3, connections=60)
    )


def read_all(link: socket.socket) -> bytes:
    """Read until the other side closes."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := link.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def parse_answers(raw: bytes) -> list[tuple[int, dict[str, str], bytes]]:
    """Take answers apart: status, headers, body."""
    found = []
    while raw:
        head, _, rest = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = int(headers.get("content-length", "0"))
        found.append((int(first.split()[1]), headers, rest[:size]))
        raw = rest[size:]
    return found
