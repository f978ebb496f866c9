"""Convolutions with few filters: bands of windows against XLA's own convolution, in one run.

    python benchmarks/cnn/few_filters.py [--batch 64] [--calls 30]

For every layer: forwards, slopes of the picture and gradients of the weights; CPU time of the best call, compiled, on
one thread. `places` are those that are taken together. Layers that the rule leaves to XLA's convolution are shown too,
with as many places as would have been taken: there bands should not be faster by much.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("NPROC", "1")

import jax
import numpy as np

import crowdml.models.layers.bands as rule
from crowdml.models.layers.convolution import Convolution
from crowdml.models.layers.pooling import windows
from crowdml.simulation.engine.jax_ops import JAX

# Height and width of a picture, its channels, filters, kernel, stride, lines of zeros.
LAYERS = [
    (28, 1, 6, 5, 1, 0),
    (12, 6, 16, 5, 1, 0),
    (28, 1, 16, 8, 2, 3),
    (28, 1, 8, 3, 1, 1),
    (32, 3, 16, 3, 1, 1),
    (32, 3, 6, 5, 1, 2),
    (31, 3, 6, 5, 1, 2),
    (14, 16, 16, 3, 1, 1),
    (28, 1, 20, 5, 1, 0),
    (32, 3, 32, 3, 1, 1),
]
FEW = rule.FEW_FILTERS


def best(layer: tuple[int, ...], few: int, batch: int, calls: int) -> float:
    """Compile the three parts of a layer, with bands for up to `few` filters, and return CPU milliseconds."""
    size, channels, filters, kernel, stride, lines = layer
    rule.FEW_FILTERS, rule.FEW_CHANNELS = few, 100
    built = Convolution(size=filters, kernel=kernel, stride=stride, padding=lines).build((size, size, channels), JAX)
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.normal(size=(kernel, kernel, channels, filters)).astype(np.float32),
        "b": np.zeros(filters, np.float32),
    }
    pictures = rng.normal(size=(batch, size, size, channels)).astype(np.float32)
    slope = rng.normal(size=(batch, *built.shape)).astype(np.float32)

    @jax.jit
    def step(weights: Any, pictures: Any, slope: Any) -> Any:
        y, seen = built.forward(weights, pictures)
        back = built.pull_back(weights, seen, slope)
        return y, back, built.factors(weights, seen, slope).total(jax.numpy.ones(batch, np.float32))

    spent = []
    for _ in range(calls + 1):
        began = time.process_time()
        jax.block_until_ready(step(weights, pictures, slope))
        spent.append(time.process_time() - began)
    return min(spent[1:]) * 1e3


def main() -> None:
    """Measure every layer both ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--calls", type=int, default=30)
    given = parser.parse_args()
    print(f"{'picture':>10} {'filters':>8} {'kernel':>7} {'stride':>7} {'places':>7} {'convolution':>12} {'bands':>8}")
    for layer in LAYERS:
        size, channels, filters, kernel, stride, lines = layer
        at = windows((size, size, channels), kernel, stride, lines)
        rule.FEW_FILTERS = max(FEW, filters)
        rule.FEW_CHANNELS = 100
        found = rule.bands(at, channels, filters)
        plain, banded = (best(layer, few, given.batch, given.calls) for few in (0, max(FEW, filters)))
        taken = f"{found.width if found else 1}" + " (not)" * (filters > FEW or not found)
        print(
            f"{f'{size}x{size}x{channels}':>10} {filters:>8} {kernel:>7} {stride:>7} {taken:>7} "
            f"{plain:>9.2f} ms {banded:>5.2f} ms  {plain / banded:.1f}x"
        )


if __name__ == "__main__":
    main()
