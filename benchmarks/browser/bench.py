"""One gradient of a batch of 20 in the browser device's engine, and in tfjs-wasm, side by side in one process.

    python benchmarks/browser/bench.py

tfjs is installed into an environment of its own, beside this file, from the npm registry that is configured.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
WEB = HERE.parents[1] / "web"
GOALS = {(): 5.0, (75, 75): 1.0}
"""How many times as fast as tfjs-wasm each net should be at least."""


def main() -> int:
    """Measure and print; return the exit code."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        print("this benchmark needs node and npm")
        return 2
    if not (HERE / "node_modules").exists():
        subprocess.run([npm, "ci"], cwd=HERE, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  ours
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"CROWDML_WEB_OUT": folder, "CROWDML_WEB_ENTRY": "core/numerics/index.ts"}
        vite = [node, str(WEB / "node_modules" / "vite" / "bin" / "vite.js"), "build"]
        subprocess.run(vite, cwd=WEB, env=environment, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  ours
        core = (Path(folder) / "only.js").rename(Path(folder) / "core.mjs")
        command = [node, str(HERE / "bench.mjs"), str(core)]
        told = subprocess.run(command, cwd=HERE, check=True, capture_output=True, text=True)  # noqa: S603  ours
    print(f"{'features':>8}  {'hidden':<10}{'ours, ms':>10}{'tfjs-wasm, ms':>15}{'times':>8}{'goal':>6}")
    missed = False
    for line in json.loads(told.stdout.splitlines()[-1]):
        goal = GOALS[tuple(line["hidden"])]
        missed = missed or line["times"] < goal
        hidden = "-".join(map(str, line["hidden"])) or "none"
        figures = f"{line['ours_ms']:>10.3f}{line['tfjs_wasm_ms']:>15.3f}{line['times']:>8.1f}{goal:>6g}"
        print(f"{line['features']:>8}  {hidden:<10}{figures}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
