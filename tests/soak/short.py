"""The short soak, part by part: python -m tests.soak.short [PART …]

Without names all parts run, one after the other: `make soak-short`. What a part printed last is kept in
`results/soak/PART.json`, and `make docs` shows it in the reference. The first part that finds something ends it.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "results" / "soak"
LINES = 20
"""Of what a part printed, so many lines are kept."""

PARTS: dict[str, tuple[str, list[str]]] = {
    "sqlite": ("200 kills of a server on SQLite", ["-m", "tests.soak.run", "--minutes", "1", "--kills", "200"]),
    "postgres": ("30 kills of two front ends on PostgreSQL", ["-m", "tests.soak.fronts", "--kills", "30"]),
    "disk": (
        "10,000 power cuts each of a ledger, of its control and of a server; a kill at every write of a scenario",
        [
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "-o",
            "timeout=1800",
            "tests/faults/test_power_loss.py",
            "tests/faults/test_every_write.py",
        ],
    ),
    "mutants": ("a million mutated check-ins, and mutants for every other parser", ["-m", "tests.fuzz.run"]),
    "seeds": ("500 courses of the whole system from their seeds", ["-m", "tests.system.run", "--seeds", "500"]),
    "planted": ("bugs planted in the whole system", ["-m", "tests.system.planted"]),
    "bugs": ("bugs planted in code that keeps promises", ["-m", "tests.mutations.run"]),
    "losses": (
        "30 % of the devices lost and outages of 60 s, against none",
        ["-m", "tests.system.losses", "--json", "results/fronts/losses.json"],
    ),
}
"""Name of each part: what it is, and its command."""


def run(name: str) -> bool:
    """Run a part, show what it prints, and keep the end of it; tell whether all was well."""
    title, command = PARTS[name]
    print(f"== {name}: {title}", flush=True)
    began, lines = time.monotonic(), list[str]()
    environment = os.environ | {"CROWDML_POWER_CUTS": "10000", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line.rstrip("\n"))
    ended = process.wait()
    told = {
        "title": title,
        "command": " ".join(["python", *command]),
        "exit_code": ended,
        "seconds": round(time.monotonic() - began),
        "load": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "output": lines[-LINES:],
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return ended == 0


def main(names: list[str]) -> int:
    """Run the parts that were named, or all."""
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    began = time.monotonic()
    for name in names or PARTS:
        if not run(name):
            print(f"{name} has found something", file=sys.stderr)
            return 1
    print(f"all well, in {(time.monotonic() - began) / 60:.0f} minutes; `make docs` writes it into the reference")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
