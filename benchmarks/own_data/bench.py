"""Memory of a simulation on a Parquet file of millions of rows, above that of the same run on a thousand.

    python benchmarks/own_data/bench.py [--rows 2000000] [--trials 2] [--json figures.json]

The table is made here: 20 columns of float32 and a label. The task has at most a dozen settings. What is compared is
the largest memory of all processes of `crowdml simulate` together, shared pages counted once, with the size of the
table in memory as float32. The figure to keep is 1.5: the table is there once, whatever the trials, and half of it is
left for orders, targets and reading.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.whole_command import measure

FEATURES, GOAL = 20, 1.5
TASK = """
crowdml = 1
name = "large"
[data]
file = "rows.parquet"
features = 20
labels = ["no", "yes"]
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "logistic"
[algorithm]
kind = "crowd-sgd"
batch = 500
[privacy]
mode = "none"
[crowd]
passes = 1
"""


def write_rows(path: Path, rows: int) -> None:
    """Write a table whose label depends on all columns, in groups of rows as other tools do."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    generator = np.random.default_rng(0)
    direction = generator.normal(size=FEATURES)
    schema = pa.schema([(f"c{at}", pa.float32()) for at in range(FEATURES)] + [("label", pa.string())])
    with parquet.ParquetWriter(path, schema) as writer:
        for begin in range(0, rows, 250_000):
            values = generator.normal(size=(min(250_000, rows - begin), FEATURES)).astype(np.float32)
            noisy = values @ direction + generator.normal(size=len(values))
            columns = [*values.T, np.where(noisy > 0, "yes", "no")]
            writer.write_table(pa.table(columns, schema=schema))


def run(folder: Path, trials: int) -> tuple[float, float, float]:
    """Return CPU seconds, the largest memory in MiB, and the test error."""
    command = [sys.executable, "-m", "crowdml", "simulate", str(folder / "large.toml"), "--trials", str(trials)]
    _, cpu, most = measure([*command, "--json", str(folder / "result.json"), "--engine", "compiled"], look_s=0.02)
    return cpu, most, json.loads((folder / "result.json").read_text())["final"]["test_error"]["mean"]


def main() -> None:
    """Run on a thousand rows and on all, and print how much more memory all take."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--trials", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores; {given.rows} rows of {FEATURES} numbers, {given.trials} trials")
    found = {}
    for rows in (1_000, given.rows):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_rows(folder / "rows.parquet", rows)
            text = TASK if rows > 50_000 else TASK.replace("batch = 500", "batch = 5")
            (folder / "large.toml").write_text(text, encoding="utf-8")
            found[rows] = run(folder, given.trials)
            seconds, most, error = found[rows]
            print(f"{rows:>9} rows: {most:7.1f} MiB at most, {seconds:6.1f} s of CPU, test error {error:.3f}")
    table = given.rows * FEATURES * 4 / 2**20
    ratio = (found[given.rows][1] - found[1_000][1]) / table
    print(f"above the small run, per byte of the table ({table:.0f} MiB): {ratio:.2f}, should be at most {GOAL}")
    if given.json:
        runs = {
            str(rows): {"cpu_seconds": round(seconds, 2), "most_mib": round(most, 1), "test_error": error}
            for rows, (seconds, most, error) in found.items()
        }
        kept = {"rows": given.rows, "table_mib": round(table, 1), "runs": runs, "ratio": round(ratio, 3), "goal": GOAL}
        given.json.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
