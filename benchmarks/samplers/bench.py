"""Draws per second of CPU of the exact samplers, from the operating system's entropy, at the scales that tasks need.

    python benchmarks/samplers/bench.py

Scales: a gradient of 50 to 100,000 numbers has 64 to 2,048 levels, and noise of some hundred to some hundred thousand
levels. The best of several rounds is printed: a shared machine only ever makes it slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from crowdml.privacy.noise.poisson import skellam
from crowdml.privacy.noise.response import RandomisedResponse
from crowdml.privacy.noise.rounded import rounded_gaussian
from crowdml.privacy.noise.samplers import OsWords, discrete_gaussian, discrete_laplace

DRAWS = 200_000
ROUNDS = 5
SCALES = (2, 30, 521, 4140, 26_464, 105_000)


def main() -> None:
    """Measure and print."""
    print(f"{'sampler':24}{'scale':>10}{'million draws per CPU second':>32}  (goal 1; rounded Gaussian 4)")
    words = OsWords()
    for scale in SCALES:
        report("discrete Laplace", scale, lambda scale=scale: discrete_laplace(words, scale, DRAWS))
    report("discrete Laplace", "49/16", lambda: discrete_laplace(words, Fraction(49, 16), DRAWS))
    for scale in SCALES:
        report("rounded Gaussian", scale, lambda scale=scale: rounded_gaussian(words, scale, DRAWS))
    report("rounded Gaussian", "121/16", lambda: rounded_gaussian(words, Fraction(121, 16), DRAWS))
    for scale in SCALES:
        report("discrete Gaussian", scale, lambda scale=scale: discrete_gaussian(words, scale**2, DRAWS))
    report("discrete Gaussian", "121/16", lambda: discrete_gaussian(words, Fraction(121, 16) ** 2, DRAWS))
    for scale in SCALES:
        report("Skellam", scale, lambda scale=scale: skellam(words, scale**2, DRAWS))
    labels = np.zeros(DRAWS, np.int64)
    response = RandomisedResponse(classes=10, keep=Fraction(1, 2))
    report("randomised response", "", lambda: response.answer(words, labels))


def report(name: str, scale: object, draw: Callable[[], object]) -> None:
    """Print the best speed of several rounds; tables are made before."""
    draw()
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        draw()
        times.append(time.process_time() - began)
    print(f"{name:24}{scale!s:>10}{DRAWS / min(times) / 1e6:>32.2f}", flush=True)


if __name__ == "__main__":
    main()
