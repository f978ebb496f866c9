"""What a mechanism is: a bound, a noise law and what a release costs, in one frozen record."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from crowdml.core import Array, Coins, Ops, record, trees
from crowdml.core.ops import Tree
from crowdml.privacy.promise import Spent


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
        deviation: `deviation(size)`: standard deviation of each number of a message of `size` numbers at scale 1;
            None where that is no way to give this law.
        whole: True where a message is drawn as one vector, False where every number has noise of its own.
    """

    name: str
    order: int
    pure: bool
    integer: bool
    scale: Callable[[float, float], float]
    draw: Callable[[Coins, str, Array, tuple[int, ...]], Array]
    cost: Callable[[float], Spent]
    deviation: Callable[[int], float] | None = None
    whole: bool = False


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
    bound's norm; noise of scale `noise/n` then costs `spent`, once per release that the example enters.

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
    def spent(self) -> Spent:
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
        ends = list(itertools.accumulate(leaf.size for leaf in trees.leaves(tree)))
        parts = iter(drawn[end - leaf.size : end] for end, leaf in zip(ends, trees.leaves(tree), strict=True))
        return trees.map(lambda leaf: leaf + next(parts).reshape(leaf.shape), tree)
    return trees.map_paths(lambda path, leaf: leaf + law.draw(coins, f"{stage}/{path}", scale, leaf.shape), tree)
