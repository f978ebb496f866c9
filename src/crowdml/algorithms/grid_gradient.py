"""Updates as integers on a grid: what a device sends in sound mode, and how the server reads it.

Whoever asks what leaves a device in sound mode finds the answer here, in `privacy/grid` and in `privacy/sound`. Nothing
in floating point leaves: a vector is clipped, rounded and checked; integers are summed; discrete noise is added; the
server scales. The vector is each example's gradient (gradients, unit sample), the mean gradient of the batch (unit
device), or what local steps have changed.

A message that is a sum of bounded examples carries their number and counts for as much. A message that is bounded as a
whole counts as one: then the noise of a mean is least, and nothing has to be said about the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from crowdml.algorithms.contract import Parts
from crowdml.algorithms.gradients import MeanGradient
from crowdml.core import Array, Batch, Coins, GridCoins, record, trees
from crowdml.core.ops import Tree
from crowdml.privacy.grid import round_checked, to_levels
from crowdml.privacy.mechanisms import SKELLAM
from crowdml.privacy.sound import Sound


def grid_gradient(parts: Parts, parameters: Tree, batch: Batch, training: Array, coins: Coins) -> MeanGradient:
    """Sum checked integers over the rows marked in `training`; `gradient` is int32 and has no noise yet.

    The regulariser is left out: it depends on public parameters alone, so the server adds it.
    """
    xp, sound = parts.ops.xp, _sound(parts)
    gradients = parts.model.gradients(parameters, batch)
    samples = xp.sum(training)
    if sound.update.grid.per == "example":
        total = _on_grid(parts, gradients.rows(), training, coins)
    else:
        mean = gradients.total(training / xp.maximum(samples, xp.float32(1)))
        total = _on_grid(parts, *_alone(mean, xp), coins)
    return MeanGradient(gradient=trees.cut(total, parameters), outputs=gradients.outputs, samples=samples)


def grid_change(parts: Parts, change: Tree, coins: Coins) -> Tree:
    """Turn what local steps have changed into checked integers; without noise yet."""
    return trees.cut(_on_grid(parts, *_alone(change, parts.ops.xp), coins), change)


def sanitise_grid(parts: Parts, update: Tree, coins: Coins) -> Tree:
    """Add discrete noise to every integer."""
    sound = _sound(parts)
    # A Skellam table is made before anything is compiled, so its scale is the plan's and never traced.
    scale = sound.update.scale if sound.update.law is SKELLAM else parts.hyper["noise"]
    noise = sound.update.law.draw(coins, sound.sends, scale, (trees.size(update),))
    return trees.map(lambda own, more: own + more, update, trees.cut(noise, update))


@record
class GridReader:
    """How the server makes an update of the integers of a check-in, or of a sum of several.

    Attributes:
        scale: `scale(check_in)` returns the update, times its weight, and the weight. Where a commit follows every
            check-in the mean is taken at once, and there is no weight. Many check-ins may stand below each other.
        pull: `pull(parameters)`: the regulariser, which devices leave out; None where there is none.
        alone: Whether a commit follows every check-in.
        xp: The array namespace.
    """

    scale: Callable[[Tree], tuple[Tree, Array]]
    pull: Callable[[Tree], Tree] | None
    alone: bool
    xp: Any

    def read(self, check_in: Tree, parameters: Tree) -> tuple[Tree, Array]:
        """Return the update with the regulariser, times its weight, and the weight."""
        update, weight = self.scale(check_in)
        if self.pull is None:
            return update, weight
        share = self.xp.float32(1) if self.alone else weight.astype(self.xp.float32)
        return trees.map(lambda own, more: own + more * share, update, self.pull(parameters)), weight


def grid_reader(parts: Parts, alone: bool) -> GridReader:
    """Return how the server reads check-ins."""
    xp, sound, strength = parts.ops.xp, _sound(parts), parts.hyper["regularisation"]
    counts_rows, step = sound.update.grid.per == "example", xp.float32(sound.update.grid.step)

    def scale(check_in: Tree) -> tuple[Tree, Array]:
        weight = check_in["samples"] if counts_rows else check_in.get("weight", xp.int32(1))
        factor = step / xp.maximum(weight.astype(xp.float32), xp.float32(1)) if alone else step
        return trees.map(lambda own: own.astype(xp.float32) * factor, check_in[sound.sends]), weight

    pulls = sound.sends == "gradient" and not (isinstance(strength, float) and strength == 0.0)
    pull = (lambda parameters: parts.model.regulariser(parameters, strength)) if pulls else None
    return GridReader(scale=scale, pull=pull, alone=alone, xp=xp)


def _alone(vector: Tree, xp: Array) -> tuple[Tree, Array]:
    """Make one example of a whole message."""
    return trees.map(lambda leaf: leaf[None], vector), xp.ones((1,), dtype=xp.float32)


def _on_grid(parts: Parts, vectors: Tree, marks: Array, coins: Coins) -> Array:
    """Clip, round and check each of several vectors, and sum those that are marked."""
    xp, grid = parts.ops.xp, _sound(parts).update.grid
    levels = to_levels(grid, _flat(vectors, len(marks), xp), parts.ops)
    # Padding is zeroed before it is rounded: a row of zeros is never too long.
    levels = xp.where(marks[:, None] > 0, levels, xp.float32(0))
    k = round_checked(grid, levels, cast(GridCoins, coins), "grid", parts.ops)
    return xp.sum(k, axis=0, dtype=xp.int32)


def _flat(tree: Tree, count: int, xp: Array) -> Array:
    return xp.concatenate([leaf.reshape(count, -1) for leaf in trees.leaves(tree)], axis=1)


def _sound(parts: Parts) -> Sound:
    assert parts.plan.sound is not None  # noqa: S101  recipes ask for it before they come here
    return parts.plan.sound
