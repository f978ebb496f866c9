"""Noise on counts: how many rows a model got wrong, and how the targets are spread."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from crowdml.core import Array, Coins, Tally, record
from crowdml.privacy.accounting import Event, round_up
from crowdml.privacy.noise.laws import DISCRETE_LAPLACE, NoiseLaw
from crowdml.privacy.noise.shares import Shared

ERRORS, SPREAD = "errors_noise", "labels_noise"
"""Names of the two scales among a driver's numbers."""


@record
class CountNoise:
    """Discrete noise on the error count and on the spread of targets.

    Guarantee: one sample changes the error count by 1 and the label counts by 2 in L1; a device with n rows in a
    release by n and 2n. Independent discrete Laplace noise, so the costs add up. In secure aggregation each device adds
    a share of noise of one scale: one sample changes the vector of all counts by √3 in L2, a device by n times that.

    Attributes:
        errors: Scale on the error count; 0 where none is added.
        spread: Scale on each number of the spread; 0 where none is added.
        law: The law; in secure aggregation that of a share.
        shared: Law and least number of shares; None where the noise is a device's own.
        classes: Numbers of the spread.
    """

    errors: float = 0.0
    spread: float = 0.0
    law: NoiseLaw = DISCRETE_LAPLACE
    shared: Shared | None = None
    classes: int = 2

    @property
    def scales(self) -> dict[str, float]:
        """Scales by name; a simulation hands in each device's."""
        return {ERRORS: self.errors, SPREAD: self.spread}

    def event(self, rows: int = 1) -> Event:
        """Cost of one release's counts where so many rows change at once, rounded up."""
        if self.shared:
            return self.shared.event(3 * rows**2, self.classes + 1, self.errors)
        errors, spread = Fraction(rows) / Fraction(self.errors), Fraction(2 * rows) / Fraction(self.spread)
        return Event.of_pure(round_up(errors)).plus(Event.of_pure(round_up(spread)))

    @property
    def variance(self) -> float:
        """Variance of the noise on the error count of one release."""
        return self._variance(self.errors)

    @property
    def spread_variance(self) -> float:
        """Variance of the noise on each number of the spread of one release."""
        return self._variance(self.spread)

    def _variance(self, scale: float) -> float:
        if not scale:
            return 0.0
        # Shares are given by their standard deviation.
        return scale**2 if self.shared else laplace_variance(scale)

    def add(self, counts: Tally, given: Mapping[str, Array], coins: Coins) -> Tally:
        """Add the noise; `given` are scales that take the place of these, and may be traced."""
        # A Skellam table is made before anything is compiled, so its scale is never traced.
        given = {} if self.law.static_scale else given

        def noisy(value: Array, stage: str, name: str, scale: float) -> Array:
            return value + self.law.draw(coins, stage, given.get(name, scale), value.shape) if scale else value

        return Tally(
            rows=counts.rows,
            counted=counts.counted,
            errors=noisy(counts.errors, "counts/errors", ERRORS, self.errors),
            spread=noisy(counts.spread, "counts/labels", SPREAD, self.spread),
        )

    def describe(self) -> dict[str, str]:
        """Say of either count what protects it."""
        law = self.law.name.replace("-", " ")

        def said(scale: float) -> str:
            if self.shared:
                return f"a share of {law} noise of scale {self.errors:g}; then masked"
            return f"discrete Laplace noise of scale {scale:g}" if scale else "in clear"

        return {"counts/errors": said(self.errors), "counts/spread": said(self.spread)}


def laplace_variance(scale: float) -> float:
    """Return the variance of discrete Laplace noise, P(k) ∝ exp(-|k|/scale).

    >>> round(laplace_variance(10.0), 1)  # close to that of continuous noise, 2·10²
    199.8
    """
    ratio = math.exp(-1.0 / scale)
    return 2.0 * ratio / (1.0 - ratio) ** 2
