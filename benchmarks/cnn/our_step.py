"""The net here, as the simulation compiles it. Prints CPU milliseconds, seconds of compiling and peak memory as JSON.

python our_step.py ROWS STEPS

One device holds all its rows and takes local steps on batches of 32. What is measured is a chunk of the compiled
program, with the reading of rows and all that a check-in is; and what measuring the test rows costs, for as many rows
as a batch has.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

import numpy as np

from crowdml.simulation.engine.chunks import cut_chunks
from crowdml.simulation.engine.hash_coins import trial_seed
from crowdml.simulation.engine.program import compile_program
from crowdml.simulation.engine.run_records import Replicas
from crowdml.simulation.prepare import numbers, prepare
from crowdml.simulation.run import make_timelines
from crowdml.task import parse

BATCH, TOGETHER = 32, 10
TASK = """
crowdml = 1
name = "cnn"
[data]
dataset = "cifar10"
features = 3072
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{{ kind = "scale", by = 0.00392156862745098 }}]
split = {{ train = {rows}, test = {test}, seed = 0 }}
[model]
kind = "cnn"
shape = [32, 32, 3]
convolutions = [32, 64]
layers = [128]
activation = "relu"
[algorithm]
kind = "fedavg"
per-round = 1
local-batch = 32
rate = {{ kind = "constant", c = 0.01 }}
[privacy]
mode = "none"
[stop]
max-versions = 1
[crowd]
devices = {devices}
passes = 1
curve = 1
"""


def best(function: Any, times: int) -> float:
    """Return the CPU milliseconds of the best of several calls, after one that does not count."""
    spent = []
    for _ in range(times + 1):
        began = time.process_time()
        function()
        spent.append(time.process_time() - began)
    return min(spent[1:]) * 1e3


def main(rows: int, steps: int) -> None:
    """Compile, then take steps."""
    together = BATCH * TOGETHER
    test = rows // 5
    task = parse(TASK.format(rows=rows, test=test, devices=rows // together))
    _, dataset = prepare(task)
    chunks = cut_chunks(make_timelines(task, dataset, 1, 0), 1)
    events, counts = chunks.events(0)
    hyper = {name: np.array([value], np.float32) for name, value in numbers(task).items()}
    replicas = Replicas(hyper=hyper, seeds=np.stack([trial_seed(0, 0)]))
    began = time.process_time()
    program = compile_program(task, dataset, replicas, events, chunks.ring, chunks.even, chunks.per_commit)
    compiling = time.process_time() - began
    carry = program.start(replicas)

    def run() -> None:
        nonlocal carry
        carry = program.chunk(replicas, carry, events, counts)

    taken = int(counts[0]) * events.rows.shape[-1] // BATCH
    found = {
        "ms": best(run, max(3, steps // taken)) / taken,
        "predict_ms": best(lambda: program.measure(replicas, carry), 3) * BATCH / len(dataset.test_rows),
        "compile_s": program.compile_seconds,
        "compile_cpu_s": compiling,
        "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
