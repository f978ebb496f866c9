"""Inverse variance: a check-in counts by how little it scatters, as the other check-ins tell.

The least noisy mean weighs by 1/σ². Nobody has to say what its σ is: the squared distance of a check-in from the mean
of the others is σ² plus what all of them share. Distance from the mean m with own weight v is (1 - v) times the
distance from the mean of the others, so one pass over the check-ins gives all of them.
"""

from __future__ import annotations

from crowdml.algorithms.weighing.contract import Weigh, capped
from crowdml.core import Array, Ops

STEPS = 5
CAP = 3.0


def inverse_variance(layers: int, ops: Ops) -> Weigh:
    """Make the function that weighs."""
    xp = ops.xp

    def weigh(updates: Array, prior: Array, parameters: Array) -> tuple[Array, Array]:
        def step(weights: Array, _: Array) -> Array:
            mean = ops.dot(weights[None], updates)[0]
            apart = xp.sum((updates - mean) ** 2, axis=1) / (1 - xp.minimum(weights, xp.float32(0.99))) ** 2
            exact = xp.where(prior > 0, 1 / xp.maximum(apart, xp.float32(1e-30)), xp.float32(0))
            exact = exact / xp.max(exact)
            return capped(exact / xp.sum(exact), prior, CAP, ops)

        weights = ops.fold(step, prior, xp.arange(STEPS))
        return xp.broadcast_to(weights, (layers, len(prior))), xp.int32(1)

    return weigh
