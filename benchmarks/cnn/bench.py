"""A convolutional net: what a training step, compiling and memory cost here, and with PyTorch, all in one run.

    make bench-peers CLAIM=cnn    # makes the environment, runs this and keeps the record
    python benchmarks/cnn/bench.py FOLDER [--rows 16000] [--steps 60] [--repeats 3] [--json FILE]

CIFAR-10, two convolutions (32 and 64 filters of 3 by 3, each with ReLU and a pooling), dense layers of 128 and 10,
batches of 32, plain SGD. The figure is CPU time on one thread, the best step; ours is the compiled program of a
simulation, with all that a check-in is, and compiling apart. PyTorch has its channels last, which is its faster way,
and as many rows in memory. Each in turn, in processes of their own. The data set is found as `crowdml data list` says.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
GOALS = {"step": 1.0, "measure": 1.0, "compile_s": 8.0, "MiB": 1536.0}
"""Most of: our step over PyTorch's; measuring rows over training on them; seconds to compile; memory."""


def run(python: str, script: str, rows: int, steps: int) -> dict[str, float]:
    """Run one of them."""
    command = [python, str(HERE / script), str(rows), str(steps)]
    with tempfile.TemporaryDirectory() as programs:  # empty: what compiling costs at the first start
        environment = os.environ | {"OMP_NUM_THREADS": "1", "CROWDML_PROGRAMS": programs}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)  # noqa: S603
    if done.returncode:
        raise SystemExit(f"{script} failed:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure both, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="environments that `make bench-peers` has made")
    parser.add_argument("--rows", type=int, default=16_000, help="training rows; a fifth as many are measured on")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    peer = str(given.folder / "torch" / "bin" / "python")
    samples: dict[str, list[dict[str, float]]] = {"crowdml": [], "PyTorch, channels last": []}
    for _ in range(given.repeats):
        samples["crowdml"].append(run(sys.executable, "our_step.py", given.rows, given.steps))
        samples["PyTorch, channels last"].append(run(peer, "torch_step.py", given.rows, given.steps))
    found = {name: {key: min(one[key] for one in each) for key in each[0]} for name, each in samples.items()}
    ours, theirs = found.values()
    for name, figures in found.items():
        print(
            f"{name:24} {figures['ms']:6.1f} ms of CPU per step, {figures['predict_ms']:5.1f} ms to measure 32 rows, "
            f"{figures['MiB']:5.0f} MiB"
        )
    ratios = {
        "step": ours["ms"] / theirs["ms"],
        "measure": ours["predict_ms"] / ours["ms"],
        "compile_s": ours["compile_s"],
        "MiB": ours["MiB"],
    }
    said = {
        "step": "our step over PyTorch's",
        "measure": "measuring rows over training on as many",
        "compile_s": f"seconds to compile ({ours['compile_cpu_s']:.1f} of CPU)",
        "MiB": "MiB at the peak",
    }
    for name, value in ratios.items():
        print(f"{said[name]:42} {value:8.2f}   (goal: {GOALS[name]:g})")
    if given.json:
        rows = [
            {
                "name": name,
                "value": figures["ms"],
                "measuring 32 rows, ms": figures["predict_ms"],
                "MiB": figures["MiB"],
            }
            for name, figures in found.items()
        ]
        kept = {
            "unit": "ms of CPU per step",
            "seed": 0,
            "setting": f"CIFAR-10, convolutions 32 and 64, dense 128-10, batches of 32, {given.rows:,} rows",
            "rows": rows,
            "notes": [f"crowdml compiles before the first step: {ours['compile_cpu_s']:.1f} s of CPU, once"],
        }
        given.json.write_text(json.dumps(kept, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
