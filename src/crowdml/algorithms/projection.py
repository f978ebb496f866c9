"""Projection onto a ball around zero (Crowd-ML 2015, equation 3)."""

from __future__ import annotations

from crowdml.core import Array, Ops, trees
from crowdml.core.ops import Tree


def onto_ball(parameters: Tree, radius: Array, ops: Ops) -> Tree:
    """Shrink parameters whose norm exceeds the radius; leave others as they are."""
    norm = ops.xp.sqrt(trees.squared_norm(parameters, ops))
    # The floor keeps zero from dividing, and is large enough for any radius not to overflow.
    factor = ops.xp.minimum(ops.xp.float32(1), radius / ops.xp.maximum(norm, ops.xp.float32(1e-18)))
    return trees.map(lambda leaf: leaf * factor, parameters)
