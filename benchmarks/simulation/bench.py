"""CPU time per update: the engine against a straightforward NumPy loop, in one run.

    python benchmarks/simulation/bench.py [--json FILE]

CPU time counts all threads. Compiling is not counted; figures are printed without and with the timeline. Random data
with the shape of the digit task of Crowd-ML 2015 (50 features, 10 labels), 10 trials. `native.py` compares with C.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import numpy_loop

from crowdml.core import Labels
from crowdml.data import Dataset
from crowdml.simulation.engine.chunks import cut_chunks
from crowdml.simulation.engine.hash_coins import trial_seed
from crowdml.simulation.engine.program import compile_program
from crowdml.simulation.engine.run_records import Replicas
from crowdml.simulation.run import make_timelines
from crowdml.task import Task, parse

TASK = """
crowdml = 1
name = "benchmark"
[data]
dataset = "digits"
features = 50
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{ kind = "norm", order = 1, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
batch = 1
rate = { kind = "inverse-sqrt", c = 30.0 }
statistics = false
[privacy]
mode = "none"
epsilon = 10.0
[crowd]
devices = 1000
passes = 1
curve = 1
"""
PRIVATE = "privacy.mode=paper"
SLOW = "crowd.delays={ request = 1000.0, check-out = 1000.0, check-in = 1000.0 }"
COUNTS = "algorithm.statistics=true"

SETTINGS: dict[str, tuple[list[str], float | None]] = {
    "b=1 fresh": ([], 60.0),
    "b=1 private": ([PRIVATE], 35.0),
    "b=1 private, 1000Δ": ([PRIVATE, SLOW], 22.0),
    "b=20 private": ([PRIVATE, "algorithm.batch=20"], 5.5),
    "b=20 private, 1000Δ": ([PRIVATE, SLOW, "algorithm.batch=20"], None),
    "b=1 fresh, M=100": (["crowd.devices=100"], None),
    "b=1 fresh, M=100000": (["crowd.devices=100000"], None),
    "b=1 counts, M=1000": ([COUNTS], None),
    "b=1 counts, M=100000": ([COUNTS, "crowd.devices=100000"], None),
}
TRIALS = 10


def cpu_seconds() -> float:
    """Return the CPU time of this process so far, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def data() -> Dataset:
    """Make random rows of the right shape."""
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(100_000, 50)).astype(np.float32)
    rows /= np.abs(rows).sum(axis=1, keepdims=True)
    labels = generator.integers(0, 10, 100_000).astype(np.int32)
    names = tuple("0123456789")
    return Dataset(
        name="random",
        train_rows=rows,
        train_targets=labels,
        test_rows=rows[:1000],
        test_targets=labels[:1000],
        target=Labels(names=names),
    )


def engine(task: Task, dataset: Dataset, timelines: list[Any], repeats: int = 3) -> tuple[float, float]:
    """Return CPU seconds per update and seconds of compiling."""
    chunks = cut_chunks(timelines, 1)
    seeds = np.stack([trial_seed(0, trial) for trial in range(len(timelines))])
    numbers = task.hyper(task.calibrated)
    hyper = {name: np.full(len(timelines), value, np.float32) for name, value in numbers.items()}
    replicas = Replicas(hyper=hyper, seeds=seeds)
    program = compile_program(task, dataset, replicas, chunks.events(0)[0], chunks.ring, chunks.even)
    best, updates = np.inf, sum(len(timeline) for timeline in timelines)
    parts = [chunks.events(number) for number in range(len(chunks))]
    for _ in range(repeats):
        carries = program.start(replicas)
        began = cpu_seconds()
        for events, counts in parts:
            carries = program.chunk(replicas, carries, events, counts)
        best = min(best, (cpu_seconds() - began) / updates)
    return best, program.compile_seconds


def loop(task: Task, dataset: Dataset, timeline: Any) -> float:
    """Return CPU seconds per update of the NumPy loop."""
    count = min(len(timeline), 6000)
    noise = 4 / 10.0 / task.algorithm.batch if task.privacy.mode == "paper" else 0.0
    began = cpu_seconds()
    numpy_loop.run(
        dataset.train_rows,
        dataset.train_targets,
        timeline.rows[:count],
        timeline.staleness[:count],
        noise,
        30.0,
        1e3,
        0,
    )
    return (cpu_seconds() - began) / count


def main() -> None:
    """Measure all settings and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    dataset, table = data(), []
    heads = {"NumPy µs": 9, "ours µs": 9, "ratio": 7, "goal": 6, "timeline µs": 12, "with it": 8, "compile s": 10}
    print(f"{'setting':24}", *(f"{head:>{width}}" for head, width in heads.items()))
    for name, (changes, goal) in SETTINGS.items():
        if options.only not in name:
            continue
        task = parse(TASK, changes=changes)
        began = cpu_seconds()
        timelines = make_timelines(task, dataset, TRIALS, 0)
        drawing = (cpu_seconds() - began) / sum(map(len, timelines))
        plain = min(loop(task, dataset, timelines[0]) for _ in range(2))
        ours, compiling = engine(task, dataset, timelines)
        found = {"numpy_us": plain * 1e6, "ours_us": ours * 1e6, "timeline_us": drawing * 1e6, "compile_s": compiling}
        table.append({"setting": name, **found})
        shown = f"{goal:.1f}" if goal else ""
        print(
            f"{name:24} {plain * 1e6:9.1f} {ours * 1e6:9.3f} {plain / ours:7.1f} {shown:>6} {drawing * 1e6:12.3f} "
            f"{(ours + drawing) * 1e6:8.3f} {compiling:10.2f}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
