"""Thousands of devices that all come back at once after their server was killed and started again.

Each checks out and checks in by HTTP as a real one does, with a token of its own, and follows what the server says:
after a 503 it comes again when `Retry-After` has passed, with the same key and the same bytes. Nothing is computed for
that; the check-in is an honest one of its task, made once.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from crowdml.server.setup.serving import require_identity
from crowdml.server.store import NewDevice, Store, open_store
from crowdml.server.tasks.coordinator import Coordinator
from crowdml.server.tasks.new_task import TaskRequest
from crowdml.task import parse
from crowdml.task.live_task import assemble
from crowdml.wire import message
from crowdml.wire.join_link import make_token

ADDRESSES = 50
"""Devices come from so many addresses: one alone may have a quarter of all connections."""
PATIENCE_S = 120.0
_JITTER = 1.0


@dataclass
class Outcome:
    """What sessions were told.

    Attributes:
        served: Sessions whose check-in was acknowledged.
        later: Answers 503 that said when to come again.
        other: Anything else: other answers, broken connections.
        seconds: How long each accepted answer took, from its request on.
    """

    served: int = 0
    later: int = 0
    other: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        """Return how long an answer took at most, in so large a share of them."""
        return float(np.quantile(self.seconds, share))


def prepare(folder: Path, task: str, devices: int) -> list[str]:
    """Make a task and its devices, directly in the store of a server that does not run; return their tokens."""
    with open_store(f"sqlite:///{folder}/crowdml.sqlite") as store:
        require_identity(store, folder)
        Coordinator(store, lambda _: None).create(TaskRequest(file=task))
        return enrol(store, parse(task).name, devices)


def enrol(store: Store, task: str, devices: int) -> list[str]:
    """Enrol devices directly in a store; return their tokens."""
    found = store.task(task)
    assert found is not None
    tokens = [make_token() for _ in range(devices)]
    codes = [hashlib.sha256(f"code {number}".encode()).digest() for number in range(devices)]
    store.add_invites(found.id, codes)
    for number, (token, code) in enumerate(zip(tokens, codes, strict=True)):
        hashed = hashlib.sha256(token.encode()).digest()
        device = NewDevice(id=f"device-{number}", token_hash=hashed, public_key=hashed, joined=0.0)
        store.use_invite(found.id, code, device)
    return tokens


def honest_body(text: str) -> bytes:
    """Make a check-in of a softmax task that counts nothing, as noise makes it."""
    task = parse(text)
    live = assemble(task, [transform.restore({}) for transform in task.data.transform])
    content = live.messages.check_in.example["content"]
    noise = np.random.default_rng(0).integers(-500, 500, content.update[0]["w"].shape).astype(np.int32)
    content = replace(content, update=({"w": noise},), weight=np.int32(task.algorithm.batch))
    return live.messages.check_in.encode(message(0, content))


async def come_back(port: int, task: str, tokens: Sequence[str], body: bytes) -> Outcome:
    """Let all sessions come at once, until each is served."""
    outcome = Outcome()
    chance = random.Random(len(tokens))
    end = time.monotonic() + PATIENCE_S
    sessions = [
        _Session(port, task, token, body, f"127.0.1.{1 + number % ADDRESSES}", chance.random(), outcome).run(end)
        for number, token in enumerate(tokens)
    ]
    await asyncio.gather(*sessions)
    return outcome


@dataclass
class _Session:
    port: int
    task: str
    token: str
    body: bytes
    source: str
    patience: float
    outcome: Outcome
    link: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self, end: float) -> None:
        key = hashlib.sha256(self.token.encode()).hexdigest()[:32]
        head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {self.token}\r\nCrowdml-Protocol: 2\r\n"
        check_out = f"GET /v1/tasks/{self.task}/check-out HTTP/1.1\r\n{head}\r\n".encode()
        check_in = (
            f"POST /v1/tasks/{self.task}/check-ins HTTP/1.1\r\n{head}Content-Type: application/octet-stream\r\n"
            f"Content-Length: {len(self.body)}\r\nIdempotency-Key: {key}\r\n\r\n"
        ).encode() + self.body
        if await self._until_accepted(check_out, end) and await self._until_accepted(check_in, end):
            self.outcome.served += 1
        if self.link:
            self.link[1].close()

    async def _until_accepted(self, request: bytes, end: float) -> bool:
        while time.monotonic() < end:
            try:
                status, headers, took_s = await self._ask(request)
            except (OSError, asyncio.IncompleteReadError) as error:
                self.outcome.other[type(error).__name__] += 1
                self.link, wait_s = None, 1.0
            else:
                if status in (200, 304):
                    self.outcome.seconds.append(took_s)
                    return True
                if status == 503 and b"retry-after" in headers:
                    self.outcome.later += 1
                    wait_s = float(headers[b"retry-after"])
                else:
                    self.outcome.other[f"status {status}"] += 1
                    wait_s = 1.0
                if headers.get(b"connection") == b"close" and self.link:
                    self.link[1].close()
                    self.link = None
            # Not all at the same moment again, as devices do.
            await asyncio.sleep(wait_s * (1.0 + _JITTER * self.patience))
        return False

    async def _ask(self, request: bytes) -> tuple[int, dict[bytes, bytes], float]:
        """Return status, headers, and how long the answer took."""
        if self.link is None:
            self.link = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(self.source, 0))
        reader, writer = self.link
        began = time.perf_counter()
        writer.write(request)
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(b": ") for line in lines)}
        if size := int(headers.get(b"content-length", b"0")):
            await reader.readexactly(size)
        return int(first.split(b" ")[1]), headers, time.perf_counter() - began


def peak_memory(pid: int) -> int:
    """Return the most memory that a process has had, in bytes."""
    return _memory(pid, "VmHWM:")


def resident_memory(pid: int) -> int:
    """Return the memory that a process has, in bytes."""
    return _memory(pid, "VmRSS:")


def _memory(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))
