"""What a durable check-in costs, beside a bare echo on the same server.

    python benchmarks/serving/bench.py [--connections 64] [--requests 20000] [--json FILE]
    python benchmarks/serving/bench.py --against-echo [--json FILE]

The second compares with an echo of the same body at 500, 100,000 and 1,000,000 parameters: see `against_echo`.

The figure is CPU time of the server's process per request, all forms in one run, so it does not depend on how fast the
load generator is. Every form is measured in turns, and the median of its turns is taken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from dataclasses import replace
from pathlib import Path

import numpy as np

from crowdml.task import parse
from crowdml.task.live_task import assemble
from crowdml.wire import message

sys.path.insert(0, str(Path(__file__).parent))
from server import DEVICES, TASK

TICK = os.sysconf("SC_CLK_TCK")
TURNS = 5


def cpu_seconds(pid: int) -> float:
    """CPU time of a process with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


class Form:
    """One running server."""

    def __init__(self, form: str, folder: Path, features: int, devices: int = DEVICES) -> None:
        script = str(Path(__file__).with_name("server.py"))
        command = [sys.executable, script, form, str(folder), str(features), str(devices)]
        self.name = f"{form}, {features * 10} parameters"
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: S603
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())
        self.port, self.tokens = told["port"], told["tokens"] or ["none"]
        if told["tokens"]:
            # The control plane is loaded after the server has begun; nobody measures that.
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/tasks").read()
        self.body = _body(features)
        self.sent = 0
        self.costs: list[float] = []

    def request(self, token: str) -> tuple[bytes, bytes]:
        """Write one check-in of a device as HTTP: headers and body."""
        self.sent += 1
        head = (
            f"POST /v1/tasks/bench/check-ins HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
            f"Crowdml-Protocol: 2\r\nContent-Type: application/octet-stream\r\nContent-Length: {len(self.body)}\r\n"
            f"Idempotency-Key: check-in-{self.sent}\r\n\r\n"
        )
        return head.encode(), self.body


def _body(features: int) -> bytes:
    task = parse(TASK.format(features=features))
    live = assemble(task, [transform.restore({}) for transform in task.data.transform])
    content = live.messages.check_in.example["content"]
    noise = np.random.default_rng(0).integers(-500, 500, content.update[0]["w"].shape).astype(np.int32)
    content = replace(content, update=({"w": noise},), weight=np.int32(20))
    return live.messages.check_in.encode(message(0, content))


async def _connection(form: Form, token: str, count: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", form.port)
    for _ in range(count):
        writer.writelines(form.request(token))
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError((head + await reader.read(500)).decode())
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
    writer.close()


async def load(form: Form, connections: int, requests: int) -> None:
    """Let devices check in at once, all together so often."""
    each = requests // connections
    await asyncio.gather(
        *(_connection(form, form.tokens[number % len(form.tokens)], each) for number in range(connections))
    )


def measure(form: Form, connections: int, requests: int) -> float:
    """Return CPU microseconds of the server per request."""
    before = cpu_seconds(form.process.pid)
    asyncio.run(load(form, connections, requests))
    return (cpu_seconds(form.process.pid) - before) / (requests // connections * connections) * 1e6


def main() -> None:
    """Measure all forms in turns and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--requests", type=int, default=10_000, help="per turn")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--against-echo", action="store_true", help="compare with an echo of the same body, by size")
    given = parser.parse_args()
    if given.against_echo:
        from against_echo import compare

        compare(given.json)
        return
    wanted = [("echo", 50), ("durable", 50), ("one-by-one", 50), ("durable", 10_000), ("no-store", 10_000)]
    with tempfile.TemporaryDirectory() as folder:
        forms = []
        for number, (form, features) in enumerate(wanted):
            home = Path(folder) / str(number)
            home.mkdir()
            forms.append(Form(form, home, features))
        try:
            for turn in range(TURNS + 1):
                for form in forms:
                    share = 10 if form.name.startswith(("one-by-one", "durable, 100000", "no-store")) else 1
                    cost = measure(form, given.connections, max(given.connections, given.requests // share))
                    if turn:  # the first one warms up
                        form.costs.append(cost)
        finally:
            for form in forms:
                form.process.terminate()
                form.process.wait()
    found = {form.name: statistics.median(form.costs) for form in forms}
    for name, cost in found.items():
        print(f"{name:32} {cost:8.1f} µs of CPU per request")
    echo, durable, single, large, bare = found.values()
    ratios = {
        "durable check-ins per echo": echo / durable,
        "one transaction per batch against one per check-in": single / durable,
        "100,000 parameters: durable per no-store": bare / large,
    }
    for name, ratio in ratios.items():
        print(f"{name:52} {ratio:.2f}")
    if given.json:
        given.json.write_text(json.dumps({"microseconds": found, "ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
