"""Ports for servers that a test starts, or starts again, at a port of its own choice."""

from __future__ import annotations

import os
import random
import socket

FIRST, OF_A_WORKER, WORKERS = 20_000, 1_000, 12
"""Below the ports that systems take for outgoing connections (32768 and more on Linux, 49152 elsewhere)."""


def free_port() -> int:
    """Return a port that is free, and that no connection takes by itself before a server listens there.

    A port that the system chose is one of those that it also gives to connections. While a server is down, one that
    knocks at its port may be given this very port, and the server cannot come back.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    own = range(FIRST + worker * OF_A_WORKER, FIRST + (worker + 1) * OF_A_WORKER)
    for port in random.SystemRandom().sample(own, len(own)):
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError(f"no port from {own.start} to {own.stop} is free")
