"""Weights of an average: how much each check-in of a version counts, layer by layer.

Weights have the shape (layers, check-ins) and add up to 1 in every layer, except in the paper's unconstrained variant.
Where a check-in is missing its weight is 0.

Inverse variance: a check-in counts by how little it scatters, as the other check-ins tell. The least noisy mean weighs
by 1/σ². Nobody has to say what its σ is: the squared distance of a check-in from the mean of the others is σ² plus what
all of them share. Distance from the mean m with weight v in it is (1 - v) times the distance from the mean of the
others, so one pass over the check-ins gives all of them.

Learned averaging (ODPFL): weights per layer and device, trained by the server on public rows in every version.

A device c has W_c = w + U_c after its change U_c of the present parameters w. The model after the average has in layer
i the parameters Σ_c v_ic W_ic, so the gradient of the public loss with respect to v_ic is the inner product of its
gradient in layer i with W_ic: nothing but the model's own backward is needed. Where weights add up to 1 this is
w_i + Σ_c v_ic U_ic, and w_i drops out of the gradient.

softmax        v = softmax(θ), held near its beginning b by anchor·KL(v ‖ b): the default
constrained    v = x / Σx, as in the paper
unconstrained  v = x, as in what the paper set out from: whole models may shrink and grow

The paper's two begin at the prior (sizes, or all alike), and so does softmax, unless inverse-variance weights are
better: then noise that differs from device to device has not to be learnt again in every version. Those were taught
by nobody, so all public rows may judge them. Then half of the rows teach, and the other half judges what was learnt
against where it began (the gate). Better means a loss that is lower by more than its standard error. No weight is more
than `cap` times its prior.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field

from crowdml.algorithms.aggregation.public_rows import Per, Public, layer_spans, minimise
from crowdml.core import Array, Ops, Settings, record

By = Literal["equal", "size", "inverse-variance", "learned"]
"""How an average weighs: all alike, by rows, by how little a check-in scatters, or as public rows have taught."""

Weigh = Callable[[Array, Array, Array], tuple[Array, Array]]
"""`weigh(updates, prior, parameters)`: weights, and 1 where they were used, 0 where the prior was better."""


Average = Callable[[Array, Array, Array, Sequence[slice], Ops], Array]
"""`average(weights, updates, parameters, spans, ops)`: what is added to the parameters."""


def of_changes(weights: Array, updates: Array, parameters: Array, spans: Sequence[slice], ops: Ops) -> Array:
    """Return what an average of changes U adds to the parameters: Σ_c v_ic U_ic in layer i."""
    parts = [ops.dot(shares[None], updates[:, span])[0] for shares, span in zip(weights, spans, strict=True)]
    return ops.xp.concatenate(parts)


def of_models(weights: Array, updates: Array, parameters: Array, spans: Sequence[slice], ops: Ops) -> Array:
    """Return what an average of devices' models adds to the parameters w: Σ_c v_ic (w_i + U_ic) - w_i in layer i.

    Where the weights of a layer add up to 1 that is the average of changes.
    """
    excess = [(ops.xp.sum(shares) - 1) * parameters[span] for shares, span in zip(weights, spans, strict=True)]
    return of_changes(weights, updates, parameters, spans, ops) + ops.xp.concatenate(excess)


def capped(weights: Array, prior: Array, cap: float, ops: Ops) -> Array:
    """Let no weight be more than `cap` times its prior; what is cut off goes to the others in proportion."""
    xp = ops.xp
    most = xp.float32(cap) * prior

    def step(shares: Array, _: Array) -> Array:
        cut = xp.minimum(shares, most)
        room = xp.where(cut < most, cut, xp.float32(0))
        missing = 1 - xp.sum(cut, axis=-1, keepdims=True)
        share = xp.sum(room, axis=-1, keepdims=True)
        return cut + room * xp.where(share > 0, missing / xp.where(share > 0, share, xp.float32(1)), xp.float32(0))

    return xp.minimum(ops.fold(step, weights, xp.arange(8)), most)


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


class LearnedSettings(Settings):
    """How weights are learnt."""

    variant: Literal["softmax", "constrained", "unconstrained"] = Field(
        "softmax",
        description="what keeps the weights together; constrained is the paper's, unconstrained what it set out from",
    )
    per: Per = Field(
        "layer", description="what has a weight of its own: each layer, or each of its arrays, as in the paper"
    )
    steps: int = Field(50, gt=0, description="Adam's steps in every version")
    rate: float = Field(0.05, gt=0, description="Adam's rate")
    anchor: float = Field(0.3, ge=0, description="how much softmax weights are held near the prior, times KL")
    cap: float = Field(3.0, gt=1, description="no weight is more than so many times its prior")
    gate: bool = Field(True, description="use weights only if rows that did not teach them find them better")


@record
class _Variant:
    """What learns, and how weights come of it."""

    settings: LearnedSettings
    prior: Array
    begin: Array
    ops: Ops

    def start(self) -> Array:
        xp = self.ops.xp
        return xp.log(xp.maximum(self.begin, xp.float32(1e-30))) if self.settings.variant == "softmax" else self.begin

    def weights(self, learnt: Array) -> Array:
        xp, present = self.ops.xp, self.prior > 0
        if self.settings.variant == "softmax":
            grown = xp.where(present, xp.exp(learnt - xp.max(learnt, axis=1, keepdims=True)), xp.float32(0))
            return grown / xp.sum(grown, axis=1, keepdims=True)
        kept = xp.where(present, learnt, xp.float32(0))
        return kept / self._total(kept) if self.settings.variant == "constrained" else kept

    def slope(self, learnt: Array, slope: Array, common: Array) -> Array:
        """Turn a gradient with respect to weights into one with respect to what learns.

        Args:
            learnt: What learns.
            slope: By layer and device, the inner product of the loss's gradient with the device's change.
            common: By layer, that with the present parameters, which every device's model has in it.
        """
        xp, weights = self.ops.xp, self.weights(learnt)
        if self.settings.variant == "unconstrained":
            return xp.where(self.prior > 0, slope + common[:, None], xp.float32(0))
        if self.settings.variant == "softmax":
            here = (weights > 0) & (self.begin > 0)
            ratio = xp.where(here, weights, xp.float32(1)) / xp.where(here, self.begin, xp.float32(1))
            slope = slope + xp.float32(self.settings.anchor) * xp.log(ratio)
        centred = slope - xp.sum(weights * slope, axis=1, keepdims=True)
        if self.settings.variant == "softmax":
            return weights * centred
        return xp.where(self.prior > 0, centred, xp.float32(0)) / self._total(learnt)

    def _total(self, numbers: Array) -> Array:
        xp = self.ops.xp
        total = xp.sum(numbers, axis=1, keepdims=True)
        return xp.where(xp.abs(total) > 1e-3, total, xp.float32(1e-3))

    def limited(self, weights: Array) -> Array:
        """Keep weights below the cap."""
        xp = self.ops.xp
        if self.settings.variant == "unconstrained":
            most = xp.float32(self.settings.cap) * self.prior
            return xp.clip(weights, -most, most)
        return capped(xp.maximum(weights, xp.float32(0)), self.prior, self.settings.cap, self.ops)


def average_of(settings: LearnedSettings) -> Average:
    """Return what is averaged: changes where weights add up to 1, and whole models where nothing makes them."""
    return of_models if settings.variant == "unconstrained" else of_changes


def learned(settings: LearnedSettings, public: Public, ops: Ops) -> Weigh:
    """Make the function that weighs."""
    spans, xp, average = layer_spans(public.model, settings.per), ops.xp, average_of(settings)
    teaching, judging = public.halves()

    quiet = inverse_variance(len(spans), ops)

    def begin(common: Array, updates: Array, parameters: Array) -> tuple[Array, Array]:
        if settings.variant != "softmax":
            return common, xp.bool_(False)
        scattered = capped(quiet(updates, common[0], parameters)[0], common[0], settings.cap, ops)
        better = judged(public, parameters, updates, common, scattered, spans, average)
        return xp.where(better, scattered, common), better

    def weigh(updates: Array, prior: Array, parameters: Array) -> tuple[Array, Array]:
        common = xp.broadcast_to(prior, (len(spans), len(prior)))
        begun, quieter = begin(common, updates, parameters)
        variant = _Variant(settings=settings, prior=prior, begin=begun, ops=ops)

        def slope(learnt: Array) -> Array:
            at = parameters + average(variant.weights(learnt), updates, parameters, spans, ops)
            down = teaching.gradient(at)
            by_weight = [ops.dot(updates[:, span], down[span][:, None])[:, 0] for span in spans]
            common = [xp.sum(parameters[span] * down[span]) for span in spans]
            return variant.slope(learnt, xp.stack(by_weight), xp.stack(common))

        learnt = minimise(slope, variant.start(), settings.steps, settings.rate, ops)
        weights = variant.limited(variant.weights(learnt))
        if not settings.gate:
            return weights, xp.int32(1)
        better = judged(judging, parameters, updates, begun, weights, spans, average)
        return xp.where(better, weights, begun), (better | quieter).astype(xp.int32)

    return weigh


def judged(
    judging: Public,
    parameters: Array,
    updates: Array,
    present: Array,
    weights: Array,
    spans: tuple[slice, ...],
    average: Average,
) -> Array:
    """Tell whether rows that taught nothing find the loss lower, by more than its standard error."""
    ops, xp = judging.ops, judging.ops.xp
    before, after = (
        judging.losses(parameters + average(chosen, updates, parameters, spans, ops)) for chosen in (present, weights)
    )
    gain = before - after
    return xp.mean(gain) > xp.std(gain) / xp.sqrt(xp.float32(len(gain)))
