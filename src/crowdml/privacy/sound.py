"""Sound mode: bound, noise law and cost of a release in one frozen record, for integers on a grid.

ε is a *total*: over all releases a sample may enter (`max-uses`, unit sample) or a device may make (`max-releases`,
unit device), statistics included. `calibration` finds the noise.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from crowdml.core import record
from crowdml.privacy.accounting import Event, Filter
from crowdml.privacy.grid import Grid
from crowdml.privacy.mechanisms import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE, NoiseLaw, Shared

SOUND_LAWS: dict[str, NoiseLaw] = {"laplace": DISCRETE_LAPLACE, "gaussian": DISCRETE_GAUSSIAN}
"""What a mechanism of the task file becomes on the grid."""

Sends = Literal["gradient", "change", "moments"]
"""What a message carries, and its name in the message: a gradient, what local steps have changed, or squares of rows
and rows times labels."""


@record
class Stability:
    """A proof that a message moves less with one sample than its own bound says.

    Attributes:
        moved: Largest change of the message in L2 when one sample is replaced, in real numbers.
        rounding: What double precision may add to that.
        row: L2 norm that no row exceeds: the device sees to it.
        part: Rows behind a step; its mean is taken over so many, also where some are missing.
        steps: Steps in a release at most.
    """

    moved: float
    rounding: float
    row: float
    part: int
    steps: int

    @property
    def bound(self) -> float:
        """Largest change of the message in L2 when one sample is replaced, as a device computes it."""
        return self.moved + self.rounding


@record
class SoundMechanism:
    """Bound, noise and cost of the sums of integers that a device releases.

    Guarantee: neighbours differ in one sample (grid per example) or in any number of rows of one device (grid per
    release), the number of rows being the same. The sum of checked integers changes by at most `grid.sensitivity` in
    the grid's norm (proof: `grid`), independent discrete noise of `scale` is added to every coordinate, so one release
    costs `event`: pure ε = Δ₁/scale for discrete Laplace noise, ρ = Δ₂²/(2 scale²) for discrete Gaussian noise. Where
    steps are proven to be stable, one sample changes the message by less, and costs `event_of_sample`.

    Attributes:
        grid: The bound.
        law: The noise law, in the same norm.
        scale: Scale or standard deviation of the noise, in levels; a number with at most four binary places.
        stable: A proof that one sample moves the message by less than its bound; None where there is none.
        shared: Where messages are masked: the noise is a share, and what survivors add together protects each of them.
            None where every message has enough noise of its own.
    """

    grid: Grid
    law: NoiseLaw
    scale: float
    stable: Stability | None = None
    shared: Shared | None = None

    def __post_init__(self) -> None:
        """Refuse a norm mismatch, continuous noise, and scales that are not exact."""
        if self.grid.order != self.law.order or not self.law.integer:
            raise ValueError(f"{self.law.name} noise does not fit a grid of order {self.grid.order}")
        if Fraction(self.scale).denominator > 16 or self.scale <= 0:
            raise ValueError(f"{self.scale} is not an exact scale")

    @property
    def event(self) -> Event:
        """Cost of one release; floating point is rounded up."""
        if self.shared:
            return self.shared.event(self.grid.sensitivity_squared, self.grid.size, self.scale)
        scale = Fraction(self.scale)
        if self.law.pure:
            return Event.of_pure(_up(Fraction(2 * self.grid.limit) / scale))
        return Event(pure=math.inf, rho=_up(Fraction(self.grid.sensitivity_squared) / (2 * scale**2)))

    @property
    def event_of_sample(self) -> Event:
        """Cost of one release where one sample is replaced."""
        if self.stable is None:
            return self.event
        moved = sample_sensitivity(self.grid, self.stable)
        if self.shared:
            # The change is a vector of integers, so its squared length is a whole number.
            return self.shared.event(math.floor(Fraction(moved) ** 2), self.grid.size, self.scale)
        return Event(pure=math.inf, rho=_up(Fraction(moved) ** 2 / (2 * Fraction(self.scale) ** 2)))


@record
class SoundStatistics:
    """Discrete Laplace noise on the error count and the label counts of one release.

    Guarantee: one sample changes the error count by 1 and the label counts by 2 in L1; a device with `rows` rows in a
    release by `rows` and `2·rows`. Independent noise, so the costs add up.

    Attributes:
        error_scale: Scale on the error count.
        label_scale: Scale on each label count.
        rows: Rows that may change at once.
    """

    error_scale: float
    label_scale: float
    rows: int

    @property
    def event(self) -> Event:
        """Cost of both counts in one release."""
        return self.event_of(self.rows)

    def event_of(self, rows: int) -> Event:
        """Cost of both counts where so many rows change at once."""
        errors, labels = Fraction(rows) / Fraction(self.error_scale), Fraction(2 * rows) / Fraction(self.label_scale)
        return Event.of_pure(_up(errors)).plus(Event.of_pure(_up(labels)))


@record
class SharedStatistics:
    """Shares of noise on the error count and the label counts of a masked sum.

    Guarantee: one sample changes the error count by 1 and two label counts by 1 each, so the vector of all counts by
    √3 in L2; a device with `rows` rows in a release by at most `rows` times that.

    Attributes:
        scale: Standard deviation of each share.
        classes: Number of label counts.
        rows: Rows that may change at once.
        shared: Law and least number of shares.
    """

    scale: float
    classes: int
    rows: int
    shared: Shared

    @property
    def error_scale(self) -> float:
        """Scale on the error count."""
        return self.scale

    @property
    def label_scale(self) -> float:
        """Scale on each label count."""
        return self.scale

    @property
    def event(self) -> Event:
        """Cost of all counts in one release."""
        return self.event_of(self.rows)

    def event_of(self, rows: int) -> Event:
        """Cost of all counts where so many rows change at once."""
        return self.shared.event(3 * rows**2, self.classes + 1, self.scale)


@record
class Sound:
    """Everything a device releases in sound mode, and what enforces the promise.

    Attributes:
        update: Bound and noise of the gradient or the change.
        statistics: Noise of the counts; None where they are not sent.
        filter: Which sum enforces, and its limit.
        unit: What one promise protects.
        uses: Releases a unit may be in: max-uses for samples, max-releases for devices.
        sends: What the update is.
        rows: Rows behind a release at most; None where a device sends as many as it has.
        share: Part of ε that goes to the counts, the same whatever ε an owner chooses.
        owner_range: Smallest and largest ε that an owner may choose.
        opening: Bound and noise of the first release, where that is another.
        opening_uses: Uses that it counts for.
    """

    update: SoundMechanism
    statistics: SoundStatistics | SharedStatistics | None
    filter: Filter
    unit: Literal["sample", "device"]
    uses: int
    sends: Sends = "gradient"
    rows: int | None = 1
    share: float = 0.0
    owner_range: tuple[float, float]
    opening: SoundMechanism | None = None
    opening_uses: int = 1

    def __post_init__(self) -> None:
        """Check the promise with the sums that the ledger will use."""
        if not self.filter.covers(self.event.times(self.uses)):
            raise ValueError(f"{self.uses} releases cost more than ε = {self.filter.epsilon}")
        if self.opening:
            first, counted = self.opening.event, self.event.times(self.opening_uses)
            if first.pure > counted.pure or first.rho > counted.rho or first.whole != counted.whole:
                raise ValueError(f"the first release costs more than the {self.opening_uses} uses that it counts for")

    @property
    def releases(self) -> int:
        """Releases that a unit may enter: all uses, where the first does not count for several."""
        return self.uses - self.opening_uses + 1

    def after(self, releases: int) -> Event:
        """What is charged for so many releases, the first of them included."""
        return self.event.times(releases + self.opening_uses - 1 if releases else 0)

    @property
    def event(self) -> Event:
        """Cost of one release for the promised unit, where it is in it."""
        return self.of_sample if self.unit == "sample" else self.of_device(self.rows or 1)

    @property
    def of_sample(self) -> Event:
        """Cost of one release for a sample that is in it, whatever unit was promised something."""
        update = self.update.event_of_sample
        return update.plus(self.statistics.event_of(1)) if self.statistics else update

    def of_device(self, rows: int) -> Event:
        """Cost of one release for a device with so many rows in it.

        A release that is bounded as a whole changes no more for all rows than for one; a sum of bounded examples
        changes in all of them.
        """
        if self.update.grid.per == "example":
            return self.of_sample.grouped(rows)
        return self.update.event.plus(self.statistics.event_of(rows)) if self.statistics else self.update.event


def sample_sensitivity(grid: Grid, stable: Stability | None) -> float:
    """Return the largest change of a message, in levels, when one sample is replaced, rounded up."""
    if stable is None:
        return grid.sensitivity
    # Clipping is the projection onto a ball, so it moves nothing apart; its own arithmetic is off by less than d + 8
    # units of 2⁻⁵³ of the radius, on either side. Rounding on a fine grid adds √d at most.
    clipping = 2 * (grid.size + 8) * 2.0**-53 * grid.levels
    moved = stable.bound / grid.step + clipping + math.sqrt(grid.size)
    return min(grid.sensitivity, moved * (1 + 1e-9))


def _up(value: Fraction) -> float:
    found = float(value)
    return found if Fraction(found) >= value else math.nextafter(found, math.inf)
