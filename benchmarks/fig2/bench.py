"""Figure 2 of the Crowd-ML library: what thirty cells of its grid cost, and how near that is to the products alone.

    python benchmarks/fig2/bench.py [--json FILE]

A cell is a net 50-75-75-10 that one device learns from MNIST by 1000 check-ins of 10 steps on 100 rows, for one size
and law of the noise and one rate. The thirty run as `crowdml reproduce crowdml-2016/fig2` runs them: those with the
same law side by side, spread over the cores. The denominator of the share is the rate at which the matrix products of a
step, in the same shapes, are made alone on one thread, by NumPy's library (OpenBLAS) or by XLA, whichever is faster.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np

from crowdml.simulation import simulate_cells
from crowdml.studies.crowdml_2016.noise_and_rates import FIG2, LAWS, UNSTATED, USED
from crowdml.task import Task, load

BATCH, SIZES = 100, (50, 75, 75, 10)
CHECK_INS, STEPS = 1000, 10
REPEATS = 200


def shapes() -> list[tuple[int, int, int]]:
    """Products of a step, as (rows, inner, columns): forward, to the weights, and back through all but the first."""
    layers = list(itertools.pairwise(SIZES))
    forward = [(after, before, BATCH) for before, after in layers]
    weights = [(after, BATCH, before) for before, after in layers]
    back = [(before, after, BATCH) for before, after in layers[1:]]
    return forward + weights + back


def flops() -> float:
    """Floating-point operations of a step's products."""
    return float(sum(2 * rows * inner * columns for rows, inner, columns in shapes()))


def cells() -> list[list[Task]]:
    """The thirty cells, in groups that run side by side."""
    setting = UNSTATED.candidates[UNSTATED.used]
    groups: dict[str, list[Task]] = {law: [] for law in LAWS}
    for curve in FIG2.curves:
        law, reading = curve.label.split(", ")[:2]
        if reading == USED:
            chosen = [f"{key}={value}" for key, value in curve.chosen.items()]
            groups[law].append(load(FIG2.task, [*setting, *curve.changes, *chosen, "crowd.curve=2"]))
    return list(groups.values())


def run(tasks: list[Task]) -> tuple[float, float]:
    """Return CPU and wall seconds of a group's check-ins: twice those of the second half."""
    marks: list[tuple[float, float]] = []
    simulate_cells(tasks, watch=lambda share, error: marks.append((time.process_time(), time.perf_counter())))
    (cpu, wall), (cpu_after, wall_after) = marks
    return 2 * (cpu_after - cpu), 2 * (wall_after - wall)


def openblas() -> Callable[[], Any]:
    """The products of a step, often, by NumPy."""
    pairs = [(some(rows, inner), some(inner, columns)) for rows, inner, columns in shapes()]
    made = [np.empty((len(a), b.shape[1]), np.float32) for a, b in pairs]

    def products() -> None:
        for _ in range(REPEATS):
            for (a, b), out in zip(pairs, made, strict=True):
                np.matmul(a, b, out=out)

    return products


def xla() -> Callable[[], Any]:
    """The products of a step, often, by XLA; each takes a number from the one before, so that all must be made."""
    pairs = [(jnp.asarray(some(rows, inner)), jnp.asarray(some(inner, columns))) for rows, inner, columns in shapes()]

    def step(_: Any, last: Any) -> Any:
        for a, b in pairs:
            last = ((a + last) @ b)[0, 0] * 1e-9
        return last

    program = jax.jit(lambda: jax.lax.fori_loop(0, REPEATS, step, jnp.float32(0)))
    return lambda: jax.block_until_ready(program())


def some(*shape: int) -> Any:
    """Make numbers of some shape."""
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def rate(products: Callable[[], Any]) -> float:
    """Return floating-point operations per CPU second, the best of several."""
    products()
    best = np.inf
    for _ in range(10):
        began = time.process_time()
        products()
        best = min(best, time.process_time() - began)
    return REPEATS * flops() / best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    groups = cells()
    began = time.perf_counter(), time.process_time()
    spent = [run(tasks) for tasks in groups]
    whole = {"wall": time.perf_counter() - began[0], "cpu": time.process_time() - began[1]}
    count = sum(map(len, groups))
    cpu, wall = (sum(times[index] for times in spent) for index in (0, 1))
    rates = {"OpenBLAS": rate(openblas()), "XLA": rate(xla())}
    library = max(rates, key=lambda name: rates[name])
    ours = count * CHECK_INS * STEPS * flops() / cpu
    found = {
        "cells": count,
        "cpu_s": cpu,
        "wall_s": wall,
        "with_compiling_s": whole,
        "gflops": ours / 1e9,
        "products_gflops": {name: rate / 1e9 for name, rate in rates.items()},
        "share": ours / rates[library],
    }
    print(f"{count} cells, {CHECK_INS} check-ins each: {cpu:.1f} s of CPU, {wall:.1f} s")
    print(f"with loading, compiling and measuring: {whole['cpu']:.1f} s of CPU, {whole['wall']:.1f} s")
    print(
        f"products of the steps: {ours / 1e9:.1f} GFLOP per CPU second, {found['share']:.0%} of {library}'s rate",
        end="",
    )
    print(f" in the same shapes ({rates[library] / 1e9:.1f})")
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
