"""Noise laws, and what bound and noise of one release are together.

A new law is an entry `NoiseLaw(...)` and its name in `LAWS`. It says everything that others ask of it: in which norm it
needs a bound, how it is drawn, what it costs, what it becomes on the grid of sound mode (`on_grid`) and as a share of a
sum (`in_sums`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import cast

from crowdml.core import Array, Coins, GridCoins, Ops, Registry, record, trees
from crowdml.core.ops import Tree
from crowdml.privacy.accounting import Event, round_up
from crowdml.privacy.cost import Cost, Gaussian, Pure
from crowdml.privacy.noise.shares import DISCRETE_GAUSSIAN_SHARES, SKELLAM_SHARES, SumLaw
from crowdml.privacy.promise import gaussian_mu


def _on_no_integers(power: Fraction, scale: Fraction) -> Event:
    raise ValueError("nothing is proven for this noise on integers, one release at a time")


@record
class NoiseLaw:
    """A kind of noise, and the norm in which it needs a bound.

    Attributes:
        name: As in a task file.
        order: 1 or 2: bound and noise use the same norm, or the promise is false.
        pure: Whether it gives ε with δ = 0.
        integer: Whether it perturbs counts rather than real numbers.
        scale: `scale(epsilon, delta)`: the noise scale that keeps (ε, δ) for sensitivity 1.
        draw: `draw(coins, stage, scale, shape)`: noise of that scale; `scale` may be a traced number.
        cost: `cost(scale)`: what one release at sensitivity 1 and this scale costs.
        event: `event(power, scale)`: what one release of integers costs whose sum changes by at most Δ, rounded up;
            `power` is Δ in L1, Δ² in L2.
        deviation: `deviation(size)`: standard deviation of each number of a message of `size` numbers at scale 1;
            None where that is no way to give this law.
        whole: True where a message is drawn as one vector, False where every number has noise of its own.
        on_grid: The law that takes its place on the grid of sound mode; None where there is none.
        in_sums: What it is as a share of a sum; None where nothing is proven for sums of its draws.
        only_in_sums: Whether it is for shares alone: no task file names it as its mechanism.
        static_scale: Whether `draw` needs its scale as a plain number: it makes a table from it.
        least_scale: Least scale of a device's own noise on the grid.
    """

    name: str
    order: int
    pure: bool
    scale: Callable[[float, float], float]
    draw: Callable[[Coins, str, Array, tuple[int, ...]], Array]
    cost: Callable[[float], Cost]
    integer: bool = False
    event: Callable[[Fraction, Fraction], Event] = _on_no_integers
    deviation: Callable[[int], float] | None = None
    whole: bool = False
    on_grid: NoiseLaw | None = None
    in_sums: SumLaw | None = None
    only_in_sums: bool = False
    static_scale: bool = False
    least_scale: float = 1 / 16

    @property
    def gaussian(self) -> bool:
        """Whether a release of integers is one of Gaussian noise, whose sums are known exactly."""
        return self.integer and self.event is not _on_no_integers and self.event(Fraction(1), Fraction(1)).gaussian


@record
class Bound:
    """A bound on one example's contribution.

    Attributes:
        order: The norm, 1 or 2.
        radius: No example's gradient is longer than this.
        clipped: True where the device shortens longer gradients; False where the model itself proves the bound.
    """

    order: int
    radius: float
    clipped: bool

    @property
    def sensitivity(self) -> float:
        """Change of a sum of contributions when one example is replaced."""
        return 2 * self.radius


@record
class Mechanism:
    """Bound, noise and cost of one kind of release: the mean of bounded contributions.

    Guarantee: replace-one on samples. Replacing one of n examples changes the mean by at most 2·radius/n in the
    bound's norm; noise of scale `noise/n` then costs `cost`, once per release that the example enters.

    Attributes:
        bound: What no example exceeds.
        law: The noise law, in the same norm.
        noise: Noise scale for the *sum* of contributions, n times that of the mean.
    """

    bound: Bound
    law: NoiseLaw
    noise: float

    def __post_init__(self) -> None:
        """Refuse a norm mismatch: it is the classical way to promise too much."""
        if self.bound.order != self.law.order:
            raise ValueError(f"{self.law.name} noise needs a bound in L{self.law.order}, not L{self.bound.order}")

    @property
    def cost(self) -> Cost:
        """Cost of one release for a sample that is in it."""
        return self.law.cost(self.noise / self.bound.sensitivity)


def calibrated(law: NoiseLaw, bound: Bound, epsilon: float, delta: float) -> Mechanism:
    """Return the mechanism that keeps (ε, δ) in each release."""
    return Mechanism(bound=bound, law=law, noise=law.scale(epsilon, delta) * bound.sensitivity)


def clip_weights(norms: Array, radius: float, ops: Ops) -> Array:
    """Return the factor ≤ 1 that brings each norm down to the radius (1 for those below it)."""
    return radius / ops.xp.maximum(norms, ops.xp.float32(radius))


def add_noise(law: NoiseLaw, tree: Tree, scale: Array, coins: Coins, stage: str) -> Tree:
    """Add noise of the given scale to a message: to every number on its own, or to all of them as one vector."""
    if law.whole:
        drawn = law.draw(coins, stage, scale, (trees.size(tree),))
        return trees.map(lambda leaf, noise: leaf + noise, tree, trees.cut(drawn, tree))
    return trees.map_paths(lambda path, leaf: leaf + law.draw(coins, f"{stage}/{path}", scale, leaf.shape), tree)


def _pure_cost(scale: float) -> Cost:
    return Cost.of(Pure(epsilon=1.0 / scale))


def _gaussian_cost(scale: float) -> Cost:
    return Cost.of(Gaussian(mu_squared=1.0 / scale**2))


def _draw_k_norm(coins: Coins, stage: str, scale: Array, shape: tuple[int, ...]) -> Array:
    direction = coins.gaussian(f"{stage}/direction", shape)
    # A sum of exponential draws is Gamma distributed, and the size of a Laplace draw is exponential.
    radius = abs(coins.laplace(f"{stage}/radius", shape)).sum()
    return direction * (scale * radius / (direction * direction).sum() ** 0.5)


def _no_scale(epsilon: float, delta: float) -> float:
    raise ValueError("Skellam noise is calibrated for sums, where its divergences are known: see `shares`")


def _no_cost(scale: float) -> Cost:
    raise ValueError("Skellam noise is accounted in sums: see `shares`")


DISCRETE_LAPLACE = NoiseLaw(
    name="discrete-laplace",
    order=1,
    pure=True,
    integer=True,
    scale=lambda epsilon, delta: 1.0 / epsilon,
    draw=lambda coins, stage, scale, shape: coins.discrete_laplace(stage, scale, shape),
    cost=_pure_cost,
    event=lambda power, scale: Event.of_pure(round_up(power / scale)),
)
"""Pure ε for counts (Crowd-ML 2015, equations 11 and 12)."""

DISCRETE_GAUSSIAN = NoiseLaw(
    name="discrete-gaussian",
    order=2,
    pure=False,
    integer=True,
    scale=lambda epsilon, delta: 1.0 / gaussian_mu(epsilon, delta),
    draw=lambda coins, stage, scale, shape: cast(GridCoins, coins).discrete_gaussian(stage, scale, shape),
    cost=_gaussian_cost,
    event=lambda power, scale: Event.of_discrete_gaussian(power, scale**2),
    in_sums=DISCRETE_GAUSSIAN_SHARES,
    # Only an ε of hundreds would need less. From here on the noise of a simulation, which is made from a rounded
    # Gaussian, has this law but for two parts in a million (`simulation.engine.hash_coins`).
    least_scale=4.0,
)
"""For shares of a sum of integers with a bound in L2 (Canonne, Kamath and Steinke 2020)."""

ROUNDED_GAUSSIAN = NoiseLaw(
    name="rounded-gaussian",
    order=2,
    pure=False,
    integer=True,
    scale=lambda epsilon, delta: 1.0 / gaussian_mu(epsilon, delta),
    draw=lambda coins, stage, scale, shape: cast(GridCoins, coins).rounded_gaussian(stage, scale, shape),
    cost=_gaussian_cost,
    event=lambda power, scale: Event.of_rounded_gaussian(power, scale**2),
)
"""For integers with a bound in L2 that are released one by one.

Whole numbers plus rounded noise are the rounded sum of both, so the release costs what continuous Gaussian noise of
this standard deviation does (`privacy.gaussian`), at any scale: nothing has to be large enough for the proof. Nor does
a simulation need it, since its noise is a rounded Gaussian too.
"""

SKELLAM = NoiseLaw(
    name="skellam",
    order=2,
    pure=False,
    integer=True,
    scale=_no_scale,
    draw=lambda coins, stage, scale, shape: cast(GridCoins, coins).skellam(stage, scale, shape),
    cost=_no_cost,
    in_sums=SKELLAM_SHARES,
    only_in_sums=True,
    static_scale=True,
)
"""For shares of a sum of integers with a bound in L2. Sums of such shares have the same kind of law."""

LAPLACE = NoiseLaw(
    name="laplace",
    order=1,
    pure=True,
    scale=lambda epsilon, delta: 1.0 / epsilon,
    draw=lambda coins, stage, scale, shape: coins.laplace(stage, shape) * scale,
    cost=_pure_cost,
    deviation=lambda size: math.sqrt(2),
    on_grid=DISCRETE_LAPLACE,
)
"""Pure ε for a bound in L1 (Crowd-ML 2015, equation 10)."""

GAUSSIAN = NoiseLaw(
    name="gaussian",
    order=2,
    pure=False,
    scale=lambda epsilon, delta: 1.0 / gaussian_mu(epsilon, delta),
    draw=lambda coins, stage, scale, shape: coins.gaussian(stage, shape) * scale,
    cost=_gaussian_cost,
    deviation=lambda size: 1.0,
    on_grid=ROUNDED_GAUSSIAN,
)
"""(ε, δ) for a bound in L2, by the analytic calibration."""

K_NORM = NoiseLaw(
    name="k-norm",
    order=2,
    pure=True,
    whole=True,
    scale=lambda epsilon, delta: 1.0 / epsilon,
    draw=_draw_k_norm,
    cost=_pure_cost,
    deviation=lambda size: math.sqrt(size + 1),
)
"""Pure ε for a bound in L2 (Hardt and Talwar 2010; Crowd-ML library 2016, equation 6).

The density is proportional to exp(-‖z‖₂ / scale) over the whole message: a uniform direction, and a length that is
Gamma distributed with as many degrees as the message has numbers.
"""

LAWS: Registry[NoiseLaw] = Registry(
    "noise law",
    {
        law.name: law
        for law in (LAPLACE, GAUSSIAN, K_NORM, DISCRETE_LAPLACE, ROUNDED_GAUSSIAN, DISCRETE_GAUSSIAN, SKELLAM)
    },
)
"""Every law: the one place to add another."""

MECHANISMS: Registry[NoiseLaw] = Registry("mechanism", {})
"""What a task file may name as its mechanism."""

SOUND_LAWS: dict[str, NoiseLaw] = {}
"""What a mechanism of the task file becomes on the grid."""

SUM_LAWS: Registry[SumLaw] = Registry("law for sums", {})
"""What shares of noise may be in a masked sum."""


def add_law(law: NoiseLaw) -> None:
    """Take one more law, with the law that takes its place on the grid where that is new, too."""
    LAWS.add(law.name, law)
    _offer(law)
    if law.on_grid is not None and law.on_grid.name not in LAWS:
        add_law(law.on_grid)


def _offer(law: NoiseLaw) -> None:
    """Enter a law wherever it says that it can be used."""
    if not law.only_in_sums:
        MECHANISMS.add(law.name, law)
    if law.on_grid:
        SOUND_LAWS[law.name] = law.on_grid
    if law.in_sums:
        SUM_LAWS.add(law.name, law.in_sums)


for _law in LAWS.values():
    _offer(_law)
