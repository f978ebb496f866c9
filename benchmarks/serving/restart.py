"""How soon a killed server is ready again.

    python benchmarks/serving/restart.py [--receipts 10000]

A server with a task that has so many receipts is started, killed and started again; what is measured is the time from
the start of the process to the first answer of /healthz, and the CPU time that took.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np

from crowdml.server.setup.serving import require_identity
from crowdml.server.store import Applied, Receipt, open_store
from crowdml.server.tasks.coordinator import Coordinator
from crowdml.server.tasks.new_task import TaskRequest

sys.path.insert(0, str(Path(__file__).parent))
from bench import cpu_seconds
from server import DEVICES, TASK, enrol

BATCH = 250


def fill(folder: Path, count: int) -> None:
    """Make a task with so many receipts."""
    store = open_store(f"sqlite:///{folder}/crowdml.sqlite")
    require_identity(store, folder)
    task = Coordinator(store, lambda _: None).create(TaskRequest(file=TASK.format(features=50)))
    devices = len(enrol(store, "bench", DEVICES))
    for first in range(0, count, BATCH):
        made = [
            Receipt(
                slot=number % devices,
                key=f"{number:010x}-receipt",
                body=bytes(32),
                number=number // devices + 1,
                version=number + 1,
                started=number,
                status="applied",
            )
            for number in range(first, first + BATCH)
        ]
        store.apply(
            Applied(
                task=task.id,
                expected_version=first,
                expected_check_ins=first,
                version=first + BATCH,
                check_ins=first + BATCH,
                received=0,
                server_state=task.server_state,
                rows={},
                receipts=made,
            )
        )
    store.close()


def start(folder: Path) -> tuple[subprocess.Popen[bytes], float, float]:
    """Start a server; return it with the seconds and CPU seconds until it answers."""
    named = folder / "server.address"
    named.unlink(missing_ok=True)
    begun = time.monotonic()
    command = [sys.executable, "-m", "crowdml", "serve", "--home", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603  our own program
    while True:
        try:
            with urllib.request.urlopen(named.read_text().strip() + "/healthz") as answer:  # noqa: S310  loopback
                answer.read()
            return process, time.monotonic() - begun, cpu_seconds(process.pid)
        except (OSError, ValueError, urllib.error.URLError):
            time.sleep(0.01)


def main() -> None:
    """Kill and start a few times; print the median."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--receipts", type=int, default=10_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        fill(folder, given.receipts)
        found = []
        for _ in range(5):
            process, seconds, cpu = start(folder)
            found.append((seconds, cpu))
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    seconds, cpu = np.median(found, axis=0)
    print(f"ready after kill -9 with {given.receipts} receipts: {seconds:.2f} s, {cpu:.2f} s of CPU")


if __name__ == "__main__":
    main()
