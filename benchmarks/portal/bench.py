"""What the portal costs: CPU time of each page with a large crowd behind it, and of fifty who watch a busy task.

    python benchmarks/portal/bench.py [--devices 1000] [--receipts 100000] [--watchers 50] [--seconds 20]

Pages are asked of the whole application, in this process, after something has changed, so that nothing kept from before
helps; and once more when nothing has. Watchers are connections to a server in a process of its own, whose task changes
five times a second: each holds a stream of events and fetches the page as the script does, every three seconds. Their
cost is the server's CPU time with them, less that without.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from crowdml.server.http.requests import Pace
from crowdml.server.setup.application import Access, create_app
from crowdml.server.setup.serving import Place, bind, require_identity, serve
from crowdml.server.store import Applied, NewDay, NewDevice, Point, Receipt, Store, open_store
from crowdml.server.tasks.coordinator import Coordinator
from crowdml.server.tasks.new_task import TaskRequest
from crowdml.server.tasks.running_task import RunningTask

TASK = """
crowdml = 1
name = "bench"
objective = "Recognise handwritten digits"
[data]
features = 64
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
batch = 20
[privacy]
mode = "sound"
mechanism = "gaussian"
clip = 1.0
epsilon = 8.0
delta = 1e-6
max-uses = 10
statistics-epsilon = 1.0
"""
PATHS = ("/", "/tasks/bench", "/join/bench", "/device", "/v1/tasks/bench/statistics", "/v1/tasks/bench/curve")
BATCH, DAYS, REPEATS = 250, 60, 40
FAST = Access(reader_pace=Pace(per_second=1e6, burst=10**6), stranger_pace=Pace(per_second=1e6, burst=10**6))
CHANGES_S, PAUSE_S = 0.2, 3.0


def fill(folder: Path, devices: int, receipts: int) -> None:
    """Make a task with so many devices and receipts, spread over two months, and its learning curve."""
    store = open_store(f"sqlite:///{folder}/crowdml.sqlite")
    require_identity(store, folder)
    task = Coordinator(store, lambda _: None).create(TaskRequest(file=TASK))
    _enrol(store, task.id, devices)
    today, last, last_day = int(time.time() // 86_400), 0, -1
    for first in range(0, receipts, BATCH):
        after = first + BATCH
        made = [
            Receipt(
                slot=number % devices,
                key=f"{number:010x}-receipt",
                body=bytes(32),
                number=number // devices + 1,
                version=number + 1,
                started=max(0, number - number % 7),
                status="applied",
            )
            for number in range(first, after)
        ]
        point = None
        if after > last * 1.01:
            last = after
            point = Point(
                version=after,
                check_ins=after,
                rows=20 * after,
                estimated_error=0.2,
                time=time.time(),
                counted=20 * after,
                errors=4 * after,
            )
        day, begun = today - DAYS + 1 + first * DAYS // receipts, None
        if day != last_day:
            over = (last_day, receipts // DAYS, devices) if last_day > 0 else None
            begun, last_day = NewDay(day=day, version=first, staleness=str([first, *[0] * 8]), over=over), day
        store.apply(
            Applied(
                task=task.id,
                expected_version=first,
                expected_check_ins=first,
                version=after,
                check_ins=after,
                received=0,
                server_state=task.server_state,
                rows={},
                receipts=made,
                point=point,
                day=begun,
            )
        )
    store.close()


def _enrol(store: Store, task: int, devices: int) -> None:
    codes = [number.to_bytes(4, "big") for number in range(devices)]
    store.add_invites(task, codes)
    for code in codes:
        name = f"device-{code.hex()}"
        device = NewDevice(id=name, token_hash=code * 8, public_key=code * 8, joined=time.time())
        store.use_invite(task, code, device)


class InProcess:
    """The application without a socket."""

    def __init__(self, folder: Path) -> None:
        self.app: Any = create_app(open_store(f"sqlite:///{folder}/crowdml.sqlite"), access=FAST)
        self._to_app: asyncio.Queue[Any] = asyncio.Queue()

    async def __aenter__(self) -> InProcess:
        self._from_app: asyncio.Queue[Any] = asyncio.Queue()
        life = self.app({"type": "lifespan"}, self._to_app.get, self._from_app.put)
        self._life = asyncio.create_task(life)
        await self._to_app.put({"type": "lifespan.startup"})
        assert (await self._from_app.get())["type"] == "lifespan.startup.complete"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._to_app.put({"type": "lifespan.shutdown"})
        await self._life

    @property
    def running(self) -> RunningTask:
        """The task."""
        found: RunningTask = self.app._coordinator.tasks["bench"]
        return found

    async def get(self, path: str) -> int:
        """Ask for a page; return its size."""
        sizes = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                assert message["status"] == 200, message
            else:
                sizes.append(len(message.get("body", b"")))

        headers = [(b"host", b"127.0.0.1"), (b"accept", b"text/html"), (b"accept-encoding", b"gzip")]
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "headers": headers}
        scope |= {"query_string": b"", "client": ("127.0.0.1", 1), "http_version": "1.1", "scheme": "http"}
        await self.app({**scope, "asgi": {"version": "3.0"}, "root_path": ""}, receive, send)
        return sum(sizes)


def change(running: RunningTask) -> None:
    """Let a task go on by a version, as a stored check-in does."""
    now = running.snapshot
    running.publish(dataclasses.replace(now, version=now.version + 1, check_ins=now.check_ins + 1))


async def measure_pages(folder: Path) -> None:
    """Print what each page costs, in the median and at most."""
    async with InProcess(folder) as server:
        for path in PATHS:
            await server.get(path)
        for path in PATHS:
            changed, same, size = [], [], 0
            for _ in range(REPEATS):
                change(server.running)
                for kept in (changed, same):
                    began = time.process_time()
                    size = await server.get(path)
                    kept.append(1e3 * (time.process_time() - began))
            print(
                f"{path:28} {statistics.median(changed):6.2f} ms of CPU (at most {max(changed):.2f}); "
                f"{statistics.median(same):5.2f} when nothing has changed; {size / 1e3:.1f} kB"
            )


def run_server(folder: Path, told: Any) -> None:
    """Serve, and let the task change five times a second."""
    app: Any = create_app(open_store(f"sqlite:///{folder}/crowdml.sqlite"), access=FAST)
    place = Place(port=0)
    listening = bind(place)
    told.put(listening.getsockname()[1])

    def go_on() -> None:
        while True:
            time.sleep(CHANGES_S)
            for running in list(app._coordinator.tasks.values()):
                change(running)

    threading.Thread(target=go_on, daemon=True).start()
    serve(app, place, listening)


async def watch(port: int, number: int, ready: asyncio.Semaphore, seen: Counter[str]) -> None:
    """Be one browser that looks on, from an address of its own; count what it sees."""
    address = (f"127.0.1.{number + 1}", 0)

    async def ask(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=address)
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        return reader, writer

    async def fetch() -> None:
        while True:
            reader, writer = await ask("/tasks/bench?live")
            assert b" 200 " in (await reader.read())[:20]
            writer.close()
            seen["pages"] += 1
            await asyncio.sleep(PAUSE_S)

    events, _ = await ask("/v1/tasks/bench/events")
    assert b" 200 " in await events.readline()
    ready.release()
    fetching = asyncio.create_task(fetch())
    try:
        while part := await events.read(1 << 16):
            seen["events"] += part.count(b"event: state")
    finally:
        fetching.cancel()


def cpu_seconds(pid: int) -> float:
    """CPU time of a process with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure_watchers(folder: Path, watchers: int, seconds: float) -> None:
    """Print what watchers cost, as a share of a core."""
    told: Any = multiprocessing.get_context("spawn").SimpleQueue()
    process = multiprocessing.get_context("spawn").Process(target=run_server, args=(folder, told), daemon=True)
    process.start()
    port = await asyncio.to_thread(told.get)
    assert process.pid is not None
    # The pages are loaded a little after the server has begun.
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /tasks/bench HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    assert b" 200 " in (await reader.read())[:20]
    writer.close()

    async def share() -> float:
        before, began = cpu_seconds(process.pid or 0), time.monotonic()
        await asyncio.sleep(seconds)
        return (cpu_seconds(process.pid or 0) - before) / (time.monotonic() - began)

    alone = await share()
    ready, seen = asyncio.Semaphore(0), Counter[str]()
    crowd = [asyncio.create_task(watch(port, number, ready, seen)) for number in range(watchers)]
    for _ in crowd:
        await ready.acquire()
    await asyncio.sleep(2.0)
    seen.clear()
    watched = await share()
    told_of = f"{seen['events'] / seconds:.0f} events and {seen['pages'] / seconds:.1f} pages a second"
    process.terminate()
    for one in crowd:
        one.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)
    print(
        f"{watchers} watchers: {100 * (watched - alone):.1f} % of a core ({100 * watched:.1f} % with them, "
        f"{100 * alone:.1f} % without), {told_of}"
    )


def main() -> None:
    """Fill a store, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--receipts", type=int, default=100_000)
    parser.add_argument("--watchers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        fill(folder, given.devices, given.receipts)
        print(f"{given.devices} devices, {given.receipts} receipts")
        asyncio.run(measure_pages(folder))
        asyncio.run(measure_watchers(folder, given.watchers, given.seconds))


if __name__ == "__main__":
    main()
