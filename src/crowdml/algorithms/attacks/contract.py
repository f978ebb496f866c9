"""What an attack is: what devices that lie send, in simulation. They know everything, the others' check-ins included.

An attack acts in one of three places: on the labels a device learns from, on the message it sends, or on the window
just before the server makes a version, when all honest check-ins are known.
"""

from __future__ import annotations

import abc
from collections.abc import Callable

from pydantic import Field

from crowdml.core import Array, Coins, Ops, Settings, record, trees
from crowdml.core.ops import Tree

FORGED = "forged"
"""Part of a simulated check-in: who lies, and what it sends instead. No device can send it."""

UPDATES = ("gradient", "change")
"""Parts of a check-in that have the model's shape."""

Rewrite = Callable[[Array, Array, Array, Callable[[Array], Array]], Array]
"""`rewrite(updates, honest, lying, outcome)`: the window with what liars send; `outcome(updates)` is what the server
would make of it."""


@record
class Attack:
    """An attack as functions; each may be missing.

    Attributes:
        labels: `labels(labels)`: what a liar learns from.
        noise: `noise(coins, shape)`: what a liar sends instead of its update.
        rewrite: What liars send once all honest check-ins are known.
    """

    labels: Callable[[Array], Array] | None = None
    noise: Callable[[Coins, tuple[int, ...]], Array] | None = None
    rewrite: Rewrite | None = None

    def forge(self, check_in: Tree, lies: Array, coins: Coins) -> Tree:
        """Say of a simulated check-in whether its sender lies, and what it sends instead."""
        update = next(check_in[name] for name in UPDATES if name in check_in)
        return check_in | {
            FORGED: {"lies": lies} | ({"noise": self.noise(coins, (trees.size(update),))} if self.noise else {})
        }


class AttackSettings(Settings):
    """The interface of all attacks, and the key they share. A leaf class is final."""

    kind: str
    share: float = Field(0.2, gt=0, lt=1, description="part of the devices that lie, at least one")

    @abc.abstractmethod
    def build(self, classes: int, ops: Ops) -> Attack:
        """Make the attack."""

    def liars(self, devices: int) -> int:
        """Count the devices that lie."""
        return max(1, round(self.share * devices))


def mean_and_spread(updates: Array, honest: Array, ops: Ops) -> tuple[Array, Array]:
    """Return mean and standard deviation of the honest check-ins, number by number."""
    xp = ops.xp
    share = honest.astype(xp.float32) / xp.maximum(xp.sum(honest), 1)
    mean = ops.dot(share[None], updates)[0]
    apart = updates - mean
    return mean, xp.sqrt(ops.dot(share[None], apart * apart)[0])


def replaced(updates: Array, lying: Array, by: Array, ops: Ops) -> Array:
    """Put one vector in the place of all that liars sent."""
    return ops.xp.where(lying[:, None], by[None], updates)
