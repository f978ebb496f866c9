"""One training step here: plain, or private. Prints CPU milliseconds and peak memory as JSON.

python our_step.py plain|private STEPS [GROUP]

The step is the device's own function of `fedavg`, compiled as the simulation does it, several steps in one call.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

import numpy as np

import crowdml.simulation  # sets JAX up
from crowdml.core import Batch
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.engine.jax_ops import JAX
from crowdml.task import Task, parse

# isort: split
import jax

BATCH, TOGETHER = 256, 4
TASK = """
crowdml = 1
name = "step"
[data]
features = 3072
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
[model]
kind = "cnn"
shape = [32, 32, 3]
convolutions = [32, 64]
layers = [128, 64]
activation = "relu"
[algorithm]
kind = "fedavg"
per-round = 1
local-batch = 256
rate = {{ kind = "constant", c = 0.01 }}
{algorithm}
[privacy]
{privacy}
[stop]
max-releases = 1
[crowd]
devices = 1
"""
PRIVACY = """mode = "paper"
mechanism = "gaussian"
noise-at = "steps"
sampling = "fixed"
sampling-rate = 0.25
clip = 1.0
epsilon = 8.0
delta = 1e-5
"""


def task(kind: str, group: int) -> Task:
    """The same net and rate, plain or private."""
    if kind == "plain":
        return parse(TASK.format(algorithm="", privacy='mode = "none"'))
    return parse(TASK.format(algorithm=f"local-steps = {TOGETHER}\ngroup = {group}", privacy=PRIVACY))


def main(kind: str, steps: int, group: int) -> None:
    """Compile, then take steps."""
    phase = task(kind, group).build(JAX).last
    rng = np.random.default_rng(0)
    rows = rng.random((BATCH * TOGETHER, 3072), np.float32)
    labels = rng.integers(0, 10, len(rows)).astype(np.int32)
    batch = Batch(rows=rows, targets=labels, mask=np.ones(len(rows), np.float32))
    told = phase.server.check_out(phase.server.init(HashCoins(trial_seed(0, 0), 0, JAX)))

    def contact(broadcast: Any, batch: Batch, number: Any) -> Any:
        return phase.contribute(broadcast, phase.begin(), batch, HashCoins(trial_seed(0, 0), number, JAX))[0]

    compiled = jax.jit(contact).lower(told, batch, np.int32(1)).compile()
    given = (told, jax.device_put(batch))
    spent = []
    for number in range(steps // TOGETHER + 2):
        began = time.process_time()
        jax.block_until_ready(compiled(*given, np.int32(number)))
        spent.append((time.process_time() - began) / TOGETHER)
    spent = spent[2:]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"ms": sorted(spent)[len(spent) // 2] * 1e3, "best_ms": min(spent) * 1e3, "MiB": memory}))


if __name__ == "__main__":
    crowdml.simulation  # noqa: B018  imported for what it sets up
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 64)
