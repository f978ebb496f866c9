"""Projection onto a ball around zero (Crowd-ML 2015, equation 3)."""

from __future__ import annotations

from crowdml.core import Array, Ops, trees
from crowdml.core.ops import Tree


def onto_ball(parameters: Tree, radius: Array, ops: Ops) -> Tree:
    """Shrink parameters whose norm exceeds the radius; leave others as they are."""
    norm = ops.xp.sqrt(trees.squared_norm(parameters, ops))
    factor = radius / ops.xp.maximum(norm, radius)
    return trees.map(lambda leaf: leaf * factor, parameters)
