"""Momentum: updates push a velocity, and the velocity moves the parameters (Polyak 1964)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from crowdml.algorithms.rates.contract import Rate, RateSettings
from crowdml.core import Array, Ops, trees
from crowdml.core.ops import Tree


class Momentum(RateSettings):
    """A step of c times the velocity, which is the update plus a share of the velocity before."""

    kind: Literal["momentum"] = "momentum"
    momentum: float = Field(0.9, ge=0, lt=1, description="share of the velocity kept at each step")

    def build(self, c: Array, ops: Ops) -> Rate:
        """Make the rate."""

        def step(velocity: Tree, update: Tree, count: Array) -> tuple[Tree, Tree]:
            velocity = trees.map(lambda old, leaf: self.momentum * old + leaf, velocity, update)
            return trees.map(lambda leaf: c * leaf, velocity), velocity

        return Rate(init=lambda parameters: trees.map(ops.xp.zeros_like, parameters), step=step)
