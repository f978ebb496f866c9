"""Attacks that know the honest check-ins: against the mean, hidden in the spread, and adaptive.

ALIE ("a little is enough"): Baruch, Baruch and Goldberg (2019). Inner product: Xie, Koyejo and Gupta (2020). The
adaptive one is in the spirit of Shejwalkar and Houmansadr (2021), with the server's own rule to try things on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import Field

from crowdml.algorithms.attacks.contract import Attack, AttackSettings, mean_and_spread, replaced
from crowdml.core import Array, Ops

STRENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""What the adaptive attack tries: factors of the honest mean, and of the honest spread."""


class Sign(AttackSettings):
    """Sends the honest mean turned round and enlarged."""

    kind: Literal["sign"] = "sign"
    scale: float = Field(3.0, gt=0, description="-scale times the honest mean")

    def build(self, classes: int, ops: Ops) -> Attack:
        """Make the attack."""
        return _against_mean(self.scale, ops)


class InnerProduct(AttackSettings):
    """Sends a small step against the honest mean, too small to look strange."""

    kind: Literal["inner-product"] = "inner-product"
    scale: float = Field(0.5, gt=0, description="-scale times the honest mean")

    def build(self, classes: int, ops: Ops) -> Attack:
        """Make the attack."""
        return _against_mean(self.scale, ops)


class Alie(AttackSettings):
    """Sends the honest mean, moved by a part of the honest spread in every number."""

    kind: Literal["alie"] = "alie"
    z: float = Field(1.5, gt=0, description="how many standard deviations")

    def build(self, classes: int, ops: Ops) -> Attack:
        """Make the attack."""

        def rewrite(updates: Array, honest: Array, lying: Array, outcome: Callable[[Array], Array]) -> Array:
            mean, spread = mean_and_spread(updates, honest, ops)
            return replaced(updates, lying, mean - ops.xp.float32(self.z) * spread, ops)

        return Attack(rewrite=rewrite)


class Adaptive(AttackSettings):
    """Tries several lies on the server's own rule and sends the one that turns the step back most."""

    kind: Literal["adaptive"] = "adaptive"

    def build(self, classes: int, ops: Ops) -> Attack:
        """Make the attack."""
        xp = ops.xp

        def rewrite(updates: Array, honest: Array, lying: Array, outcome: Callable[[Array], Array]) -> Array:
            mean, spread = mean_and_spread(updates, honest, ops)
            towards = xp.sign(mean) * spread
            tries = [mean - xp.float32(own) * towards for own in STRENGTHS]
            tries += [-xp.float32(own) * mean for own in STRENGTHS]

            def step(best: tuple[Array, Array], lie: Array) -> tuple[Array, Array]:
                left = xp.sum(outcome(replaced(updates, lying, lie, ops)) * mean)
                better = left < best[0]
                return xp.where(better, left, best[0]), xp.where(better, lie, best[1])

            _, worst = ops.fold(step, (xp.float32(xp.inf), mean), xp.stack(tries))
            return replaced(updates, lying, worst, ops)

        return Attack(rewrite=rewrite)


def _against_mean(scale: float, ops: Ops) -> Attack:
    def rewrite(updates: Array, honest: Array, lying: Array, outcome: Callable[[Array], Array]) -> Array:
        mean, _ = mean_and_spread(updates, honest, ops)
        return replaced(updates, lying, -ops.xp.float32(scale) * mean, ops)

    return Attack(rewrite=rewrite)
