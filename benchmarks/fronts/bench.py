"""What a second front end costs: CPU time per check-in with one and with two on the same PostgreSQL, and their waits.

    python benchmarks/fronts/bench.py [--connections 64] [--check-ins 4000] [--turns 5] [--json FILE]

Over every connection devices check out and check in, again and again; with two front ends every other connection goes
to the second one. The servers are as users have them, limits included: so many devices take turns that none of them is
too fast for its pace. CPU time is that of all front ends and of all of PostgreSQL's processes, so whatever is passed
through the database is counted on both of its sides. A third form has two front ends of which devices ask the second
alone: what the first one then spends is what an aggregator spends on check-ins that others have taken. All forms are
measured in turns, each on its own database. While they are measured, a process looks forty times a second at what
PostgreSQL's connections wait for.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path

import psycopg

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "serving"))
from bench import _body, cpu_seconds
from server import TASK

from crowdml.server.setup.serving import require_identity
from crowdml.server.store import open_store
from crowdml.server.tasks.coordinator import Coordinator
from crowdml.server.tasks.new_task import TaskRequest
from tests.support.postgres import Postgres
from tests.support.sessions import enrol

FEATURES = 50
ELSEWHERE = ", the second asked"
LOOK_S = 0.025
IN_A_ROW = 20
"""Check-ins of one device, then another one goes on: twice as many requests, well below what a device has at once."""


class Form:
    """So many front ends on a database of their own; devices ask those from a number on."""

    def __init__(self, count: int, database: str, folder: Path, devices: int, first: int = 0) -> None:
        self.name, self.database = f"{count} front end{'s' if count > 1 else ''}" + ELSEWHERE * first, database
        folder.mkdir()
        with open_store(database) as store:
            require_identity(store, folder)
            Coordinator(store, lambda _: None).create(TaskRequest(file=TASK.format(features=FEATURES)))
            self.tokens = itertools.cycle(enrol(store, "bench", devices))
        self.processes, self.ports = list[subprocess.Popen[bytes]](), list[int]()
        for number in range(count):
            self._start(folder / str(number))
        self.asked = self.ports[first:]
        self.costs: list[float] = []
        self.rates: list[float] = []
        self.parts: list[list[float]] = []
        self.sent = 0

    def _start(self, home: Path) -> None:
        home.mkdir(mode=0o700)
        command = [sys.executable, "-m", "crowdml", "serve", "--home", str(home), "--port", "0", "--db", self.database]
        with (home / "log").open("wb") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))  # noqa: S603
        named = home / "server.address"
        while not (named.exists() and named.read_text().endswith("\n")):
            time.sleep(0.05)
        self.ports.append(int(named.read_text().strip().rpartition(":")[2]))
        while " INFO front end " not in (home / "log").read_text():
            time.sleep(0.05)

    def request(self, token: str) -> bytes:
        """Write one check-in of a device as HTTP."""
        self.sent += 1
        head = (
            f"POST /v1/tasks/bench/check-ins HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
            f"Crowdml-Protocol: 2\r\nContent-Type: application/octet-stream\r\nContent-Length: {len(BODY)}\r\n"
            f"Idempotency-Key: check-in-{self.sent}\r\n\r\n"
        )
        return head.encode() + BODY


BODY = _body(FEATURES)


async def _answer(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 304")):
        raise RuntimeError((head + await reader.read(500)).decode())
    if b"content-length: " in head.lower():
        await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))


async def _connection(port: int, form: Form, count: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    token = ""
    for number in range(count):
        if number % IN_A_ROW == 0:
            token = next(form.tokens)
        writer.write(_check_out(token))
        await _answer(reader)
        writer.write(form.request(token))
        await _answer(reader)
    writer.close()


def _check_out(token: str) -> bytes:
    return (
        f"GET /v1/tasks/bench/check-out HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        "Crowdml-Protocol: 2\r\n\r\n"
    ).encode()


async def _load(form: Form, connections: int, each: int) -> None:
    ports = itertools.cycle(form.asked)
    await asyncio.gather(*(_connection(next(ports), form, each) for _ in range(connections)))


def backends(database: str) -> list[int]:
    """Return PostgreSQL's processes: those of this database, and those that serve all."""
    with psycopg.connect(database) as connection:
        query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() OR datname IS NULL"
        return [pid for (pid,) in connection.execute(query).fetchall() if pid != connection.info.backend_pid]


class Waits(threading.Thread):
    """Looks at what connections wait for."""

    def __init__(self, database: str) -> None:
        super().__init__(daemon=True)
        self.stop, self.seen, self.looks = threading.Event(), Counter[str](), 0
        self._database = database

    def run(self) -> None:
        """Look until told to stop."""
        query = (
            "SELECT wait_event_type || ' ' || wait_event FROM pg_stat_activity WHERE datname = current_database() "
            "AND state = 'active' AND pid <> pg_backend_pid()"
        )
        with psycopg.connect(self._database, autocommit=True) as connection:
            while not self.stop.wait(LOOK_S):
                self.looks += 1
                self.seen.update(found or "runs" for (found,) in connection.execute(query).fetchall())


def measure(form: Form, connections: int, check_ins: int, waits: Counter[str]) -> int:
    """Measure one turn; return how often was looked."""
    each = check_ins // connections
    pids = [process.pid for process in form.processes] + backends(form.database)
    watch = Waits(form.database)
    watch.start()
    before, began = {pid: cpu_seconds(pid) for pid in pids}, time.perf_counter()
    asyncio.run(_load(form, connections, each))
    took = time.perf_counter() - began
    each_spent = {pid: cpu_seconds(pid) - before[pid] for pid in pids if Path(f"/proc/{pid}").exists()}
    spent, fronts = sum(each_spent.values()), [each_spent[process.pid] for process in form.processes]
    form.parts.append([part / (each * connections) * 1e6 for part in (*fronts, spent - sum(fronts))])
    watch.stop.set()
    watch.join()
    waits.update(watch.seen)
    form.costs.append(spent / (each * connections) * 1e6)
    form.rates.append(each * connections / took)
    return watch.looks


def main() -> None:
    """Measure all forms in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--check-ins", type=int, default=4000, help="per turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    place, folder = (Path(tempfile.mkdtemp(prefix=f"crowdml-{name}-")) for name in ("pg", "fronts"))
    database = Postgres(place)
    forms: list[Form] = []
    waits: dict[str, Counter[str]] = {}
    looks = Counter[str]()
    try:
        # As many as a turn takes; by the next one their pace has room again.
        devices = given.connections * (1 + given.check_ins // given.connections // IN_A_ROW)
        wanted = ((1, 0), (2, 0), (2, 1))
        forms = [
            Form(count, database.database(), folder / f"{count}-{first}", devices, first) for count, first in wanted
        ]
        waits = {form.name: Counter() for form in forms}
        for turn in range(given.turns + 1):
            for form in forms:
                seen = Counter[str]()
                looked = measure(form, given.connections, given.check_ins, seen)
                if turn:  # the first one warms up
                    waits[form.name] += seen
                    looks[form.name] += looked
                else:
                    form.costs.clear()
                    form.rates.clear()
                    form.parts.clear()
        batches = {form.name: _batch(form) for form in forms}
    finally:
        for form in forms:
            for process in form.processes:
                process.terminate()
                process.wait()
        database.stop("immediate")
        shutil.rmtree(place)
        shutil.rmtree(folder)
    _tell(forms, waits, looks, given)
    print(f"check-ins per transaction: {batches}")


def _batch(form: Form) -> float:
    """Return how many check-ins one transaction has stored on average."""
    with urllib.request.urlopen(f"http://127.0.0.1:{form.ports[0]}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    stored, transactions = (
        next(float(line.split()[1]) for line in lines if line.startswith(f"crowdml_{name}_total{{"))
        for name in ("stored", "transactions")
    )
    return round(stored / transactions, 1)


def _tell(forms: list[Form], waits: dict[str, Counter[str]], looks: Counter[str], given: argparse.Namespace) -> None:
    cost = {form.name: statistics.median(form.costs) for form in forms}
    rate = {form.name: statistics.median(form.rates) for form in forms}
    ratio = statistics.median(two / one for one, two in zip(forms[0].costs, forms[1].costs, strict=True))
    locks = {
        form.name: sum(count for wait, count in waits[form.name].items() if wait.startswith(("Lock", "LWLock")))
        / max(looks[form.name], 1)
        for form in forms
    }
    for form in forms:
        print(
            f"{form.name:30} {cost[form.name]:7.0f} µs of CPU per check-in with its check-out, "
            f"{rate[form.name]:6.0f} a second, waits for locks: {locks[form.name]:.3f} connections on average"
        )
        parts = [round(statistics.median(part)) for part in zip(*form.parts, strict=True)]
        print(f"             of it each front end: {parts[:-1]}, PostgreSQL: {parts[-1]}")
        print(f"             waits seen in {looks[form.name]} looks: {dict(waits[form.name].most_common(6))}")
    aggregator = statistics.median(part[0] for part in forms[-1].parts)
    print(f"two front ends against one: {ratio:.2f} times the CPU per check-in (median of {given.turns} turns)")
    print(f"the aggregator's part of a check-in that another front end has taken: {aggregator:.0f} µs")
    if given.json:
        found = {
            "cpu_us": cost,
            "aggregator_us": aggregator,
            "per_second": rate,
            "ratio": ratio,
            "waits_for_locks": locks,
            "load": os.getloadavg()[0],
        }
        given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
