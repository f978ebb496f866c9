"""The straightforward loop that the engine is compared with: one trial, one check-in after the other, NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np


def run(
    rows: Any, labels: Any, batches: Any, staleness: Any, noise: float, c: float, radius: float, seed: int
) -> np.ndarray[Any, Any]:
    """Train softmax regression by asynchronous check-ins and return the parameters.

    Args:
        rows: Training rows, shape (N, D).
        labels: Class numbers, shape (N,).
        batches: Rows of each check-in, shape (check-ins, b).
        staleness: Versions passed since check-out, shape (check-ins,).
        noise: Scale of the Laplace noise on the gradient.
        c: Constant of the rate c/√t.
        radius: Radius of the ball for the parameters.
        seed: Of the noise.
    """
    generator = np.random.default_rng(seed)
    w = np.zeros((10, rows.shape[1]), np.float32)
    depth = int(staleness.max()) + 1
    past = [w] * depth
    for t in range(len(batches)):
        past[t % depth] = w
        old = past[(t - staleness[t]) % depth]
        x, y = rows[batches[t]], labels[batches[t]]
        z = x @ old.T
        z -= z.max(axis=1, keepdims=True)
        p = np.exp(z)
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(len(y)), y] -= 1
        g = p.T @ x / len(y)
        if noise:
            g = g + generator.laplace(scale=noise, size=g.shape).astype(np.float32)
        w = w - c / np.sqrt(t + 1) * g
        norm = np.sqrt(np.sum(w * w))
        if norm > radius:
            w = w * (radius / norm)
    return w
