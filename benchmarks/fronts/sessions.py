"""Thousands of sessions that come back at once after a restart: are all served, how long does it take, what memory?

    python benchmarks/fronts/sessions.py [--sessions 5000] [--turns 3] [--json FILE]

A server with that many devices is killed and started again, and all of them check out and check in at the same moment,
each over a connection of its own. Whoever gets a 503 comes again when it says so. An answer's time is counted from its
request on; that of the load generator, which shares the machine, is in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "serving"))
from server import TASK

from tests.support.server import Server
from tests.support.sessions import come_back, honest_body, peak_memory, prepare

FEATURES = 50


def measure(folder: Path, sessions: int) -> dict[str, Any]:
    """Restart a server under all its devices; return what they were told."""
    text = TASK.format(features=FEATURES)
    tokens, body = prepare(folder, text, sessions), honest_body(text)
    server = Server(folder)
    try:
        server.kill()
        server.start()
        began = time.perf_counter()
        outcome = asyncio.run(come_back(server.port, "bench", tokens, body))
        took = time.perf_counter() - began
        stored = server.ask("/v1/tasks/bench")["check_ins"]
        memory = peak_memory(server.process.pid)
    finally:
        server.kill()
    return {
        "sessions": sessions,
        "served": outcome.served,
        "stored": stored,
        "told_to_come_later": outcome.later,
        "other_answers": dict(outcome.other),
        "accepted_p50_s": outcome.quantile(0.5),
        "accepted_p99_s": outcome.quantile(0.99),
        "all_served_after_s": took,
        "peak_memory_bytes": memory,
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """Measure some turns, and keep that with the median p99."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=5_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    turns = []
    for _ in range(given.turns):
        with tempfile.TemporaryDirectory(prefix="crowdml-sessions-") as folder:
            found = measure(Path(folder), given.sessions)
        turns.append(found)
        print(
            f"{found['served']} of {found['sessions']} sessions served within {found['all_served_after_s']:.1f} s "
            f"({found['stored']} stored), {found['told_to_come_later']} answers 503 + Retry-After, other: "
            f"{found['other_answers']}; accepted answers p50 {found['accepted_p50_s']:.2f} s, p99 "
            f"{found['accepted_p99_s']:.2f} s; {found['peak_memory_bytes'] / 2**20:.0f} MiB (load {found['load']:.1f})",
            flush=True,
        )
    if given.json:
        middle = sorted(turns, key=lambda found: float(found["accepted_p99_s"]))[len(turns) // 2]
        given.json.write_text(json.dumps(middle, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
