"""Correlated noise on a device's releases: part of what was added before is taken back.

With the banded matrix C that the driver hands in, C x = z: the noise of release t is
x_t = (z_t − Σ_{j≥1} C[t, t−j] x_{t−j}) / C[t, t], where z_t is fresh. So a device remembers its last `bands - 1` noises
and no draw is ever needed twice. What it costs: `crowdml.privacy.banded`.
"""

from __future__ import annotations

from crowdml.algorithms.contract import Parts
from crowdml.core import Array, Coins, trees
from crowdml.core.ops import Tree

MATRIX = "matrix"
"""Among the hyper-parameters: the matrix by its rows, shape (releases, bands), float32."""


def no_noise_yet(parts: Parts) -> Tree:
    """Return what a device remembers at first: its last noises, the newest first, all zero."""
    assert parts.plan.banded is not None  # noqa: S101  the caller asked
    kept = parts.plan.banded.bands - 1
    return trees.map(lambda leaf: parts.ops.xp.zeros((kept, *leaf.shape), leaf.dtype), parts.model.zeros())


def next_noise(parts: Parts, release: Array, earlier: Tree, coins: Coins, stage: str) -> tuple[Tree, Tree]:
    """Draw the noise of a device's release, for fresh noise of scale 1, and return what to remember.

    Args:
        parts: What the algorithm is assembled from.
        release: Number of the release among the device's own, from 0.
        earlier: What it remembers.
        coins: Coins of this check-in.
        stage: Name of the draws.
    """
    xp = parts.ops.xp
    if MATRIX not in parts.hyper:
        raise ValueError(f'correlated noise needs its matrix: the driver hands it in as hyper["{MATRIX}"]')
    row = parts.hyper[MATRIX][release]

    def one(path: str, kept: Array) -> Array:
        fresh = coins.gaussian(f"{stage}/{path}", kept.shape[1:])
        return (fresh - xp.tensordot(row[1:], kept, axes=1)) / row[0]

    noise = trees.map_paths(one, earlier)
    newest_first = trees.map(lambda new, kept: xp.concatenate([new[None], kept[:-1]]), noise, earlier)
    return noise, newest_first
