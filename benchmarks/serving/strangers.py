"""How much a stranger who reads without pause slows a device down.

    python benchmarks/serving/strangers.py [--rate 200] [--seconds 5] [--path /openapi.json]

A real server in a process of its own; a device checks out one after the other, first alone, then beside a stranger that
asks for one document at the given rate. Printed: the device's median and 99th percentile, the server's CPU share, and
how the stranger was answered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from bench import cpu_seconds

FEATURES = 50


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, token: str = "") -> int:
    """Send one request and return its status."""
    bearer = f"Authorization: Bearer {token}\r\n" if token else ""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{bearer}\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"content-length: " in head:
        await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
    return int(head.split()[1])


async def device(port: int, token: str, seconds: float) -> list[float]:
    """Check out one after the other, a hundred a second at most; return the milliseconds of each."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    end, took = time.perf_counter() + seconds, []
    while time.perf_counter() < end:
        began = time.perf_counter()
        status = await ask(reader, writer, "/v1/tasks/bench/check-out", token)
        took.append((time.perf_counter() - began) * 1e3)
        if status != 200:
            raise RuntimeError(f"the device was answered {status}")
        await asyncio.sleep(0.01)
    writer.close()
    return took


async def stranger(port: int, path: str, rate: float, until: asyncio.Event) -> Counter[int]:
    """Ask for one document at a steady rate over ten connections; return the statuses."""
    found: Counter[int] = Counter()

    async def some() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while not until.is_set():
            began = time.perf_counter()
            found[await ask(reader, writer, path)] += 1
            await asyncio.sleep(max(0.0, 10 / rate - (time.perf_counter() - began)))
        writer.close()

    await asyncio.gather(*(some() for _ in range(10)))
    return found


async def measure(port: int, token: str, path: str, rate: float, seconds: float) -> tuple[list[float], Counter[int]]:
    """Measure the device beside a stranger; a rate of 0 means alone."""
    until = asyncio.Event()
    beside = asyncio.create_task(stranger(port, path, rate, until)) if rate else None
    if beside:
        await asyncio.sleep(2.0)  # whatever may be asked for at once is spent by then
    took = await device(port, token, seconds)
    until.set()
    return took, await beside if beside else Counter()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--path", default="/openapi.json")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, str(Path(__file__).with_name("server.py")), "durable", folder, str(FEATURES)]
        process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: S603
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            port, token = told["port"], told["tokens"][0]
            asyncio.run(measure(port, token, given.path, 5.0, 1.0))  # warms up, and loads the framework
            for name, rate in (("alone", 0.0), (f"beside {given.rate:g} requests/s of {given.path}", given.rate)):
                began, before = time.perf_counter(), cpu_seconds(process.pid)
                took, answered = asyncio.run(measure(port, token, given.path, rate, given.seconds))
                share = (cpu_seconds(process.pid) - before) / (time.perf_counter() - began)
                high = statistics.quantiles(took, n=100)[98]
                print(
                    f"{name:48} median {statistics.median(took):7.2f} ms, 99 % {high:7.2f} ms, "
                    f"server {share:4.0%} of a core, stranger {dict(answered)}"
                )
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
