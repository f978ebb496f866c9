"""The page on capacity: devices that a server carries, worked out from what the benchmark of check-ins has printed."""

from __future__ import annotations

import json
from collections.abc import Iterator

from benchmarks.peers.run import RECORDS as PEERS
from docs.writers.phrases import GENERATED
from docs.writers.speed import RECORDS

FRONTS = RECORDS.parent / "fronts" / "cpu.json"

INTERVALS = {"minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}
CROWD = 10**8
BUSY = 0.5
"""How much of a core is planned for: crowds come in waves."""

GIGABIT = 125e6
NUMBER_BYTES = 4

SHORTAGES = (
    ("what", "how one notices", "what an operator does"),
    ("---", "---", "---"),
    (
        "check-outs: the network",
        "the line is full while cores are idle",
        "a faster line, fewer versions (rounds) or longer intervals; parameters are the same for everybody, but a "
        "check-out needs the token of a device, so no cache may answer it yet",
    ),
    (
        "check-ins: the cores of front ends",
        "503 with `Retry-After`, and devices come back later",
        "[more front ends](../how-to/front-ends.md) on one PostgreSQL",
    ),
    (
        "folding: the aggregator",
        "check-ins wait while front ends are idle",
        "one front end folds in the check-ins of all tasks of a database, so [a database of its own]"
        "(../how-to/front-ends.md#give-a-busy-task-an-aggregator-of-its-own) for a busy task; larger batches on "
        "devices, longer intervals",
    ),
    (
        "memory",
        "the server is ended by the system; secure sums and large models take most",
        "fewer connections at once in the proxy, as each may hold a check-in; tasks with large models on servers of "
        "their own",
    ),
    ("the database", "commits take longer than check-ins", "a disk of its own with fast `fsync`"),
    (
        "the disk",
        "it fills: every check-in leaves a receipt, which is never deleted",
        "a larger one, longer intervals; a task that has ended stays until its database goes",
    ),
)


def capacity_page() -> str:
    """Write the page."""
    record = json.loads((RECORDS / "against-echo.json").read_text(encoding="utf-8"))
    costs = dict(_costs(record["output"]))
    lines = [
        "# Scale and capacity",
        GENERATED,
        "",
        "How many devices does a server carry? Worked out from one measurement: CPU time of a durable check-in,",
        f"printed by `{record['command']}` at commit {record['commit']}",
        f"({record['cores']} cores, load {record['load']} before it), with many devices connected. Token, limits, fold",
        "and transaction are in it; TLS is not, a proxy does that. A core is planned to be busy half of the time.",
        "Nothing here was tried with a crowd of that size.",
        "",
        *_many_at_a_time(record["output"]),
        "## Devices per core",
        "",
        "| parameters | µs per check-in | check-ins per second | "
        + " | ".join(f"one each {name}" for name in INTERVALS)
        + " |",
        "|--:|--:|--:|" + "--:|" * len(INTERVALS),
    ]
    for parameters, micros in costs.items():
        rate = BUSY * 1e6 / micros
        shares = " | ".join(f"{_round(rate * seconds):,}" for seconds in INTERVALS.values())
        lines.append(f"| {parameters:,} | {micros:,} | {_round(rate):,} | {shares} |")
    lines += [
        "",
        f"## A crowd of {CROWD:,}, one check-in a day",
        "",
        "On paper. Bytes are those of parameters as 32-bit numbers, each way.",
        "",
        "| parameters | check-ins per second | cores | one check-in, MB | each way, Gbit/s |",
        "|--:|--:|--:|--:|--:|",
    ]
    for parameters, micros in costs.items():
        rate, size = CROWD / INTERVALS["day"], parameters * NUMBER_BYTES
        cores, line = max(1, -(-rate * micros // (BUSY * 1e6))), rate * size / GIGABIT
        lines.append(f"| {parameters:,} | {rate:,.0f} | {cores:,.0f} | {size / 1e6:g} | {line:,.3g} |")
    lines += [
        "",
        "Cores are those of all front ends together. Folding is the aggregator's alone; its part was measured for 500",
        "parameters, and is not known for larger models.",
        "",
        *_folding(),
        "",
        *_memory(),
        "",
        *_disk(),
        "",
        "## What gives out first, and what to do then",
        "",
        *(f"| {' | '.join(row)} |" for row in SHORTAGES),
        "",
    ]
    return "\n".join(lines)


def _many_at_a_time(printed: str) -> list[str]:
    """Say why a check-in costs more on the page of benchmarks, where few devices send at a time."""
    serving = json.loads((PEERS / "serving.json").read_text(encoding="utf-8"))
    few = next(row["value"] for row in serving["rows"] if row["name"].startswith("crowdml"))
    parameters, connections, _, micros, *_ = printed.splitlines()[1].split()
    page = "[benchmarks](../benchmarks.md#a-message-of-a-device-taken-by-a-server)"
    return [
        f"{parameters} parameters cost {micros} µs here, with {connections} connections at a time, and {few:,.0f} µs",
        f"on {page} ({serving['setting']}):",
        "what arrives together shares a transaction, so the more devices send at a time, the less each check-in costs.",
        "",
    ]


def _costs(printed: str) -> Iterator[tuple[int, int]]:
    """Read parameters and the cost of a check-in, of runs with several connections."""
    for line in printed.splitlines()[1:]:
        parameters, connections, _, micros, *_ = line.split()
        if int(connections) > 1:
            yield int(parameters), int(micros)


def _folding() -> Iterator[str]:
    """Say how much one aggregator folds in; most of a check-in's cost is that of the front end that takes it."""
    record = json.loads(FRONTS.read_text(encoding="utf-8"))
    micros = record["aggregator_us"]
    yield "## One aggregator, many front ends"
    yield ""
    rate = BUSY * 1e6 / micros
    yield f"Of a check-in that another front end has taken the aggregator's part is {micros:.0f} µs of CPU time (500"
    yield f"parameters; `python benchmarks/fronts/bench.py`, load {record['load']:.0f})."
    yield f"So one aggregator serves some {_round(rate):,} a second:"
    yield f"{_round(rate * INTERVALS['day']):,} devices with one check-in each day, if other front ends take them."


def _memory() -> Iterator[str]:
    """Say what a server holds, from what the benchmark of memory has printed."""
    record = json.loads((RECORDS / "memory.json").read_text(encoding="utf-8"))
    *rows, last = record["output"].splitlines()[1:]
    each = last.rpartition(" ")[2]
    yield "## Memory"
    yield ""
    yield f"Printed by `{record['command']}` at commit {record['commit']}. A server that has begun knows all its"
    yield "devices; 64 of them then check in at once, again and again; the last column is the most memory it ever had."
    held = int(each) * CROWD / 1e9
    yield f"A device that is not connected takes {each} bytes in every front end: a million of them {int(each):,} MB,"
    yield f"a crowd of {CROWD:,} some {held:.0f} GB. So large a crowd is cut into tasks with databases of their own."
    yield ""
    yield "| parameters | devices | begun, MiB | at the most, MiB |"
    yield "|--:|--:|--:|--:|"
    for row in rows:
        parameters, devices, begun, most = row.split()
        yield f"| {int(parameters):,} | {int(devices):,} | {begun} | {most} |"


def _disk() -> Iterator[str]:
    """Say what check-ins leave on disk, from what the benchmark of the store has printed."""
    record = json.loads((RECORDS / "disk.json").read_text(encoding="utf-8"))
    each = {name: int(size) for name, size in (row.split() for row in record["output"].splitlines()[1:])}
    yield "## Disk"
    yield ""
    yield f"Printed by `{record['command']}` at commit {record['commit']}. Every check-in leaves a receipt for good:"
    yield "whoever sends one again gets the receipt it has. A day of so many check-ins adds:"
    yield ""
    yield "| database | bytes per receipt | 1,000,000 a day | 100,000,000 a day |"
    yield "|---|--:|--:|--:|"
    for name, size in each.items():
        yield f"| {name} | {size} | {size * 10**6 / 1e9:.2g} GB | {size * CROWD / 1e9:.2g} GB |"


def _round(value: float) -> int:
    """Round to two digits: more are not known."""
    return int(float(f"{value:.2g}"))
