"""Serving: the application on a real socket."""

from __future__ import annotations

import copy
import gc
import logging
import resource
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from uvicorn.lifespan.on import LifespanOn

from crowdml.core import BadInput, record
from crowdml.server.http.bounded_connection import BoundedProtocol, ConnectionLimits, bounded
from crowdml.server.http.requests import Asgi, Limiter, Pace
from crowdml.server.setup.certificate_files import CertificateFiles
from crowdml.server.tasks.operator.operator_token import TOKEN_FILE as TOKEN_FILE
from crowdml.server.tasks.operator.operator_token import require_identity as require_identity
from crowdml.task.live_task import LARGEST_FRAME

BACKLOG = 4096
MOST_FILES = 65_536
RESERVED_FILES = 256
"""Open files that are not connections: of the store, above all."""

PING_S = 5.0
"""Seconds between two questions whether the other side of a WebSocket is there, and for its answer."""

GARBAGE = 20_000
"""Objects made and kept before cycles are looked for: requests leave none, and hundreds of them are under way."""


class PromptLoop(uvloop.Loop):
    """uvloop's event loop, in which a connection that is to speak TLS must do so as soon as it must ask for something.

    Until then it is no connection to our protocol, whose deadlines and numbers do not hold for it.
    """

    async def create_server(self, *where: Any, **options: Any) -> Any:
        """Listen; a handshake has as long as the headers of a request."""
        if options.get("ssl") is not None:
            options.setdefault("ssl_handshake_timeout", ConnectionLimits().deadline_s)
        return await super().create_server(*where, **options)


@record
class Place:
    """Where a server listens.

    Attributes:
        host: Address.
        port: Port; 0: any free one.
        certificate: TLS certificate, PEM.
        key: Its key, PEM; None: in the same file.
        proxy: Addresses of proxies whose word about the origin of a request is taken.
    """

    host: str = "127.0.0.1"
    port: int = 8800
    certificate: Path | None = None
    key: Path | None = None
    proxy: str | None = None

    @property
    def scheme(self) -> str:
        """The protocol of its address."""
        return "https" if self.certificate else "http"


def bind(place: Place) -> socket.socket:
    """Take the port, or say who may have it."""
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((place.host, place.port))
        # From here on whoever connects waits to be served, instead of being turned away.
        taken.listen(BACKLOG)
    except OSError as error:
        taken.close()
        raise BadInput(
            f"{place.host}:{place.port} cannot be used: {error.strerror}", hint="choose another --port, or 0 for any"
        ) from None
    return taken


def make_server(app: Asgi, place: Place, protocol: type[BoundedProtocol] = BoundedProtocol) -> uvicorn.Server:
    """Make what serves the application; requests under way are finished when it ends."""
    config = uvicorn.Config(
        app,
        http=protocol,
        loop=f"{__name__}:{PromptLoop.__name__}",
        ws=protocol.socket,
        ws_max_size=LARGEST_FRAME,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=place.proxy is not None,
        forwarded_allow_ips=place.proxy or "",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
        backlog=BACKLOG,
        ssl_certfile=str(place.certificate) if place.certificate else None,
        ssl_keyfile=str(place.key) if place.key else None,
    )
    return uvicorn.Server(config)


def most_connections() -> int:
    """Take as many open files as the system lets us have; return how many of them may be connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):
            wanted = soft
    return max(wanted - RESERVED_FILES, wanted // 2)


def limits_of(place: Place, most: int) -> ConnectionLimits:
    """Divide the connections: no address takes more than a quarter, but for a proxy, through which all come."""
    return ConnectionLimits(connections=most, per_address=most if place.proxy else max(most // 4, 1))


class Life(LifespanOn):
    """Start and end of an application, as uvicorn has them, which of a start that fails only says that it did.

    Attributes:
        failure: Why the application could not start.
    """

    failure: BaseException | None = None

    def __init__(self, config: uvicorn.Config) -> None:
        """Speak with the application, and keep what it raises."""
        super().__init__(copy.copy(config))
        app: Any = config.loaded_app

        async def kept(scope: Any, receive: Any, send: Any) -> None:
            try:
                await app(scope, receive, send)
            except BaseException as error:
                self.failure = error
                raise

        self.config.loaded_app = kept


def serve(app: Asgi, place: Place, listening: socket.socket) -> None:
    """Serve until a signal comes; requests under way are finished. Raises what kept the application from starting."""
    server = make_server(app, place, bounded(limits_of(place, most_connections())))
    server.config.load()
    server.config.lifespan_class = Life

    def end(*_: object) -> None:
        # Before uvicorn has set handlers. Later it raises the signal again when it is done: all is well then.
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    if place.certificate is not None:
        assert server.config.ssl is not None  # noqa: S101  it has a certificate
        files = CertificateFiles(server.config.ssl, place.certificate, place.key)
        files.on_hang_up()
        files.start()
    # What strangers send wrong is counted and answered; to log it would let them fill the disk.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    # Whatever is there by now stays; to go through it again and again would cost as much as folding in.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE)
    gc.enable()
    try:
        server.run(sockets=[listening])
    except SystemExit:
        life = server.lifespan
        if isinstance(life, Life) and life.failure is not None:
            raise life.failure from None
        raise


LOG_PACE = Pace(per_second=1 / 60, burst=10)
"""Ten of a kind at once, then one a minute: with a traceback of 2 kB, 3 MB a day of each kind."""


class LogLimit(logging.Filter):
    """A log that strangers cannot fill: of each kind of message only so many are written in a while.

    What a message is about is the place in the code that wrote it, and the kind of its error. Those that were left out
    are counted, and the next one that is written says how many there were.

    Args:
        pace: How many of each kind may pass.
        clock: Monotonic seconds.
    """

    def __init__(self, pace: Pace = LOG_PACE, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._limiter = Limiter(pace, clock)
        self._left_out: dict[tuple[object, ...], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a message is written."""
        kind = (record.name, record.pathname, record.lineno, record.exc_info and record.exc_info[0])
        if self._limiter.wait(kind):
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return False
        if left_out := self._left_out.pop(kind, 0):
            record.msg, record.args = f"{record.getMessage()} (and {left_out} more like this)", ()
        return True
