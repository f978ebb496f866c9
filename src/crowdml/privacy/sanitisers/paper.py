"""Mode `paper`: noise on a mean of bounded gradients, on rows and labels themselves, or inside every local step."""

from __future__ import annotations

from typing import Any

from crowdml.core import Array, BadInput, Coins, Release, record
from crowdml.core.ops import Tree
from crowdml.core.targets import Number
from crowdml.privacy.accounting import Terms
from crowdml.privacy.calibration.private_steps import PrivateSteps
from crowdml.privacy.cost import Cost, Pure
from crowdml.privacy.noise.laws import Mechanism, add_noise, clip_weights
from crowdml.privacy.sanitisers.base import Use
from crowdml.privacy.sanitisers.floats import SIMULATED, Floats
from crowdml.privacy.sanitisers.local_work import ExampleGradients, LocalWork, Walk
from crowdml.privacy.sanitisers.walks import ByChance


@record
class Paper(Floats):
    """Mode `paper`: every example bounded (by the model, or clipped), noise for the mean that keeps ε per release.

    Guarantee: replace-one on samples. Replacing one of n examples changes the mean by at most 2·radius/n in the bound's
    norm; noise of scale `noise/n` then costs `mechanism.cost`, once per release that the example enters.
    """

    mechanism: Mechanism

    bounds_rows = True

    def cost(self, uses: int, rows: int | None = None) -> Cost | None:
        """Add up what mean and counts cost: replacing all rows changes the mean in all its places at once."""
        each = self.mechanism.cost
        if self.counts:
            each = each.plus(Cost.of(Pure(epsilon=self.counts.event().pure)))
        return each.times(uses).grouped(rows or 1)

    def words(self, terms: Terms) -> str:
        """Say what the paper claims."""
        return claimed(terms, "for each release")

    def summary(self, releases: int, batch: int) -> dict[str, Any]:
        """Say how much noise a number gets, and where the bound comes from."""
        bound, law, noise = self.mechanism.bound, self.mechanism.law, self.mechanism.noise
        if among := self.bound_to.among if self.bound_to else None:
            told = (
                f"{law.name} of scale {noise:.3g} on each number of a sum, in equal parts from {among:g} devices; one "
                f"sample is said to move it by {2 * bound.radius:.3g} in L2"
            )
        else:
            told = (
                f"{law.name} of scale {noise / batch:.3g} on each coordinate of a mean of {batch} rows; one gradient "
                f"is at most {bound.radius:.3g} in L{bound.order}, "
                f"{'by clipping' if bound.clipped else 'by the model and the norm of a row'}"
            )
        return {"noise": told, "guarantee": f"replace-one; {SIMULATED}"}

    def deviation_of(self, batch: int) -> float | None:
        """Follow from the scale, where the law is one of single numbers."""
        law = self.mechanism.law
        if law.deviation is None or law.whole or (self.bound_to and self.bound_to.among):
            return None
        return law.deviation(1) * self.mechanism.noise / batch

    @property
    def scales(self) -> dict[str, float]:
        """The scale for a sum of contributions."""
        return {"noise": self.mechanism.noise}

    def clipping(self, found: ExampleGradients) -> Array:
        """Shorten what is longer than the radius, where the model itself does not bound it."""
        ops, bound = self.use.ops, self.mechanism.bound
        if not bound.clipped:
            return ops.xp.float32(1)
        return clip_weights(found.norms(bound.order, ops), bound.radius, ops)

    def walk(self, work: LocalWork) -> Walk:
        """Refuse: what steps change is no mean of bounded gradients."""
        raise BadInput(
            "a change after local steps has no proven bound, so no ε can be claimed for it",
            where="privacy.epsilon",
            hint='mode = "sound", unit = "device" bounds the whole change of a device (user-level DP-FedAvg); in paper '
            'mode give noise-scale instead, or noise-at = "steps" (DP-SGD), or send gradients: kind = "fedsgd"',
        )

    def scale_of(self, release: Release) -> Array:
        """Scale of the noise on a mean over the release's rows, or on one of several messages that are added up."""
        xp = self.use.ops.xp
        if self.use.among:
            return self.use.scales["noise"] / self.use.among**0.5
        return self.use.scales["noise"] / xp.maximum(release.rows, 1).astype(xp.float32)

    def perturbed(self, release: Release, memory: Tree, coins: Coins) -> tuple[Tree, Tree]:
        """Add noise in proportion to bound over number."""
        return add_noise(self.mechanism.law, release.update, self.scale_of(release), coins, self.use.stage), memory

    def describe(self) -> dict[str, str]:
        """Say bound and law."""
        bound, law = self.mechanism.bound, self.mechanism.law.name
        said = f"one example at most {bound.radius:.3g} in L{bound.order}; {law} noise, simulated"
        if self.bound_to and self.bound_to.among:
            said = f"made of a local model with {law} noise, simulated"
        return {"update": said} | (self.counts.describe() if self.counts else {})


@record
class PerturbedInputs(Floats):
    """Noise on rows and labels themselves (Crowd-ML 2015, equations 15 and 16); what is made of them is free.

    Attributes:
        row_scale: Scale of the Laplace noise on each feature.
        keep: Probability that a label stays as it is; otherwise it becomes any other, each as likely.
        epsilon: What a sample costs, however often the server uses it afterwards.
    """

    row_scale: float
    keep: float
    epsilon: float

    once = True

    def cost(self, uses: int, rows: int | None = None) -> Cost | None:
        """Rows are sent once, however often they are used."""
        return Cost.of(Pure(epsilon=self.epsilon)).grouped(rows or 1)

    def words(self, terms: Terms) -> str:
        """Say what the paper claims."""
        return claimed(terms, "once for the whole task, since rows are sent once")

    def summary(self, releases: int, batch: int) -> dict[str, Any]:
        """Say what happens to rows and labels."""
        return {
            "noise": f"laplace of scale {self.row_scale:.3g} on each feature; a label is kept with {self.keep:.0%}",
            "guarantee": f"replace-one; {SIMULATED}",
        }

    def bind(self, use: Use) -> PerturbedInputs:
        """Bind; a number is no label that could become another."""
        if isinstance(use.target, Number):
            raise BadInput(
                "the paper perturbs labels, and the target of this task is a number",
                where="data.target",
                hint='labels for ranges of it, mode = "none", or another algorithm',
            )
        return super().bind(use)

    def rows(self, rows: Array, targets: Array, coins: Coins) -> tuple[Array, Array]:
        """Draw the noise of a row; it is the same however often the row is used."""
        xp, classes = self.use.ops.xp, self.use.target.bins
        noisy = rows + coins.laplace("rows", rows.shape[-1:]) * xp.float32(self.row_scale)
        u = coins.uniform("labels", ())
        # What is left of u, once the label is not kept, chooses among the others.
        step = xp.floor((u - self.keep) * ((classes - 1) / (1 - self.keep))).astype(xp.int32)
        other = (targets + 1 + xp.clip(step, 0, classes - 2)) % classes
        return noisy, xp.where(u < self.keep, targets, other).astype(xp.int32)

    def describe(self) -> dict[str, str]:
        """Say what happens to rows and labels."""
        return {
            "rows": f"Laplace noise of scale {self.row_scale:.3g}, labels kept with {self.keep:.0%}",
            "update": "in clear",
        }


@record
class InSteps(Floats):
    """Bound and noise inside every local step (DP-SGD). Nothing is said about the number of rows."""

    steps: PrivateSteps

    bounds_rows = True
    in_order = False
    noise_in_steps = True
    # The number of rows would not be protected.
    weighs_rows = False

    def cost(self, uses: int, rows: int | None = None) -> Cost | None:
        """Add up all steps behind so many releases for one sample; nothing is stated of a whole device."""
        if rows is not None:
            return None
        return Cost.of(self.steps.each, self.steps.steps * uses)

    def require_rows(self, rows: int) -> None:
        """Refuse so few rows that a step of a fixed size would take more of them than is accounted for."""
        step = self.steps.each
        if rows < step.least_rows:
            raise BadInput(
                f"a device has {rows} rows to choose from, of which a step takes {step.batch}: more than "
                f"{step.share:.4g} of them",
                where="privacy.sampling-rate",
                hint=f"at least {step.batch / max(rows, 1):.4g}, or a smaller local-batch",
            )

    def words(self, terms: Terms) -> str:
        """Say what all steps cost together."""
        assert terms.claim is not None  # noqa: S101  calibration states one
        return (
            f"Noise inside local steps, for simulation only: ε = {terms.claim.epsilon:g} and δ = "
            f"{terms.claim.delta:g} for one sample over all {self.steps.steps * self.steps.releases} steps; no owner "
            "is promised anything."
        )

    def summary(self, releases: int, batch: int) -> dict[str, Any]:
        """Say noise, sampling and bound of a step, and how many there were."""
        steps, step, count = self.steps, self.steps.each, self.steps.steps * releases
        by_chance = step.sampling == "poisson"
        taken = f"each row with probability {step.share:.4g}" if by_chance else f"{step.batch} rows"
        return {
            "noise": f"gaussian of {step.multiplier:.4g} sensitivities in each of {count} steps, which take {taken}; "
            f"one gradient is at most {steps.radius:.3g} in L2, clipped "
            f"{'each layer by its share' if steps.by_layer else 'as a whole'}",
            "steps": {
                "multiplier": step.multiplier,
                "sampling": step.sampling,
                "sampling_rate": step.share,
                "count": count,
            },
            "guarantee": f"{steps.adjacency}, one sample; {SIMULATED}",
        }

    @property
    def scales(self) -> dict[str, float]:
        """Noise on each number of a step's sum."""
        return {"noise": self.steps.noise}

    def walk(self, work: LocalWork) -> Walk:
        """Take rows by chance."""
        return ByChance(work=work, steps=self.steps, use=self.use)

    def describe(self) -> dict[str, str]:
        """Say clip and noise of a step."""
        return {
            "update": f"in every step each row's gradient clipped at {self.steps.radius:g}, gaussian noise of "
            f"{self.steps.each.multiplier:.3g} times the sensitivity, simulated"
        }


def claimed(terms: Terms, over: str) -> str:
    """Say what a paper claims, and over what."""
    assert terms.claim is not None  # noqa: S101  calibration states one
    delta = f" and δ = {terms.claim.delta:g}" if terms.claim.delta else ""
    return (
        f"A paper's formula, for simulation only. It claims ε = {terms.claim.epsilon:g}{delta} {over}; no owner is "
        "promised anything."
    )
