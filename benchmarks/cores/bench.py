"""Whether all cores work: the clock of a run over the CPU time of all its processes, compiling apart.

    python benchmarks/cores/bench.py [--rounds 60]

Half is the best that two cores can do. Programs are compiled, and workers started, by a short run before.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from crowdml import Task, simulate
from crowdml.simulation.engine import CORES
from crowdml.simulation.workers import pool

ROOT = Path(__file__).parents[2]
FEDAVG = ROOT / "benchmarks" / "cores" / "fedavg.toml"
DIGITS = ROOT / "examples" / "digits.toml"
GOAL = 0.6


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its workers, as the kernel counts it."""
    total = time.process_time()
    for process in pool.processes():
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return total


def measure(name: str, task: Task, trials: int) -> None:
    """Run once to have everything compiled, then print what the second run takes."""
    simulate(task, trials=trials, engine="compiled")
    began, spent = time.perf_counter(), cpu_seconds()
    result = simulate(task, trials=trials, engine="compiled")
    clock, spent = time.perf_counter() - began, cpu_seconds() - spent
    print(f"{name:44}{result.processes:11}{clock:9.2f}{spent:9.2f}{clock / spent:9.2f}{GOAL:7.1f}", flush=True)


def main() -> None:
    """Print a line for every run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    print(f"{CORES} cores")
    print(f"{'run':44}{'processes':>11}{'clock, s':>9}{'CPU, s':>9}{'ratio':>9}{'goal':>7}")
    fedavg = Task.load(FEDAVG, [f"stop.max-versions={rounds}"])
    measure(f"federated averaging, 4 trials, {rounds} rounds", fedavg, 4)
    measure(f"federated averaging, 1 trial, {rounds} rounds", fedavg, 1)
    measure("digits, batches of 20, 10 trials", Task.load(DIGITS, ["crowd.passes=1000"]), 10)


if __name__ == "__main__":
    main()
