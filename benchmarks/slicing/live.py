"""Live slices, measured: what a frame costs the relay, how near batches come to the latency floor, bytes, encryption.

    python -m benchmarks.slicing.live [relay] [floor] [bytes] [encryption]

Processes are real and on this machine. CPU times are those of the server's process, so other work on the machine hardly
matters; batches a second want a quiet one.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from socket import AF_INET, SOCK_STREAM, create_connection
from socket import socket as socket_of
from typing import Any

import numpy as np
import uvicorn
from websockets.sync.client import connect

from crowdml.core.keys import SigningKey
from crowdml.device.device_home import Home
from crowdml.device.joining import join
from crowdml.server.http.websockets.bounded_socket import BoundedSocket
from crowdml.slicing.live.controls import read_of_server, write_control
from crowdml.slicing.live.member_cards import Channels, MemberKeys
from crowdml.slicing.live.member_machine import Member
from crowdml.slicing.live.slice_frames import (
    BETWEEN_MEMBERS,
    FORWARD,
    HEADER_BYTES,
    TAG_BYTES,
    plain_header,
    read_header,
)
from crowdml.task.live_task import sliced_terms
from tests.support.live_slices import SlicedCrowd

TASK = """
crowdml = 1
name = "pieces"
objective = "Measure"
[data]
features = 64
labels = ["a", "b", "c"]
[model]
kind = "mlp"
layers = [400, 200, 100]
[algorithm]
kind = "slicenet"
pieces = 5
batch = {batch}
rate = 0.01
cut-every = 100000
[privacy]
mode = "none"
[stop]
max-releases = 1
"""
LEG_S = 0.025
MEASURED = 60
"""Batches that are measured."""


def rows(count: int) -> Any:
    """Return so many rows for every device."""

    def of(device: int) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng(device)
        return generator.normal(size=(count, 64)).astype(np.float32), generator.integers(0, 3, count)

    return of


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def crowd_figures(batch: int, count: int, proxy: bool = False) -> dict[str, Any]:
    """Let six devices run one pass, and measure the server while batches are under way."""
    with tempfile.TemporaryDirectory() as folder:
        with SlicedCrowd(Path(folder), 6, TASK.format(batch=batch), rows(count)) as crowd:
            delayed = Delay(crowd.server.port) if proxy else None
            if delayed is not None:
                crowd.server.address = crowd.server.address.rpartition(":")[0] + f":{delayed.port}"
            crowd.join()
            crowd.wait_until(lambda: bool(crowd.groups()) and crowd.groups()[0]["batches"] > 5, "no batch", 300)
            devices = [process.pid for process in crowd.processes.values()]
            before, began, at = crowd.groups()[0], time.monotonic(), cpu_s(crowd.server.process.pid)
            devices_at = sum(map(cpu_s, devices))
            wanted = before["batches"] + MEASURED
            while crowd.groups()[0]["batches"] < wanted and crowd.groups()[0]["stage"] != "done":
                # To ask costs the server as much as dozens of frames.
                time.sleep(5)
            after, took = crowd.groups()[0], time.monotonic() - began
            spent, devices_spent = cpu_s(crowd.server.process.pid) - at, sum(map(cpu_s, devices)) - devices_at
            hops = sliced_terms(crowd.task).plan.hops
            return {
                "frames": after["frames"] - before["frames"],
                "bytes": after["bytes"] - before["bytes"],
                "batches": after["batches"] - before["batches"],
                "planned_bytes_per_row": after["planned_bytes_per_row"],
                "floor": after["floor_batches_per_s"],
                "batches_per_s": (after["batches"] - before["batches"]) / took,
                "server_cpu_s": spent,
                "devices_cpu_s": devices_spent,
                "hops": hops,
                "batch": batch,
            }


class Delay:
    """A proxy that holds every byte back for one leg, in each direction."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        self._ready.wait()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await server.serve_forever()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            onward, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._carry(reader, back), self._carry(onward, writer), return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await reader.read(1 << 20):
                loop.call_later(LEG_S, writer.write, data)
        finally:
            # A process that was killed resets its connection: the other side must hear of it.
            loop.call_later(2 * LEG_S, writer.close)


class RawMember:
    """A member that says what the protocol asks for until it runs, and then what it is told to."""

    def __init__(self, crowd: SlicedCrowd, link: str, number: int, stack: ExitStack) -> None:
        home = crowd.home(number)
        join(link, home, accept=lambda _: True, accept_no_guarantee=lambda _: True)
        joined = Home(home).member()
        terms = replace(sliced_terms(crowd.task), task_hash=joined.task_hash)
        inputs, labels = crowd.rows[number]
        order = np.arange(len(labels))
        self.machine = Member(terms, inputs, labels, lambda turn, count: order, joined.key, os.urandom)
        opened = connect(
            f"ws{crowd.server.address.removeprefix('http')}{crowd.path}/relay",
            additional_headers={"Authorization": f"Bearer {joined.token}"},
            compression=None,
            proxy=None,
            max_size=1 << 26,
        )
        self.socket = stack.enter_context(opened)
        self.say(self.machine.hello())

    def say(self, out: Any) -> None:
        """Send messages."""
        for message in out:
            self.socket.send(message if isinstance(message, bytes) else write_control(message))

    def until_running(self) -> list[Any]:
        """Go on until this member runs; return what it would send then."""
        while True:
            message = self.socket.recv()
            out = self.machine.handle(read_of_server(message) if isinstance(message, str) else bytes(message))
            if self.machine.stage == "running":
                return out
            self.say(out)


def is_between(frame: bytes) -> bool:
    """Tell whether a frame goes to another member."""
    return read_header(frame).kind in BETWEEN_MEMBERS


def run_s(pid: int) -> float:
    """CPU seconds of a process's main thread, where its event loop is, to the nanosecond."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def beside_echo(rounds: int = 12, count: int = 500) -> dict[str, Any]:
    """Let the relay and a bare echo take turns with the same frames: medians of CPU, in one run."""
    with ExitStack() as stack:
        pid, one, other, frame = stack.enter_context(a_relay())
        echo_pid, socket = stack.enter_context(an_echo())
        found: dict[str, list[float]] = {"relay": [], "echo": []}
        for _ in range(rounds):
            for name, of, sender, receiver in (("relay", pid, one, other), ("echo", echo_pid, socket, socket)):
                before = run_s(of)
                for _ in range(count):
                    sender.send(frame)
                    receiver.recv()
                found[name].append(1e6 * (run_s(of) - before) / count)
    relay, bare = (statistics.median(found[name][1:]) for name in ("relay", "echo"))
    ratios = [a / b for a, b in zip(found["relay"][1:], found["echo"][1:], strict=True)]
    return {
        "relay_us": relay,
        "echo_us": bare,
        "frame_bytes": len(frame),
        "times_echo": relay / bare,
        "times_echo_by_round": [round(each, 3) for each in sorted(ratios)],
    }


@contextmanager
def a_relay() -> Iterator[tuple[int, Any, Any, bytes]]:
    """Run the real server with a group of two; give its process, both sockets, and a frame from one to the other."""
    text = TASK.format(batch=50).replace("[400, 200, 100]", "[100]").replace("pieces = 5", "pieces = 1")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        crowd = stack.enter_context(SlicedCrowd(Path(folder), 2, text, rows(100)))
        links = crowd.server.ask(f"{crowd.path}/invites", {"count": 2})["invites"]
        members = [RawMember(crowd, link, number, stack) for number, link in enumerate(links)]
        with ThreadPoolExecutor(2) as pool:
            # Each waits for the other.
            begun = list(pool.map(RawMember.until_running, members))
        sums = [[each for each in out if isinstance(each, bytes) and is_between(each)] for out in begun]
        sender = 0 if sums[0] else 1
        for member, out in zip(members, begun, strict=True):
            # Deposits that were asked for at once; the cut that they make is answered to both.
            member.say(each for each in out if isinstance(each, bytes) and not is_between(each))
        for member in members:
            member.socket.recv()
        frame, pid = sums[sender][0], crowd.server.process.pid
        yield pid, members[sender].socket, members[1 - sender].socket, frame


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """A bare WebSocket application that sends back what it gets."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"].endswith("shutdown"):
                return
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "bytes": message["bytes"]})


def _serve_echo(port: int) -> None:
    uvicorn.run(
        echo,
        port=port,
        ws=BoundedSocket,
        loop="uvloop",
        ws_per_message_deflate=False,
        log_level="critical",
        access_log=False,
    )


@contextmanager
def an_echo() -> Iterator[tuple[int, Any]]:
    """Run a bare echo server; give its process and a socket to it."""
    with closing(socket_of(AF_INET, SOCK_STREAM)) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = multiprocessing.get_context("spawn").Process(target=_serve_echo, args=(port,), daemon=True)
    process.start()
    deadline = time.monotonic() + 120
    while True:
        try:
            create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    with connect(f"ws://127.0.0.1:{port}", compression=None, proxy=None) as socket:
        yield process.pid or 0, socket
    process.terminate()
    process.join()


def sealing_s(size: int, count: int = 2000) -> float:
    """CPU seconds to seal a frame of so many bytes and to open it again, in this process."""
    task = "measured"
    one, two = (MemberKeys(task, os.urandom(32), SigningKey.make()) for _ in range(2))
    cards = {1: one.card, 2: two.card}
    one.meet(cards, 1)
    two.meet(cards, 2)
    here, there = Channels(one, 1, cards, b"context"), Channels(two, 2, cards, b"context")
    header = plain_header(FORWARD, 1, (0, 1), (1, 2), -1)._replace(micros=1, rows=50)
    body, begun = os.urandom(size), time.thread_time()
    for _ in range(count):
        frame = here.seal(header, body)
        there.open(read_header(frame), frame)
    return (time.thread_time() - begun) / count


def encryption() -> dict[str, Any]:
    """Share of encryption in what devices do: what their frames cost to seal and open, beside all their CPU time."""
    found = crowd_figures(50, 40_000)
    size = found["bytes"] // found["frames"] - HEADER_BYTES - TAG_BYTES
    seconds = found["frames"] * sealing_s(size)
    return {
        "frames": found["frames"],
        "bytes_per_frame": size,
        "encryption_s": seconds,
        "devices_cpu_s": found["devices_cpu_s"],
        "share": seconds / found["devices_cpu_s"],
    }


def measure(what: str) -> None:
    """Measure one thing, and print it."""
    if what == "relay":
        found = beside_echo()
    elif what == "floor":
        found = crowd_figures(10, 400, proxy=True)
        floor = 1 / (found["hops"] * 2 * LEG_S)
        found |= {"floor": floor, "share_of_floor": found["batches_per_s"] / floor}
    elif what == "bytes":
        found = crowd_figures(50, 40_000)
        planned = found["planned_bytes_per_row"] * found["batch"] * found["batches"]
        overhead = found["frames"] * (HEADER_BYTES + TAG_BYTES)
        found |= {"planned": planned, "overhead": overhead, "difference": found["bytes"] / (planned + overhead) - 1}
        found["overhead_share"] = overhead / planned
    else:
        found = encryption()
    told = {name: round(value, 5) if isinstance(value, float) else value for name, value in found.items()}
    print(json.dumps({what: told}), flush=True)


if __name__ == "__main__":
    for name in sys.argv[1:] or ("relay", "floor", "bytes", "encryption"):
        measure(name)
