"""A device as a member of a group that holds pieces of one net: the driver of its machine.

Everything goes through one WebSocket to the server's relay. If it breaks the device connects again, and shows its last
deposits: it may be the server that was lost. The keys of this run live in memory only.
"""

from __future__ import annotations

import hashlib
import logging
import os
import ssl
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from crowdml.core import Array, BadInput, CrowdError, trees
from crowdml.core.blas_threads import one_blas_thread
from crowdml.core.errors import MalformedMessage, Unreachable
from crowdml.core.files import write_whole
from crowdml.core.keys import SigningKey
from crowdml.core.ops import Tree
from crowdml.device.device_home import Member as Joined
from crowdml.device.server_connection import BUSY, Answer, Connection
from crowdml.slicing.cost_graph import DOMINATOR
from crowdml.slicing.live.controls import OfMember, Prepare, Welcome, read_of_server, write_control
from crowdml.slicing.live.dealing import row_order
from crowdml.slicing.live.deposits import in_chunks
from crowdml.slicing.live.member_machine import RUNNING, Member, Out, Released
from crowdml.slicing.live.slice_frames import DEPOSIT, read_header
from crowdml.slicing.live.slice_terms import SliceTerms

GROUP_MODEL = "group-model.safetensors"
SLOW_S, SLOW_TIMES = 5.0, 8.0
"""A dominator asks what its batch waits for after so many seconds, and after so many times the usual."""
LONGEST_FRAME = 64 << 20
_OPEN_S, _PING_S = 10.0, 10.0
_SILENT = logging.getLogger("crowdml.relay")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
"""What ends a connection is told to the owner in a sentence; the library would write a traceback beside it."""


class SliceTaker:
    """Takes part in a group.

    Args:
        connection: To the server; its address, token and trust are used, and its way to wait.
        joined: Who this device is.
        terms: What the group has agreed on.
        tell: Called with one line about what happens.
        clock: Monotonic seconds.
        released: What is sent of rows, where noise on the first cut was agreed on.
    """

    def __init__(
        self,
        connection: Connection,
        joined: Joined,
        terms: SliceTerms,
        tell: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        released: Released | None = None,
    ) -> None:
        self._released = released
        self._connection, self._joined, self._clock = connection, joined, clock
        self._terms = replace(terms, task_hash=joined.task_hash)
        self._tell = tell or (lambda line: None)
        self._turn = self._passes = -1
        self._told_again = self._told_observers = 0
        self._batches: deque[float] = deque(maxlen=32)
        self._behind: deque[bytes] = deque()

    def run(self, rows: Array, labels: Array) -> Member:
        """Take part until the server says that it is over."""
        if not len(labels):
            raise BadInput("a member of a group needs at least one row", where="--rows")
        key = self._joined.key
        secret = hashlib.sha256(b"crowdml row order\0" + key.secret + self._terms.task_hash.encode()).digest()
        member = Member(
            self._terms,
            np.asarray(rows, np.float32),
            np.asarray(labels),
            lambda turn, count: row_order(secret, turn, count),
            SigningKey(key.secret),
            os.urandom,
            self._released,
        )
        with one_blas_thread():
            # Products are small, and threads that turn while others compute would slow a group on one machine down.
            return self._take_part(member)

    def _take_part(self, member: Member) -> Member:
        """Connect, again and again if need be, until it is over."""
        tries, since = 0, self._clock()
        while True:
            try:
                with self._socket() as socket:
                    tries, since = 0, self._clock()
                    self._behind.clear()
                    for message in member.hello():
                        socket.send(_written(message))
                    self._talk(socket, member)
            except (OSError, WebSocketException) as error:
                why = _said(error)
                if self._connection.gives_up(self._clock() - since):
                    raise Unreachable(f"{self._connection.server}: {why} ({tries} tries)") from None
                self._tell(f"{why}; connecting again")
            if member.reason and not member.again:
                return member
            if member.reason:
                self._tell(f"{member.reason}; this device comes back")
            member.reason = ""
            tries += 1
            self._connection.pause(None, tries, "the connection to the relay has ended")

    @contextmanager
    def _socket(self) -> Iterator[ClientConnection]:
        """Open the connection; a refusal is what it would be for any other request."""
        server = self._connection.server
        url = f"ws{server.removeprefix('http')}/v1/tasks/{self._joined.task}/relay"
        options: dict[str, Any] = {} if self._connection.trust_env else {"proxy": None}
        context: ssl.SSLContext | None = self._connection.trust if server.startswith("https:") else None
        try:
            with connect(
                url,
                additional_headers=self._connection.headers,
                ssl=context,
                compression=None,
                max_size=LONGEST_FRAME,
                max_queue=None,
                open_timeout=_OPEN_S,
                ping_interval=_PING_S,
                ping_timeout=_PING_S,
                close_timeout=2.0,
                logger=_SILENT,
                **options,
            ) as socket:
                yield socket
        except InvalidStatus as refused:
            response = refused.response
            headers = httpx.Headers(list(response.headers.raw_items()))
            answer = Answer(status=response.status_code, headers=headers, body=bytes(response.body or b""))
            if answer.status in BUSY:
                raise OSError(f"the server is busy ({answer.status})") from None
            raise answer.error() from None

    def _talk(self, socket: ClientConnection, member: Member) -> None:
        """Take messages until the connection ends, and ask the server whom a slow batch waits for."""
        done, moved = member.batches, self._clock()
        while True:
            try:
                message = socket.recv(timeout=0 if self._behind else self._patience(member, moved))
            except TimeoutError:
                if self._behind:
                    # Nothing else is to be done: a part of the last deposit goes now.
                    _put(socket, self._behind.popleft())
                    continue
                self._send(socket, member.late())
                moved = self._clock()
                continue
            except ConnectionClosed:
                return
            told = read_of_server(message) if isinstance(message, str) else bytes(message)
            if isinstance(told, Prepare):
                self._behind.clear()
            self._watch(told)
            try:
                self._send(socket, member.handle(told))
            except (CrowdError, MalformedMessage):
                socket.close(1008)
                raise
            self._account(member)
            if member.batches != done:
                now = self._clock()
                self._batches.append(now - moved)
                done, moved = member.batches, now
                if self._behind:
                    # However busy it is, a deposit gets on with every batch.
                    _put(socket, self._behind.popleft())
            elif not isinstance(told, bytes):
                moved = self._clock()

    def _patience(self, member: Member, moved: float) -> float | None:
        """How long a dominator waits for the next message before it asks; others wait as long as it takes."""
        if member.role != DOMINATOR or member.stage != RUNNING:
            return None
        usual = statistics.median(self._batches) if self._batches else 0.0
        return max(0.01, moved + max(SLOW_S, SLOW_TIMES * usual) - self._clock())

    def _send(self, socket: ClientConnection, out: Out) -> None:
        """Send messages; a deposit in chunks behind all others, and whole before the next one."""
        for message in out:
            if isinstance(message, bytes) and read_header(message).kind == DEPOSIT:
                while self._behind:
                    _put(socket, self._behind.popleft())
                self._behind.extend(in_chunks(message))
                continue
            _put(socket, _written(message))

    def _account(self, member: Member) -> None:
        """Tell the owner what it cost: who saw sums of the rows, and passes whose work was given up."""
        guard = member.guard
        if guard.passes_again > self._told_again:
            self._tell("the server begins this pass again with the shared weights: what the group learnt in it is gone")
        if len(guard.observers) > self._told_observers:
            self._tell(f"{len(guard.observers)} other members have seen sums of these rows so far")
        self._told_again, self._told_observers = guard.passes_again, len(guard.observers)

    def _watch(self, told: object) -> None:
        """Say what a person wants to know of it."""
        if isinstance(told, Welcome):
            self._tell(f"in group {told.group}, as member {told.number}")
        elif isinstance(told, Prepare):
            if told.passes != self._passes:
                self._tell(f"pass {told.passes + 1} of {self._terms.passes}")
            elif told.turn == self._turn and (told.cut is None or not told.cut.last):
                batch = told.cut.batch if told.cut is not None and told.cut.turn == told.turn else 0
                self._tell(f"turn {told.turn} goes on from batch {batch}, with {len(told.cards)} members")
            self._passes, self._turn = told.passes, told.turn


def save_group_model(folder: Path, model: Tree, task: str) -> None:
    """Keep the group's model in the device's folder, readable by the owner alone."""
    from safetensors.numpy import save

    leaves = {name: np.ascontiguousarray(leaf) for name, leaf in trees.paths(model)}
    told = {"crowdml": "1", "task": task, "privacy": "a group's model: its members have it, nobody else"}
    write_whole(folder / GROUP_MODEL, save(leaves, metadata=told), secret=True)


def group_model(folder: Path) -> bytes:
    """Read the group's model, once the device has it."""
    path = folder / GROUP_MODEL
    if not path.exists():
        raise BadInput(
            "this device has no model of its group yet: it gets it at the end of the last pass",
            hint="crowdml device run --rows FILE",
        )
    return path.read_bytes()


def _put(socket: ClientConnection, message: str | bytes) -> None:
    """Send; on a connection that the server has closed there is still to read what it said before, such as a model."""
    with suppress(ConnectionClosed):
        socket.send(message)


def _written(message: bytes | OfMember) -> str | bytes:
    return message if isinstance(message, bytes) else write_control(message)


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
