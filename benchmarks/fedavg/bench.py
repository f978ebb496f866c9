"""Federated averaging: what a round costs here and with others, all in one run.

    sh benchmarks/fedavg/setup.sh FOLDER
    python benchmarks/fedavg/bench.py FOLDER [--rounds 60] [--json FILE]

A net 784-200-10 learns MNIST: 100 devices with 576 rows each, 10 of them in a round, 18 batches of 32, plain SGD. The
figure is CPU time per round; compiling is apart. The data set is found as `crowdml data list` says.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from crowdml.algorithms import Task, parse
from crowdml.data import load
from crowdml.simulation import simulate

HERE = Path(__file__).parent
TASK = """
crowdml = 1
name = "fedavg"
[data]
dataset = "mnist"
features = 784
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{{ kind = "scale", by = 0.00392156862745098 }}]
validation = 2400
[model]
kind = "mlp"
layers = [200]
activation = "relu"
[algorithm]
kind = "fedavg"
per-round = 10
local-batch = 32
rate = {{ kind = "constant", c = 0.1 }}
[privacy]
mode = "none"
[stop]
max-versions = {rounds}
[crowd]
devices = 100
passes = {passes}
curve = 1
"""
SHORT = 10


def task(rounds: int) -> Task:
    """The task with so many rounds; ten of them go through the rows once."""
    return parse(TASK.format(rounds=rounds, passes=max(1, rounds // 10)))


def ours(rounds: int) -> dict[str, float]:
    """Cost of a round as the difference between a long and a short run, each after it was compiled."""
    spent, error, compiling = {}, 1.0, 0.0
    for count in (SHORT, rounds):
        compiling = simulate(task(count), trials=1).compile_seconds
        began = time.process_time()
        result = simulate(task(count), trials=1)
        spent[count] = time.process_time() - began
        error = result.test_error
    each = (spent[rounds] - spent[SHORT]) / (rounds - SHORT)
    return {"ms": each * 1e3, "accuracy": 1 - error, "compile_s": compiling}


def peer(folder: Path, name: str, script: str, data: Path, rounds: int) -> dict[str, float]:
    """Run a peer in its own environment."""
    command = [str(folder / name / "bin" / "python"), str(HERE / script), str(data), str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own scripts
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def write_rows(path: Path) -> None:
    """Hand the same rows to everybody."""
    mnist = load("mnist")
    rows = (mnist.train_rows / np.float32(255)).astype(np.float32)
    np.savez(
        path,
        rows=rows[:57_600],
        labels=mnist.train_labels[:57_600],
        test_rows=rows[57_600:],
        test_labels=mnist.train_labels[57_600:],
    )


def main() -> None:
    """Measure everything and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="environments made by setup.sh")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        data = Path(text) / "rows.npz"
        write_rows(data)
        found: dict[str, Any] = {"crowdml": ours(given.rounds)}
        found["PyTorch, plain loop"] = peer(given.folder, "torch", "torch_loop.py", data, given.rounds)
        found["pfl-research"] = peer(given.folder, "pfl", "pfl_rounds.py", data, given.rounds)
    own = found["crowdml"]["ms"]
    for name, figures in found.items():
        ratio = f"{figures['ms'] / own:5.2f} ×"
        print(f"{name:22} {figures['ms']:8.1f} ms of CPU per round {ratio}   accuracy {figures['accuracy']:.3f}")
    print(f"crowdml compiled in {found['crowdml']['compile_s']:.1f} s, apart")
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
