"""Learned averaging (ODPFL): weights per layer and device, trained by the server on public rows in every version.

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

from typing import Literal

from pydantic import Field

from crowdml.algorithms.minimising import minimise
from crowdml.algorithms.public import Public, layer_spans
from crowdml.algorithms.weighing.contract import Average, Weigh, capped, of_changes, of_models
from crowdml.algorithms.weighing.inverse_variance import inverse_variance
from crowdml.core import Array, Ops, Settings, record


class LearnedSettings(Settings):
    """How weights are learnt."""

    variant: Literal["softmax", "constrained", "unconstrained"] = Field(
        "softmax",
        description="what keeps the weights together; constrained is the paper's, unconstrained what it set out from",
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
    spans, xp, average = layer_spans(public.model), ops.xp, average_of(settings)
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
        judging.losses(parameters + average(own, updates, parameters, spans, ops)) for own in (present, weights)
    )
    gain = before - after
    return xp.mean(gain) > xp.std(gain) / xp.sqrt(xp.float32(len(gain)))
