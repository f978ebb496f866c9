"""A whole command measured from outside: its time by the clock, CPU time and memory of all its processes together."""

from __future__ import annotations

import os
import resource
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


def measure(
    command: Sequence[str], look_s: float, environment: Mapping[str, str] = os.environ
) -> tuple[float, float, float]:
    """Run a command to its end; return seconds by the clock, CPU seconds, and the largest memory in MiB.

    Args:
        command: What is run; that it fails ends the benchmark.
        look_s: Seconds from one look at the memory to the next.
        environment: Its environment.
    """
    before, began = _cpu_seconds(), time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)  # noqa: S603
    most = [0.0]
    watcher = threading.Thread(target=_watch, args=(process, most, look_s))
    watcher.start()
    if process.wait():
        raise SystemExit(f"failed: {' '.join(command)}")
    clock = time.perf_counter() - began
    watcher.join()
    return clock, _cpu_seconds() - before, most[0]


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _watch(process: subprocess.Popen[bytes], most: list[float], look_s: float) -> None:
    """Add up what a process and its children hold, shared pages counted once, again and again."""
    while process.poll() is None:
        total = 0
        for one in (process.pid, *_children(process.pid)):
            try:
                lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            except OSError:
                continue
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        most[0] = max(most[0], total / 1024)
        time.sleep(look_s)


def _children(process: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []
