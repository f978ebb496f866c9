"""One gradient of a batch of 20 in the browser device's engine, and in tfjs-wasm, side by side in one process.

    make bench-peers CLAIM=browser    # runs this and keeps the record
    python benchmarks/browser/bench.py [FOLDER] [--json FILE]

tfjs is installed into an environment of its own, beside this file, from the npm registry that is configured; FOLDER
is where other comparisons have theirs, and not used. Times are of a clock: both run in one thread of one process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WEB = HERE.parents[1] / "web"
GOALS = {(): 5.0, (75, 75): 1.0}
"""How many times as fast as tfjs-wasm each net should be at least."""


def main() -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="not used")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        print("this benchmark needs node and npm")
        return 2
    for place in (HERE, WEB):
        if not (place / "node_modules").exists():
            subprocess.run([npm, "ci"], cwd=place, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  ours
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"CROWDML_WEB_OUT": folder, "CROWDML_WEB_ENTRY": "core/numerics/index.ts"}
        vite = [node, str(WEB / "node_modules" / "vite" / "bin" / "vite.js"), "build"]
        subprocess.run(vite, cwd=WEB, env=environment, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  ours
        core = (Path(folder) / "only.js").rename(Path(folder) / "core.mjs")
        command = [node, str(HERE / "bench.mjs"), str(core)]
        told = subprocess.run(command, cwd=HERE, check=True, capture_output=True, text=True)  # noqa: S603  ours
    print(f"{'features':>8}  {'hidden':<10}{'ours, ms':>10}{'tfjs-wasm, ms':>15}{'times':>8}{'goal':>6}")
    missed, found = False, json.loads(told.stdout.splitlines()[-1])
    for line in found:
        goal = GOALS[tuple(line["hidden"])]
        missed = missed or line["times"] < goal
        hidden = "-".join(map(str, line["hidden"])) or "none"
        figures = f"{line['ours_ms']:>10.3f}{line['tfjs_wasm_ms']:>15.3f}{line['times']:>8.1f}{goal:>6g}"
        print(f"{line['features']:>8}  {hidden:<10}{figures}")
    if given.json:
        given.json.write_text(json.dumps(as_record(found), indent=2) + "\n")
        return 0
    return 1 if missed else 0


def as_record(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures in the form that all comparisons with peers have: a pair of rows for each net."""
    rows = []
    for line in found:
        net = f"{line['features']} features, {'-'.join(map(str, line['hidden'])) or 'no hidden layer'}"
        rows.append({"name": f"crowdml, {net}", "value": line["ours_ms"], "of": net})
        rows.append({"name": f"tfjs-wasm, {net}", "value": line["tfjs_wasm_ms"], "of": net})
    packages = json.loads((HERE / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    return {
        "unit": "ms of CPU per gradient of 20 rows",
        "seed": None,
        "setting": "one gradient of a batch of 20 with 10 labels, in `node`",
        "rows": rows,
        "versions": {"tfjs": packages},
    }


if __name__ == "__main__":
    sys.exit(main())
