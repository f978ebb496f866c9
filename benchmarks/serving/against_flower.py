"""What a server spends on one message of a device: a durable check-in here, a reply with Flower's SuperLink.

    make bench-peers CLAIM=serving    # makes the environment, runs this and keeps the record
    python benchmarks/serving/against_flower.py FOLDER [--json FILE]

Both get 500 numbers and keep them in a SQLite file before they answer. What else is done differs, and is named with the
figures: crowdml checks token, pace and limits, and folds the numbers into the model; the SuperLink hands the node its
message first, and keeps the reply for a ServerApp. Where no database is named, a SuperLink keeps all that in memory,
and loses it with its process: that is measured too. CPU time of the server's process per message, in turns of one run;
who sends costs nothing of it.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from bench import Form, measure

HERE = Path(__file__).parent
CONNECTIONS, REQUESTS, TURNS = 8, 4000, 3
"""As many devices at a time as the peer has nodes."""

REPLIES = 80
"""In a turn of the peer's, each of which makes eleven calls."""


def ours(folder: Path) -> float:
    """Return the median of a few turns, after one that warms up."""
    form = Form("durable", folder, 50)
    try:
        costs = [measure(form, CONNECTIONS, REQUESTS) for _ in range(TURNS + 1)]
    finally:
        form.process.terminate()
        form.process.wait()
    return statistics.median(costs[1:])


def theirs(python: Path, *database: str) -> float:
    """Return what the peer's own script prints, which takes the median as well."""
    command = [str(python), str(HERE / "flower.py"), *database, "--messages", str(REPLIES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  ours
    found = re.match(r"(\d+) µs of CPU per reply", done.stdout)
    if found is None:
        raise SystemExit(f"Flower failed:\n{done.stderr[-4000:]}")
    return float(found[1])


def main() -> None:
    """Measure both and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="environments that `make bench-peers` has made")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    python = given.folder / "flower" / "bin" / "python"
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        found = {
            "crowdml, durable check-in": ours(Path(first)),
            "Flower's SuperLink, reply kept in SQLite": theirs(python, "--database", f"{second}/link.sqlite"),
            "Flower's SuperLink, reply kept in memory": theirs(python),
        }
    least = found["crowdml, durable check-in"]
    for name, cost in found.items():
        print(f"{name:41} {cost:8.0f} µs of CPU per message {cost / least:7.1f} ×")
    if given.json:
        kept = {
            "unit": "µs of CPU per message",
            "seed": 0,
            "setting": "500 numbers from each of 8 devices at a time",
            "rows": [{"name": name, "value": cost} for name, cost in found.items()],
        }
        given.json.write_text(json.dumps(kept, indent=2) + "\n")


if __name__ == "__main__":
    main()
