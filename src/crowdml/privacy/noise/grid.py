"""The grid: bounded vectors become integers, and the integers are checked.

A vector of norm at most C is scaled so that C becomes L levels, and every coordinate is rounded up or down at random,
so that its mean stays what it was. Rounding can make a vector longer; so the *integers* are checked:

- L2: ‖k‖² ≤ L² + L + ⌊d/4⌋. Rounding adds Σf(1 - f) ≤ d/4 to ‖x‖² in the mean, with a deviation near L at most.
- L1: ‖k‖₁ ≤ L + ⌈√d⌉. Rounding leaves ‖x‖₁ in the mean, with a deviation of at most √d/2.

A vector that is too long is rounded again, up to ten times; then it is cut toward zero; and if it is still too long,
which only a vector can be that was not bounded before, it becomes zero. Coordinates that are not numbers become zero.

A *fine* grid (L2 only) has so many levels that the limit ‖k‖ ≤ L + √d + 1 costs next to nothing. No bounded vector is
ever too long for it, so the coins used do not depend on the vector, and rounding is a function of each coordinate that
never moves two numbers apart by more than one level: close vectors stay close, ‖k - k'‖ ≤ ‖x - x'‖ + √d.

Guarantee: whatever floating-point arithmetic did before, every vector of integers that leaves `round_checked` obeys
the limit. So replacing one of them (one example, or one whole release) changes a sum of them by at most twice the
limit's norm, and that is the sensitivity which noise and ledger use. The coins of a vector are its own: for any values
of all other coins the two sums are that close, so every divergence that is quasi-convex keeps its bound on average.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from crowdml.core import Array, GridCoins, Ops, record
from crowdml.privacy.accounting import Event
from crowdml.privacy.noise.laws import NoiseLaw
from crowdml.privacy.noise.shares import Shared

Per = Literal["example", "release"]

TRIES = 10


@record
class Grid:
    """A bound on integers.

    Attributes:
        order: The norm, 1 or 2.
        size: Coordinates of a vector.
        radius: No vector is longer than this before it is rounded.
        levels: Levels that make up the radius, L.
        limit: Largest ‖k‖₁, or largest ‖k‖² for order 2.
        per: What is bounded: each example's vector, or the release as a whole.
        apart: Square of the largest distance between two vectors that obey the limit, in levels, where less than twice
            its norm is proven; None elsewhere.
    """

    order: int
    size: int
    radius: float
    levels: int
    limit: int
    per: Per
    apart: int | None = None

    @property
    def step(self) -> float:
        """Length of one level: the server multiplies by it."""
        return self.radius / self.levels

    @property
    def sensitivity_power(self) -> int:
        """Largest change of a sum when one vector is replaced, to the power of the norm: Δ₁ or Δ₂², exact."""
        if self.apart is not None:
            return self.apart
        return self.limit * (2 if self.order == 1 else 4)

    @property
    def sensitivity(self) -> float:
        """The same change in levels, rounded up."""
        power = self.sensitivity_power
        return float(power) if self.order == 1 else math.nextafter(math.sqrt(power), math.inf)


FINEST = 1 << 15
"""Levels of a fine grid at most, so that squares still add up in 32 bits."""


def make_fine_grid(size: int, radius: float) -> Grid:
    """Make a grid for whole messages on which close vectors stay close; √d is at most a percent of L up to d = 100,000.

    >>> make_fine_grid(640, 1.0).levels
    8192
    """
    root = math.isqrt(size - 1) + 1
    levels = 64
    while levels < min(256 * root, FINEST):
        levels *= 2
    return Grid(order=2, size=size, radius=radius, levels=levels, limit=(levels + root + 1) ** 2, per="release")


def make_grid(order: int, size: int, radius: float, per: Per) -> Grid:
    """Choose the levels: fine enough that the headroom costs a percent or two, a power of two.

    >>> make_grid(2, 640, 1.0, "example").levels, make_grid(1, 640, 1.0, "example").levels
    (128, 2048)
    """
    root = math.isqrt(size - 1) + 1
    levels = 64
    while levels < (3.3 * math.sqrt(size) if order == 2 else 64 * math.sqrt(size)):
        levels *= 2
    limit = levels + root if order == 1 else levels**2 + levels + size // 4
    return Grid(order=order, size=size, radius=radius, levels=levels, limit=limit, per=per)


MOMENT_LEVELS = 1 << 15
SQUARES, WITH_LABELS = 2.0, 4.5
"""Square of the largest distance between two vectors, before rounding."""


def moments_grid(features: int, labels: bool) -> Grid:
    """Return the grid of moments: squares of rows, and rows times labels, summed over everybody.

    A model's curvature needs them once.

    For a row x of length at most 1 the vector is v(x) = (x_i² for all i, √2·x_i·x_j for all i < j) and, where labels
    are sent too, y·x behind it, y from -1 to 1.

    Distance. ‖v(x) - v(z)‖² = ‖x‖⁴ + ‖z‖⁴ - 2(x·z)² (the Frobenius norm of xx' - zz'), and ‖yx - uz‖² ≤ ‖x‖² + ‖z‖² -
    2yu(x·z). With t = |x·z| their sum is at most 2 - 2t² + 2 + 2t ≤ 4.5 (largest at t = ½), the first alone at most 2.
    That is less than the square of twice the length, which would be 8, or 4.

    Rounding. Every number is rounded to the nearest level, without coins, and the integers' length is checked. Rounding
    moves a vector of D numbers by at most √D/2, so two of them come at most √D closer or farther; arithmetic in single
    precision by less than a fiftieth of a level per number. With 32,768 levels that is a quarter of a percent.

    So replacing one row changes a sum of such vectors by at most √2·L + 1.04·√D levels (or √4.5 instead of √2), and
    sums are exact in integers.

    >>> grid = moments_grid(105, False)
    >>> grid.size, round(grid.sensitivity / grid.levels, 3)
    (5565, 1.417)
    """
    size = features * (features + 1) // 2 + (features if labels else 0)
    longest = math.sqrt(2.0) if labels else 1.0
    levels = math.ceil(MOMENT_LEVELS * longest)
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


def to_levels(grid: Grid, vectors: Array, ops: Ops) -> Array:
    """Scale vectors of shape (count, size) to levels and clip each to the radius; floats still, of the same type."""
    xp = ops.xp
    # In single precision the factor itself would be off, and by half for a radius of 1e49.
    x = vectors * xp.asarray(grid.levels / grid.radius, dtype=vectors.dtype)
    x = xp.where(xp.isfinite(x), x, xp.float32(0))
    norms = xp.sum(xp.abs(x), axis=1) if grid.order == 1 else xp.sqrt(xp.sum(x * x, axis=1))
    return x * (xp.float32(grid.levels) / xp.maximum(norms, xp.float32(grid.levels)))[:, None]


def round_checked(grid: Grid, x: Array, coins: GridCoins, stage: str, ops: Ops) -> Array:
    """Round vectors of shape (count, size) to integers that obey the limit, int32."""
    xp = ops.xp
    x = xp.clip(xp.where(xp.isfinite(x), x, xp.float32(0)), -float(grid.levels), float(grid.levels))

    def again(state: tuple[Array, Array]) -> tuple[Array, Array]:
        number, k = state
        fresh = _rounded(x, coins.retry(number).uniform(stage, x.shape), xp)
        return number + xp.int32(1), xp.where(_over(grid, k, xp)[:, None], fresh, k)

    def unfinished(state: tuple[Array, Array]) -> Array:
        number, k = state
        return (number < TRIES) & xp.any(_over(grid, k, xp))

    first = _rounded(x, coins.uniform(stage, x.shape), xp)
    _, k = ops.repeat(unfinished, again, (xp.int32(1), first))
    cut = xp.trunc(x).astype(xp.int32)
    k = xp.where(_over(grid, k, xp)[:, None], cut, k)
    return xp.where(_over(grid, k, xp)[:, None], xp.int32(0), k)


def _rounded(x: Array, uniform: Array, xp: Array) -> Array:
    """Round up with the probability of the fraction."""
    down = xp.floor(x)
    return down.astype(xp.int32) + (uniform < x - down).astype(xp.int32)


def _over(grid: Grid, k: Array, xp: Array) -> Array:
    """Tell which vectors of integers are too long. NumPy adds up in 64 bits."""
    return (xp.sum(xp.abs(k), axis=1) if grid.order == 1 else xp.sum(k * k, axis=1)) > grid.limit


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
class GridMechanism:
    """Bound, noise and cost of the sums of integers that a device releases.

    Guarantee: neighbours differ in one sample (grid per example) or in any number of rows of one device (grid per
    release), the number of rows being the same. The sum of checked integers changes by at most `grid.sensitivity` in
    the grid's norm (proof above), independent integer noise of `scale` is added to every coordinate, so one release
    costs `event`: pure ε = Δ₁/scale for discrete Laplace noise, ρ = μ²/2 with μ = Δ₂/scale for rounded Gaussian
    noise. Where steps are proven to be stable, one sample changes the message by less, and costs `event_of_sample`.

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
        """Refuse a norm mismatch, continuous noise, scales that are not exact, and shares that are too small."""
        if self.grid.order != self.law.order or not self.law.integer:
            raise ValueError(f"{self.law.name} noise does not fit a grid of order {self.grid.order}")
        if Fraction(self.scale).denominator > 16 or self.scale <= 0:
            raise ValueError(f"{self.scale} is not an exact scale")
        if self.shared and (self.grid.order != 2 or Fraction(self.scale) ** 2 < self.shared.law.least):
            raise ValueError(f"{self.law.name} shares need a bound in L2, and a variance of {self.shared.law.least}")

    @property
    def event(self) -> Event:
        """Cost of one release; floating point is rounded up."""
        return self._event(Fraction(self.grid.sensitivity_power))

    @property
    def event_of_sample(self) -> Event:
        """Cost of one release where one sample is replaced."""
        moved = sample_sensitivity(self.grid, self.stable)
        return self._event(Fraction(moved) ** self.grid.order) if self.stable else self.event

    def _event(self, power: Fraction) -> Event:
        if self.shared:
            # The change is a vector of integers, so its squared length is a whole number.
            return self.shared.event(math.floor(power), self.grid.size, self.scale)
        return self.law.event(power, Fraction(self.scale))


def sample_sensitivity(grid: Grid, stable: Stability | None) -> float:
    """Return the largest change of a message, in levels, when one sample is replaced, rounded up."""
    if stable is None:
        return grid.sensitivity
    # Clipping is the projection onto a ball, so it moves nothing apart; its own arithmetic is off by less than d + 8
    # units of 2⁻⁵³ of the radius, on either side. Rounding on a fine grid adds √d at most.
    clipping = 2 * (grid.size + 8) * 2.0**-53 * grid.levels
    moved = stable.bound / grid.step + clipping + math.sqrt(grid.size)
    return min(grid.sensitivity, moved * (1 + 1e-9))
