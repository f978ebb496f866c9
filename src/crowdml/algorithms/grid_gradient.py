"""The gradient of a batch as integers on a grid: what a device sends in sound mode.

Whoever asks what leaves a device in sound mode finds the answer here, in `privacy/grid` and in `privacy/sound`. Nothing
in floating point leaves: each example's gradient (unit sample) or the mean of the batch (unit device) is clipped,
rounded and checked; integers are summed; discrete noise is added; the server scales. The regulariser depends on public
parameters alone, so the server adds it.
"""

from __future__ import annotations

import itertools
import math
from typing import cast

from crowdml.algorithms.contract import Parts
from crowdml.algorithms.gradients import MeanGradient
from crowdml.core import Array, Batch, Coins, GridCoins, trees
from crowdml.core.ops import Tree
from crowdml.privacy.grid import round_checked, to_levels
from crowdml.privacy.sound import Sound


def grid_gradient(parts: Parts, parameters: Tree, batch: Batch, training: Array, coins: Coins) -> MeanGradient:
    """Sum checked integers over the rows marked in `training`; `gradient` is int32 and has no noise yet."""
    xp, sound = parts.ops.xp, _sound(parts)
    gradients = parts.model.gradients(parameters, batch)
    samples = xp.sum(training)
    if sound.gradient.grid.per == "example":
        rows = _flat(gradients.rows(), len(batch.labels), xp)
        marks = training
    else:
        mean = gradients.total(training / xp.maximum(samples, xp.float32(1)))
        rows = _flat(trees.map(lambda leaf: leaf[None], mean), 1, xp)
        marks = xp.ones((1,), dtype=xp.float32)
    levels = to_levels(sound.gradient.grid, rows, parts.ops)
    # Padding is zeroed before it is rounded: a row of zeros is never too long.
    levels = xp.where(marks[:, None] > 0, levels, xp.float32(0))
    k = round_checked(sound.gradient.grid, levels, cast(GridCoins, coins), "grid", parts.ops)
    total = xp.sum(k, axis=0, dtype=xp.int32)
    return MeanGradient(gradient=_shaped(total, parameters), outputs=gradients.outputs, samples=samples)


def sanitise_grid(parts: Parts, gradient: Tree, coins: Coins) -> Tree:
    """Add discrete noise to every integer."""
    law = _sound(parts).gradient.law
    size = trees.size(gradient)
    noise = law.draw(coins, "gradient", parts.hyper["noise"], (size,))
    return trees.map(lambda own, more: own + more, gradient, _shaped(noise, gradient))


def from_grid(parts: Parts, check_in: Tree, parameters: Tree) -> Tree:
    """Turn a check-in into a mean gradient, on the server: scale, divide by the rows, add the regulariser."""
    xp, grid = parts.ops.xp, _sound(parts).gradient.grid
    count = xp.maximum(check_in["samples"], 1).astype(xp.float32) if grid.per == "example" else xp.float32(1)
    factor = xp.float32(grid.step) / count
    strength = parts.hyper["regularisation"]
    if isinstance(strength, float) and strength == 0.0:
        return trees.map(lambda own: own.astype(xp.float32) * factor, check_in["gradient"])
    regulariser = parts.model.regulariser(parameters, strength)
    return trees.map(lambda own, more: own.astype(xp.float32) * factor + more, check_in["gradient"], regulariser)


def _flat(tree: Tree, count: int, xp: Array) -> Array:
    return xp.concatenate([leaf.reshape(count, -1) for leaf in trees.leaves(tree)], axis=1)


def _shaped(vector: Array, like: Tree) -> Tree:
    """Cut a vector into the shapes of a tree, in the order of its leaves."""
    sizes = [math.prod(leaf.shape) for leaf in trees.leaves(like)]
    ends = dict(zip((path for path, _ in trees.paths(like)), itertools.accumulate(sizes), strict=True))

    def cut(path: str, leaf: Array) -> Array:
        return vector[ends[path] - math.prod(leaf.shape) : ends[path]].reshape(leaf.shape)

    return trees.map_paths(cut, like)


def _sound(parts: Parts) -> Sound:
    assert parts.plan.sound is not None  # noqa: S101  recipes ask for it before they come here
    return parts.plan.sound
