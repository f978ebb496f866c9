"""Run a benchmark and keep what it printed, for docs/concepts/speed.md.

    python benchmarks/record.py cores python benchmarks/cores/bench.py --rounds 60

The record in results/speed/NAME.json holds the command, the commit, the machine and the output, so every figure on the
page was printed by one command at a named commit. Changes that are not committed are refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from crowdml.studies.records import this_machine

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "results" / "speed"


def _git(*words: str) -> str:
    told = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603, S607
    return told.stdout.strip()


def commit_state(beside: str) -> list[str]:
    """Return changes that are not committed, beside those in a folder of records."""
    return [line for line in _git("status", "--porcelain").splitlines() if beside not in line]


@contextlib.contextmanager
def provenance() -> Iterator[dict[str, Any]]:
    """Yield what a record says of a run: commit, date, machine, load, versions; at its end, how long it took."""
    began = time.time()
    kept: dict[str, Any] = {
        "commit": _git("rev-parse", "--short", "HEAD"),
        "date": time.strftime("%Y-%m-%d", time.gmtime(began)),
        "machine": f"{platform.system()} {platform.machine()}, {this_machine().cpu}",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "jax": version("jax"),
        "numpy": version("numpy"),
    }
    yield kept
    kept["seconds"] = round(time.time() - began)


def main(name: str, command: list[str]) -> int:
    """Run, show and keep."""
    changed = commit_state("results/speed/")
    if changed:
        print("there are changes that are not committed:", *changed, sep="\n  ", file=sys.stderr)
        return 2
    ran = [sys.executable, *command[1:]] if command[0] == "python" else command
    lines = []
    with provenance() as kept:
        process = subprocess.Popen(ran, cwd=ROOT, stdout=subprocess.PIPE, text=True)  # noqa: S603
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            lines.append(line)
        code = process.wait()
    if code:
        print(f"not kept: it ended with {code}", file=sys.stderr)
        return 1
    kept = {"command": " ".join(command), **kept, "output": "".join(lines)}
    RECORDS.mkdir(parents=True, exist_ok=True)
    (RECORDS / f"{name}.json").write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
