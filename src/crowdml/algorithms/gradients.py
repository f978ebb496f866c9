"""The mean gradient of a batch, bounded and with noise: what most algorithms send.

Whoever asks what leaves a device finds the answer here and in `privacy/mechanisms`: each example's gradient is bounded
(by the model itself, or by clipping), the mean is taken, and noise in proportion to bound over number is added.
"""

from __future__ import annotations

from crowdml.algorithms.contract import Parts
from crowdml.core import Array, Batch, Coins, record, trees
from crowdml.core.ops import Tree
from crowdml.privacy import add_noise, clip_weights


@record
class MeanGradient:
    """A mean gradient before noise.

    Attributes:
        gradient: Mean over the rows that train, plus the regulariser.
        outputs: The model's outputs for all rows, shape (width, size).
        samples: Number of rows that train, float32.
    """

    gradient: Tree
    outputs: Array
    samples: Array


def mean_gradient(parts: Parts, parameters: Tree, batch: Batch, training: Array) -> MeanGradient:
    """Take the mean over the rows marked in `training`, each bounded where the terms ask for clipping."""
    xp, plan = parts.ops.xp, parts.plan
    gradients = parts.model.gradients(parameters, batch)
    samples = xp.sum(training)
    weights = training / xp.maximum(samples, xp.float32(1))
    if plan.gradient and plan.gradient.bound.clipped:
        bound = plan.gradient.bound
        weights = weights * clip_weights(gradients.norms(bound.order, parts.ops), bound.radius, parts.ops)
    # The regulariser depends on public parameters only, so it needs no bound.
    regulariser = parts.model.regulariser(parameters, parts.hyper["regularisation"])
    mean = trees.map(lambda own, common: own + common, gradients.total(weights), regulariser)
    return MeanGradient(gradient=mean, outputs=gradients.outputs, samples=samples)


def sanitise_mean(parts: Parts, gradient: Tree, samples: Array, coins: Coins) -> Tree:
    """Add the noise that the plan asks for to a mean over `samples` rows; none in mode `none`."""
    if parts.plan.given:
        return sanitise_given(parts, gradient, 1.0, coins, "gradient")
    if parts.plan.gradient is None:
        return gradient
    xp = parts.ops.xp
    scale = parts.hyper["noise"] / xp.maximum(samples, 1).astype(xp.float32)
    return add_noise(parts.plan.gradient.law, gradient, scale, coins, "gradient")


def sanitise_given(parts: Parts, update: Tree, factor: Array, coins: Coins, stage: str) -> Tree:
    """Add noise of the given size, times a factor where it changes over a device's messages; none in mode `none`."""
    if parts.plan.given is None:
        return update
    return add_noise(parts.plan.given.law, update, parts.hyper["noise"] * factor, coins, stage)


def sanitise_correlated(parts: Parts, update: Tree, noise: Tree, samples: Array | None) -> Tree:
    """Add noise that was drawn for fresh noise of scale 1: of the given size, or for a mean over `samples` rows."""
    xp, scale = parts.ops.xp, parts.hyper["noise"]
    if parts.plan.gradient:
        scale = scale / xp.maximum(samples, 1).astype(xp.float32)
    return trees.map(lambda leaf, own: leaf + own * scale, update, noise)
