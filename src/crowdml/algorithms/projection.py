"""Projection onto a ball around zero (Crowd-ML 2015, equation 3)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from crowdml.core import Array, Ops, trees
from crowdml.core.ops import Tree


def onto_ball(parameters: Tree, radius: Array, ops: Ops) -> Tree:
    """Shrink parameters whose norm exceeds the radius; leave others as they are."""
    norm = ops.xp.sqrt(trees.squared_norm(parameters, ops))
    # The floor keeps zero from dividing, and is large enough for any radius not to overflow.
    factor = ops.xp.minimum(ops.xp.float32(1), radius / ops.xp.maximum(norm, ops.xp.float32(1e-18)))
    return trees.map(lambda leaf: leaf * factor, parameters)


def shrinker(radius: float) -> Callable[[npt.NDArray[np.float32]], None]:
    """Return the same for one vector, in place and without arrays of one number; it changes the same bits.

    Roots and quotients of float32 numbers taken in double precision and rounded once more are the float32 results:
    double precision has more than twice the digits.
    """
    longest = float(np.float32(radius))

    def shrink(vector: npt.NDArray[np.float32]) -> None:
        norm = float(np.float32(math.sqrt(vector.dot(vector))))
        if not norm <= longest:
            np.multiply(vector, np.float32(longest / norm), vector)

    return shrink
