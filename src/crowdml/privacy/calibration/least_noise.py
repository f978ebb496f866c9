"""The least noise on integers that keeps an ε over all releases of a unit, and the filter that proves it.

Scales are rounded up to few binary places, so that exact samplers and every runtime hold them without rounding.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TypeVar

from crowdml.core import BadInput, record
from crowdml.privacy.accounting import Event, Filter, FilterKind
from crowdml.privacy.gaussian import gaussian_budget
from crowdml.privacy.noise.counts import CountNoise
from crowdml.privacy.noise.grid import Grid, GridMechanism, Stability, sample_sensitivity
from crowdml.privacy.noise.laws import LAWS, ROUNDED_GAUSSIAN, NoiseLaw
from crowdml.privacy.noise.shares import Shared
from crowdml.privacy.renyi import rho_budget

LARGEST = 1 << 26
"""Largest scale of noise in levels: with tails of 30 scales the sum still fits into 31 bits."""

Made = TypeVar("Made")
Calibrated = tuple[GridMechanism, CountNoise | None, Filter]
"""Noise on the update, noise on counts where they are sent, and the filter that proves it."""


@record
class Wanted:
    """What noise has to keep.

    Attributes:
        epsilon: ε over all uses, counts included.
        delta: δ.
        uses: Releases that a unit may be in.
        unit: What one promise protects.
        rows: Rows of a release that change with the unit.
        statistics: Part of ε that goes to counts; 0 where they are not sent.
        label_share: Part of that which goes to label counts.
    """

    epsilon: float
    delta: float
    uses: int
    unit: str = "device"
    rows: int = 1
    statistics: float = 0.0
    label_share: float = 0.5

    def kept_by(self, limit: Filter, counts: Event) -> Callable[[GridMechanism], bool]:
        """Return a function that tells whether noise on the update is enough beside what counts cost."""

        def enough(mechanism: GridMechanism) -> bool:
            event = mechanism.event_of_sample if self.unit == "sample" else mechanism.event
            return limit.covers(event.plus(counts).times(self.uses))

        return enough


def calibrate(law: NoiseLaw, grid: Grid, stable: Stability | None, wanted: Wanted) -> Calibrated:
    """Return the least noise of a device's own that keeps what is wanted.

    Args:
        law: The law of the noise.
        grid: The bound.
        stable: A proof that one sample moves a message by less than its bound; None where there is none.
        wanted: What it has to keep.
    """
    split = split_counts(wanted) if wanted.statistics else None
    counts = split.event(wanted.rows) if split else Event()
    sensitivity = sample_sensitivity(grid, stable) if wanted.unit == "sample" else grid.sensitivity
    possible: dict[FilterKind, bool] = {
        "pure": law.pure,
        "rdp": wanted.delta > 0,
        "mixed": wanted.delta > 0 and not law.pure and split is not None,
        "gaussian": wanted.delta > 0 and law.gaussian,
    }
    scale, kind = min((_scale(sensitivity, kind, wanted, counts), kind) for kind, given in possible.items() if given)
    if math.isinf(scale):
        raise BadInput(
            "the counts take all of epsilon, as every sum adds up that could enforce it",
            where="privacy.statistics-epsilon",
            hint="make it smaller",
        )
    scale = max(scale, law.least_scale)
    require_fit(scale, "privacy.epsilon")
    limit = Filter(kind=kind, epsilon=wanted.epsilon, delta=wanted.delta)
    enough = wanted.kept_by(limit, counts)

    def made(scale: float) -> GridMechanism:
        return GridMechanism(grid=grid, law=law, scale=_whole_from_500(scale), stable=stable)

    mechanism = made(scale)
    if not enough(mechanism):
        # A law whose releases cost more than those of Laplace and Gaussian noise of this scale: ask the law itself.
        mechanism = _least(made, enough, scale, "privacy.epsilon")
    return mechanism, split, limit


@functools.lru_cache(maxsize=256)
def calibrate_shared(
    shared: Shared, grid: Grid, stable: Stability | None, wanted: Wanted, classes: int = 2
) -> Calibrated:
    """Return the least share of noise with which the sum of the survivors' shares keeps what is wanted.

    Counts cost no more than their part of what (ε, δ) allows.
    """
    counts = None
    if wanted.statistics:
        budget = wanted.statistics / wanted.epsilon * rho_budget(wanted.epsilon, wanted.delta)
        counts = _least(
            lambda scale: CountNoise(
                errors=scale, spread=scale, law=LAWS[shared.law.name], shared=shared, classes=classes
            ),
            lambda made: made.event(wanted.rows).times(wanted.uses).rho <= budget,
            shared.least_scale,
            "privacy.statistics-epsilon",
        )
        _require_drawn(shared, counts.errors)
    limit = Filter(kind="rdp", epsilon=wanted.epsilon, delta=wanted.delta)
    enough = wanted.kept_by(limit, counts.event(wanted.rows) if counts else Event())
    return _least_share(shared, grid, stable, enough), counts, limit


@functools.lru_cache(maxsize=256)
def noise_for(grid: Grid, rho: float, shared: Shared | None) -> GridMechanism:
    """Return the least Gaussian noise with which one release costs at most ρ: a share, or rounded."""
    if shared:
        return _least_share(shared, grid, None, lambda made: made.event.rho <= rho)
    scale = exact_scale(grid.sensitivity / math.sqrt(2 * rho))
    require_fit(scale, "privacy.epsilon")
    return GridMechanism(grid=grid, law=ROUNDED_GAUSSIAN, scale=scale)


def _least_share(
    shared: Shared, grid: Grid, stable: Stability | None, enough: Callable[[GridMechanism], bool]
) -> GridMechanism:
    def made(scale: float) -> GridMechanism:
        return GridMechanism(grid=grid, law=LAWS[shared.law.name], scale=scale, stable=stable, shared=shared)

    found = _least(made, enough, shared.least_scale, "privacy.epsilon")
    _require_drawn(shared, found.scale)
    return found


def _require_drawn(shared: Shared, scale: float) -> None:
    """Refuse a share of noise that no device could draw."""
    if scale > shared.law.largest:
        raise BadInput(
            f"a share of {shared.law.name} noise of scale {scale:.3g} is beyond the {shared.law.largest:.3g} that its "
            "exact sampler draws",
            where="secure-aggregation.law",
            hint='law = "discrete-gaussian" has no such bound; or a larger epsilon, or fewer uses',
        )


def _least(made: Callable[[float], Made], enough: Callable[[Made], bool], first: float, where: str) -> Made:
    """Make the least noise that is enough; its scale is a number of sixteenths, from the first on."""
    high = math.ceil(16 * first)
    low = high - 1
    while not enough(made(high / 16)):
        low, high = high, 2 * high
        require_fit(high / 16, where)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(made(middle / 16)) else (middle, high)
    return made(high / 16)


def split_counts(wanted: Wanted) -> CountNoise:
    """Split the counts' ε over all uses, and over the two kinds of count, where so many rows may change at once."""
    each, rows = wanted.statistics / wanted.uses, wanted.rows
    of_labels = each * wanted.label_share
    of_errors = each - of_labels
    smaller = min(of_labels, of_errors)
    require_fit(2 * rows / smaller if smaller else math.inf, "privacy.statistics-epsilon")
    return CountNoise(errors=exact_scale(rows / of_errors), spread=exact_scale(2 * rows / of_labels))


def require_fit(scale: float, where: str) -> None:
    """Refuse noise that does not fit into a message."""
    if scale > LARGEST:
        raise BadInput(
            f"noise of scale {scale:.3g} does not fit into the 32 bits of an integer in a message",
            where=where,
            hint="a larger epsilon, or fewer uses",
        )


def exact_scale(least: float) -> float:
    """Round a scale up to a sixteenth, or to a whole number from 500 on.

    >>> exact_scale(3.01), exact_scale(1000.2)
    (3.0625, 1001.0)
    """
    return _whole_from_500(least * (1 + 1e-12))


def _whole_from_500(least: float) -> float:
    return math.ceil(least * 16) / 16 if least < 500 else float(math.ceil(least))


def _scale(sensitivity: float, kind: FilterKind, wanted: Wanted, counts: Event) -> float:
    """Return the scale that one filter needs; infinite where counts leave nothing."""
    epsilon, delta, uses = wanted.epsilon, wanted.delta, wanted.uses
    if kind == "pure":
        left = epsilon / uses - counts.pure
        return exact_scale(sensitivity / left) if left > 0 else math.inf
    if kind in ("mixed", "gaussian"):
        remains, budget = epsilon - counts.pure * uses, rho_budget if kind == "mixed" else gaussian_budget
        left = budget(remains, delta) / uses if remains > 0 else 0.0
    else:
        left = rho_budget(epsilon, delta) / uses - counts.rho
    return exact_scale(sensitivity / math.sqrt(2 * left)) if left > 0 else math.inf
