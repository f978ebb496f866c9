"""Moments: squares of rows, and rows times labels, summed over everybody. A model's curvature needs them once.

For a row x of length at most 1 the vector is v(x) = (x_i² for all i, √2·x_i·x_j for all i < j) and, where labels are
sent too, y·x behind it, y = ±1.

Distance. ‖v(x) - v(z)‖² = ‖x‖⁴ + ‖z‖⁴ - 2(x·z)² (the Frobenius norm of xx' - zz'), and ‖yx - uz‖² = ‖x‖² + ‖z‖² -
2yu(x·z). With t = |x·z| their sum is at most 2 - 2t² + 2 + 2t ≤ 4.5 (largest at t = ½), the first alone at most 2. That
is less than the square of twice the length, which would be 8, or 4.

Rounding. Every number is rounded to the nearest level, without coins, and the integers' length is checked. Rounding
moves a vector of D numbers by at most √D/2, so two of them come at most √D closer or farther; arithmetic in single
precision by less than a fiftieth of a level per number. With 32,768 levels that is a quarter of a percent.

So replacing one row changes a sum of such vectors by at most √2·L + 1.04·√D levels (or √4.5 instead of √2), and sums
are exact in integers.
"""

from __future__ import annotations

import functools
import math

from crowdml.core import BadInput
from crowdml.privacy.accounting import Filter, rho_budget
from crowdml.privacy.calibration import LEAST_DEVIATION, exact_scale, require_fit
from crowdml.privacy.grid import Grid
from crowdml.privacy.mechanisms import DISCRETE_GAUSSIAN, Shared
from crowdml.privacy.settings import PrivacySettings
from crowdml.privacy.sound import Sends, Sound, SoundMechanism

LEVELS = 1 << 15
SQUARES, WITH_LABELS = 2.0, 4.5
"""Square of the largest distance between two vectors, before rounding."""


def moments_grid(features: int, labels: bool) -> Grid:
    """Return the grid of one row's vector.

    >>> grid = moments_grid(105, False)
    >>> grid.size, round(grid.sensitivity / grid.levels, 3)
    (5565, 1.417)
    """
    size = features * (features + 1) // 2 + (features if labels else 0)
    longest = math.sqrt(2.0) if labels else 1.0
    levels = math.ceil(LEVELS * longest)
    distance = math.sqrt(WITH_LABELS if labels else SQUARES) / longest * levels + 1.04 * math.sqrt(size)
    return Grid(
        order=2,
        size=size,
        radius=longest,
        levels=levels,
        limit=math.ceil((levels + math.sqrt(size)) ** 2),
        per="example",
        apart=math.ceil(distance**2 * (1 + 1e-9)),
    )


def moments_sound(
    terms: PrivacySettings,
    epsilon: float,
    uses: int,
    moments: Grid,
    gradients: Grid | None,
    opening: int,
    shared: Shared | None,
) -> Sound:
    """Split a budget evenly between uses; moments sent first count for several, and gradients for one each.

    So moments can be sent again where a sum was given up: that costs uses as it did before.

    Args:
        terms: The `[privacy]` section.
        epsilon: Its ε.
        uses: Releases that a sample may be in.
        moments: The grid of the moments.
        gradients: The grid of the gradients; None where moments are all that is sent.
        opening: Uses that moments count for where gradients follow.
        shared: Law and least number of shares of noise where releases are masked.
    """
    _require(terms, uses, gradients, opening)
    each = rho_budget(epsilon, terms.delta) * (1 - 1e-9) / uses
    rest = _least_noise(gradients, each, shared) if gradients else None
    first = _least_noise(moments, rest.event.rho * opening if rest else each, shared)
    sends: Sends = "gradient" if rest else "moments"
    return Sound(
        update=rest or first,
        statistics=None,
        filter=Filter(kind="rdp", epsilon=epsilon, delta=terms.delta),
        unit="sample",
        uses=uses,
        sends=sends,
        rows=None,
        owner_range=(epsilon, epsilon),
        opening=first if rest else None,
        opening_uses=opening if rest else 1,
    )


def _require(terms: PrivacySettings, uses: int, gradients: Grid | None, opening: int) -> None:
    if terms.unit != "sample":
        raise BadInput(
            "squares of rows are bounded row by row, so they promise something to samples",
            where="privacy.unit",
            hint='use unit = "sample", or kind = "admm" for devices',
        )
    if terms.mechanism != "gaussian":
        raise BadInput("squares of rows are bounded in L2", where="privacy.mechanism", hint='use "gaussian"')
    if terms.owner_range is not None:
        raise BadInput("there is one ε for all here", where="privacy.owner-range", hint="leave it out")
    if gradients and uses <= opening:
        raise BadInput(
            f"squares count for {opening} use{'s' * (opening > 1)}, and then there is nothing left for gradients",
            where="privacy.max-uses",
            hint=f"at least {opening + 1}, such as {opening + 10}",
        )


@functools.lru_cache(maxsize=256)
def _least_noise(grid: Grid, rho: float, shared: Shared | None) -> SoundMechanism:
    """Return the least noise with which one release costs at most ρ."""
    if shared is None:
        scale = max(exact_scale(grid.sensitivity / math.sqrt(2 * rho)), LEAST_DEVIATION)
        require_fit(scale, "privacy.epsilon")
        return SoundMechanism(grid=grid, law=DISCRETE_GAUSSIAN, scale=scale)

    def made(steps: int) -> SoundMechanism:
        return SoundMechanism(grid=grid, law=shared.law.noise, scale=steps / 16, shared=shared)

    low = math.ceil(16 * math.sqrt(shared.law.least)) - 1
    high = low + 1
    while made(high).event.rho > rho:
        low, high = high, 2 * high
        require_fit(high / 16, "privacy.epsilon")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if made(middle).event.rho <= rho else (middle, high)
    return made(high)
