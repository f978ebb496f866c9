"""Local solves of ADMM per CPU-second, as a device makes them: 105 features, 300 rows, NumPy.

    python benchmarks/admm/bench.py [--json FILE]

CPU time counts all threads, and libraries are kept to one: with several, small products wait for each other. Each of
100 devices solves its problem in 20 rounds, from its last solution on, as in `admm/fig3`. Shown are the middle round
and the best one: on a busy machine others empty the caches, and the middle round says more about them than about the
solver.
"""

from __future__ import annotations

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before NumPy starts

import argparse  # noqa: E402
import json  # noqa: E402
import resource  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402

from crowdml.algorithms.device_parts.local_solver import Pull, local_solver  # noqa: E402
from crowdml.core import NUMPY, Batch, Labels  # noqa: E402
from crowdml.models import MODELS  # noqa: E402

WANTED = 500.0
ROWS, FEATURES, DEVICES, ROUNDS = 300, 105, 100, 20


def cpu_seconds() -> float:
    """Return the CPU time of this process so far, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def crowd() -> list[Batch]:
    """Make devices with rows of length 1 and labels that a noisy line separates."""
    rng = np.random.default_rng(0)
    line = rng.standard_normal(FEATURES)
    batches = []
    for _ in range(DEVICES):
        rows = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        labels = (rows @ line + 0.5 * rng.standard_normal(ROWS) > 0).astype(np.int32)
        batches.append(Batch(rows=rows, targets=labels, mask=np.ones(ROWS, np.float32)))
    return batches


def measure(kind: str, steps: int) -> tuple[float, float, float]:
    """Return solves per CPU-second in the middle round and in the best, and how far the last are from exact ones."""
    model = MODELS[kind]().build(FEATURES, Labels(names=("no", "yes")), NUMPY)
    solve, batches = local_solver(model, NUMPY), crowd()
    pull = Pull(rho=1.0, decay=0.0, steps=steps)
    local, dual = [model.zeros() for _ in batches], [np.zeros((1, FEATURES), np.float32) for _ in batches]
    centre, spent = np.zeros((1, FEATURES), np.float32), list[float]()
    for _ in range(ROUNDS):
        began = cpu_seconds()
        for at, batch in enumerate(batches):
            local[at] = solve(({"w": centre - dual[at]},), local[at], batch, pull)
        spent.append(cpu_seconds() - began)
        asked = centre
        dual = [price + found[0]["w"] - asked for price, found in zip(dual, local, strict=True)]
        centre = np.mean([found[0]["w"] + price for found, price in zip(local, dual, strict=True)], axis=0)
    exact = solve(
        ({"w": asked - (dual[0] - local[0][0]["w"] + asked)},), local[0], batches[0], Pull(rho=1.0, decay=0.0, steps=50)
    )
    off = float(np.abs(exact[0]["w"] - local[0][0]["w"]).max())
    return DEVICES / float(np.median(spent)), DEVICES / min(spent), off


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    found = {}
    for kind, steps in (("logistic", 3), ("huber", 4)):
        rate, best, off = measure(kind, steps)
        found[kind] = {"solves_per_cpu_second": round(rate), "best_round": round(best), "largest_error": off}
        print(f"{kind:10} {steps} steps: {rate:6.0f} solves per CPU-second ({best:.0f} at best), off by {off:.1e}")
    reached = found["logistic"]["solves_per_cpu_second"] >= WANTED
    print(f"wanted for logistic: {WANTED:.0f}: {'reached' if reached else 'missed'}")
    if path := parser.parse_args().json:
        path.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
