"""A private training step: what it costs here and with others, all in one run.

    make bench-peers CLAIM=dpsgd    # makes the environment, runs this and keeps the record
    python benchmarks/dpsgd/bench.py FOLDER [--steps 16] [--json FILE]

Pictures of 32 by 32 by 3, two convolutions (32 and 64 filters of 3 by 3, each with ReLU and a pooling), dense layers of
128, 64 and 10; 256 pictures in a step. Every row's gradient is clipped and Gaussian noise is added. The figure is CPU
time on one thread: the best step, and the middle one, of each; everything in turn, in processes of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
OURS = {"crowdml, plain": "plain", "crowdml, private": "private"}
PEERS = {
    "PyTorch, plain": "plain",
    "PyTorch, plain, channels last": "channels-last",
    "Opacus, hooks": "hooks",
    "Opacus, ghost": "ghost",
}


def run(python: str, script: str, kind: str, steps: int) -> dict[str, float]:
    """Run one of them."""
    command = [python, str(HERE / script), kind, str(steps)]
    done = subprocess.run(  # noqa: S603  our own scripts
        command, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    if done.returncode:
        raise SystemExit(f"{kind} failed:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure everything and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="environments that `make bench-peers` has made")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    peer = str(given.folder / "opacus" / "bin" / "python")
    found = {name: run(sys.executable, "our_step.py", kind, given.steps) for name, kind in OURS.items()}
    found |= {name: run(peer, "opacus_step.py", kind, given.steps) for name, kind in PEERS.items()}
    ours = found["crowdml, private"]["best_ms"]
    for name, figures in found.items():
        print(
            f"{name:30} {figures['best_ms']:7.1f} ms of CPU per step (middle {figures['ms']:7.1f}) "
            f"{figures['best_ms'] / ours:5.2f} ×   {figures['MiB']:6.0f} MiB"
        )
    if given.json:
        rows = [
            {"name": name, "value": figures["best_ms"], "median": figures["ms"], "MiB": figures["MiB"]}
            for name, figures in found.items()
        ]
        kept = {
            "unit": "ms of CPU per step",
            "seed": 0,
            "ours": "crowdml, private",
            "setting": "convolutions 32 and 64, dense 128-64-10, 256 pictures of 32 by 32 by 3; one thread",
            "rows": rows,
        }
        given.json.write_text(json.dumps(kept, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
