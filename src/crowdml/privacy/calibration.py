"""Calibration: the least noise that keeps an ε over all releases of a unit, and the filter that proves it.

Scales are rounded up to few binary places, so that exact samplers and every runtime hold them without rounding. An
owner may choose another ε within the range of the terms: bound, grid and messages stay the same, only the noise is
another, so that nobody else's device and no server has to know.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace

from crowdml.core import BadInput
from crowdml.privacy.accounting import Event, Filter, FilterKind, rho_budget
from crowdml.privacy.grid import Grid
from crowdml.privacy.mechanisms import NoiseLaw, Shared
from crowdml.privacy.sound import (
    SharedStatistics,
    Sound,
    SoundMechanism,
    SoundStatistics,
    Stability,
    sample_sensitivity,
)

LARGEST = 1 << 26
"""Largest scale of noise in levels: with tails of 30 scales the sum still fits into 31 bits."""

LEAST_DEVIATION = 4.0
"""Least standard deviation of Gaussian noise in levels. Only an ε of hundreds would need less. From here on the noise
of a simulation has the law of a device's but for two parts in a million (`simulation.coins`)."""


def calibrate(
    law: NoiseLaw,
    grid: Grid,
    epsilon: float,
    delta: float,
    uses: int,
    statistics: SoundStatistics | None,
    stable: Stability | None = None,
    unit: str = "device",
) -> tuple[SoundMechanism, Filter]:
    """Return the least noise that keeps (ε, δ) over so many uses of a unit, and the filter that proves it."""
    sensitivity = sample_sensitivity(grid, stable) if unit == "sample" else grid.sensitivity
    possible_kinds: dict[FilterKind, bool] = {
        "pure": law.pure,
        "rdp": delta > 0,
        "mixed": delta > 0 and not law.pure and statistics is not None,
    }
    kinds = [kind for kind, given in possible_kinds.items() if given]
    found = [(_scale(sensitivity, kind, epsilon, delta, uses, statistics), kind) for kind in kinds]
    possible = [(scale, kind) for scale, kind in found if scale is not None]
    if not possible:
        raise BadInput(
            "the counts take all of epsilon, as every sum adds up that could enforce it",
            where="privacy.statistics-epsilon",
            hint="make it smaller",
        )
    scale, kind = min(possible)
    scale = scale if law.pure else max(scale, LEAST_DEVIATION)
    require_fit(scale, "privacy.epsilon")
    mechanism = SoundMechanism(grid=grid, law=law, scale=scale, stable=stable)
    return mechanism, Filter(kind=kind, epsilon=epsilon, delta=delta)


def share_statistics(
    shared: Shared, part: float, epsilon: float, delta: float, uses: int, classes: int, rows: int
) -> SharedStatistics:
    """Return the least shares of noise on counts that cost no more than their part of what (ε, δ) allows."""
    budget = part * rho_budget(epsilon, delta)

    def made(steps: int) -> SharedStatistics:
        return SharedStatistics(scale=steps / 16, classes=classes, rows=rows, shared=shared)

    least = math.ceil(16 * math.sqrt(shared.law.least))
    return made(_least(least, lambda steps: made(steps).event.times(uses).rho <= budget, "privacy.statistics-epsilon"))


def _least(low: int, enough: Callable[[int], bool], where: str) -> int:
    """Find the least number of sixteenths, from `low` on, that is enough."""
    low -= 1
    high = low + 1
    while not enough(high):
        low, high = high, 2 * high
        require_fit(high / 16, where)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@functools.lru_cache(maxsize=256)
def calibrate_shared(
    shared: Shared,
    grid: Grid,
    epsilon: float,
    delta: float,
    uses: int,
    stable: Stability | None,
    unit: str,
    statistics: SharedStatistics | None = None,
) -> tuple[SoundMechanism, Filter]:
    """Return the least share of noise with which the sum of the survivors' shares keeps (ε, δ) over so many uses."""
    limit = Filter(kind="rdp", epsilon=epsilon, delta=delta)
    counts = statistics.event if statistics else Event()

    def made(steps: int) -> SoundMechanism:
        return SoundMechanism(grid=grid, law=shared.law.noise, scale=steps / 16, stable=stable, shared=shared)

    def enough(steps: int) -> bool:
        own = made(steps)
        return limit.covers((own.event_of_sample if unit == "sample" else own.event).plus(counts).times(uses))

    return made(_least(math.ceil(16 * math.sqrt(shared.law.least)), enough, "privacy.epsilon")), limit


def split_statistics(epsilon: float, uses: int, rows: int) -> SoundStatistics:
    """Split ε over all uses, and over the two kinds of count by halves, where so many rows may change at once."""
    each = epsilon / uses / 2
    require_fit(2 * rows / each if each else math.inf, "privacy.statistics-epsilon")
    return SoundStatistics(error_scale=exact_scale(rows / each), label_scale=exact_scale(2 * rows / each), rows=rows)


def require_fit(scale: float, where: str) -> None:
    """Refuse noise that does not fit into a message."""
    if scale > LARGEST:
        raise BadInput(
            f"noise of scale {scale:.3g} does not fit into the 32 bits of an integer in a message",
            where=where,
            hint="a larger epsilon, or fewer uses",
        )


def for_owner(sound: Sound, epsilon: float) -> Sound:
    """Return what a device does whose owner has chosen this ε; the counts keep their share of it."""
    low, high = sound.owner_range
    if not low <= epsilon <= high:
        raise BadInput(
            f"ε = {epsilon:g} is not between {low:g} and {high:g}",
            where="privacy.owner-range",
            hint="owners choose within this range",
        )
    if sound.update.shared or sound.opening or sound.sends == "moments":
        # Everybody's noise protects everybody: there is one ε for all, and the range has no other.
        return sound
    counts = sound.statistics
    assert not isinstance(counts, SharedStatistics)  # noqa: S101  counts are shared where the update is
    statistics = split_statistics(sound.share * epsilon, sound.uses, counts.rows) if counts else None
    own, delta = sound.update, sound.filter.delta
    update, filter_ = calibrate(own.law, own.grid, epsilon, delta, sound.uses, statistics, own.stable, sound.unit)
    return replace(sound, update=update, statistics=statistics, filter=filter_)


def exact_scale(least: float) -> float:
    """Round a scale up to a sixteenth, or to a whole number from 500 on.

    >>> exact_scale(3.01), exact_scale(1000.2)
    (3.0625, 1001.0)
    """
    least *= 1 + 1e-12
    return math.ceil(least * 16) / 16 if least < 500 else float(math.ceil(least))


def _scale(
    sensitivity: float, kind: FilterKind, epsilon: float, delta: float, uses: int, statistics: SoundStatistics | None
) -> float | None:
    """Return the scale that one filter needs; None where statistics leave nothing."""
    counts = statistics.event if statistics else Event()
    if kind == "pure":
        left = epsilon / uses - counts.pure
        return exact_scale(sensitivity / left) if left > 0 else None
    if kind == "mixed":
        remains = epsilon - counts.pure * uses
        left = rho_budget(remains, delta) / uses if remains > 0 else 0.0
    else:
        left = rho_budget(epsilon, delta) / uses - counts.rho
    if left <= 0:
        return None
    return exact_scale(sensitivity / math.sqrt(2 * left))
