"""Attacks by name, for simulated crowds: what Byzantine devices send.

They know everything, the others' check-ins included.
An attack acts in one of three places: on the targets a device learns from, on the message it sends, or on the window
just before the server makes a version, when all honest check-ins are known.

ALIE ("a little is enough"): Baruch, Baruch and Goldberg (2019). Inner product: Xie, Koyejo and Gupta (2020). The
adaptive one is in the spirit of Shejwalkar and Houmansadr (2021), with the server's own rule to try things on.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Literal

from pydantic import Field

from crowdml.core import Array, Coins, Ops, Registry, Settings, Target, record

Rewrite = Callable[[Array, Array, Array, Callable[[Array], Array]], Array]
"""`rewrite(updates, honest, lying, outcome)`: the window with what Byzantine devices send;
`outcome(updates)` is what the server would make of it."""


@record
class Attack:
    """An attack as functions; each may be missing.

    Attributes:
        targets: `targets(targets)`: what a Byzantine device learns from.
        noise: `noise(coins, shape)`: what a Byzantine device sends instead of its update.
        rewrite: What Byzantine devices send once all honest check-ins are known.
    """

    targets: Callable[[Array], Array] | None = None
    noise: Callable[[Coins, tuple[int, ...]], Array] | None = None
    rewrite: Rewrite | None = None


class AttackSettings(Settings):
    """The interface of all attacks, and the key they share. A leaf class is final."""

    kind: str
    share: float = Field(0.2, gt=0, lt=1, description="part of the devices that are Byzantine, at least one")

    @abc.abstractmethod
    def build(self, target: Target, ops: Ops) -> Attack:
        """Make the attack."""

    def byzantine(self, devices: int) -> int:
        """Count the Byzantine devices."""
        return max(1, round(self.share * devices))


def mean_and_spread(updates: Array, honest: Array, ops: Ops) -> tuple[Array, Array]:
    """Return mean and standard deviation of the honest check-ins, number by number."""
    xp = ops.xp
    share = honest.astype(xp.float32) / xp.maximum(xp.sum(honest), 1)
    mean = ops.dot(share[None], updates)[0]
    apart = updates - mean
    return mean, xp.sqrt(ops.dot(share[None], apart * apart)[0])


def replaced(updates: Array, lying: Array, by: Array, ops: Ops) -> Array:
    """Put one vector in the place of all that Byzantine devices sent."""
    return ops.xp.where(lying[:, None], by[None], updates)


class NoAttack(AttackSettings):
    """Every device is honest."""

    kind: Literal["none"] = "none"

    def build(self, target: Target, ops: Ops) -> Attack:
        """Make nothing."""
        return Attack()

    def byzantine(self, devices: int) -> int:
        """Nobody lies."""
        return 0


class LabelFlip(AttackSettings):
    """Learns honestly from wrong targets: the first label is called the last, a low number high."""

    kind: Literal["label-flip"] = "label-flip"

    def build(self, target: Target, ops: Ops) -> Attack:
        """Make the attack."""
        return Attack(targets=target.flipped)


class Noise(AttackSettings):
    """Sends Gaussian noise."""

    kind: Literal["noise"] = "noise"
    deviation: float = Field(5.0, gt=0, description="standard deviation of every number")

    def build(self, target: Target, ops: Ops) -> Attack:
        """Make the attack."""
        return Attack(noise=lambda coins, shape: ops.xp.float32(self.deviation) * coins.gaussian("attack", shape))


STRENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""What the adaptive attack tries: factors of the honest mean, and of the honest spread."""


class _AgainstMean(AttackSettings):
    """What attacks against the honest mean have in common."""

    scale: float

    def build(self, target: Target, ops: Ops) -> Attack:
        """Make the attack."""

        def rewrite(updates: Array, honest: Array, lying: Array, outcome: Callable[[Array], Array]) -> Array:
            mean, _ = mean_and_spread(updates, honest, ops)
            return replaced(updates, lying, -ops.xp.float32(self.scale) * mean, ops)

        return Attack(rewrite=rewrite)


class Sign(_AgainstMean):
    """Sends the honest mean turned round and enlarged."""

    kind: Literal["sign"] = "sign"
    scale: float = Field(3.0, gt=0, description="-scale times the honest mean")


class InnerProduct(_AgainstMean):
    """Sends a small step against the honest mean, too small to look strange."""

    kind: Literal["inner-product"] = "inner-product"
    scale: float = Field(0.5, gt=0, description="-scale times the honest mean")


class Alie(AttackSettings):
    """Sends the honest mean, moved by a part of the honest spread in every number."""

    kind: Literal["alie"] = "alie"
    z: float = Field(1.5, gt=0, description="how many standard deviations")

    def build(self, target: Target, ops: Ops) -> Attack:
        """Make the attack."""

        def rewrite(updates: Array, honest: Array, lying: Array, outcome: Callable[[Array], Array]) -> Array:
            mean, spread = mean_and_spread(updates, honest, ops)
            return replaced(updates, lying, mean - ops.xp.float32(self.z) * spread, ops)

        return Attack(rewrite=rewrite)


class Adaptive(AttackSettings):
    """Tries several lies on the server's own rule and sends the one that turns the step back most."""

    kind: Literal["adaptive"] = "adaptive"

    def build(self, target: Target, ops: Ops) -> Attack:
        """Make the attack."""
        xp = ops.xp

        def rewrite(updates: Array, honest: Array, lying: Array, outcome: Callable[[Array], Array]) -> Array:
            mean, spread = mean_and_spread(updates, honest, ops)
            towards = xp.sign(mean) * spread
            tries = [mean - xp.float32(strength) * towards for strength in STRENGTHS]
            tries += [-xp.float32(strength) * mean for strength in STRENGTHS]

            def step(best: tuple[Array, Array], lie: Array) -> tuple[Array, Array]:
                left = xp.sum(outcome(replaced(updates, lying, lie, ops)) * mean)
                better = left < best[0]
                return xp.where(better, left, best[0]), xp.where(better, lie, best[1])

            _, worst = ops.fold(step, (xp.float32(xp.inf), mean), xp.stack(tries))
            return replaced(updates, lying, worst, ops)

        return Attack(rewrite=rewrite)


ATTACKS: Registry[type[AttackSettings]] = Registry(
    "attack",
    {
        "none": NoAttack,
        "label-flip": LabelFlip,
        "sign": Sign,
        "noise": Noise,
        "alie": Alie,
        "inner-product": InnerProduct,
        "adaptive": Adaptive,
    },
)
