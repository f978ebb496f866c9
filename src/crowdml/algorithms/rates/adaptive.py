"""Rates that remember the size of earlier updates, coordinate by coordinate: AdaGrad and RMSprop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import Field

from crowdml.algorithms.rates.contract import Rate, RateSettings
from crowdml.core import Array, Ops, trees
from crowdml.core.ops import Tree


def _by_squares(c: Array, floor: float, blend: Callable[[Array, Array], Array], ops: Ops) -> Rate:
    """Divide each coordinate by the root of its remembered squares."""

    def step(squares: Tree, update: Tree, count: Array) -> tuple[Tree, Tree]:
        squares = trees.map(lambda old, leaf: blend(old, leaf * leaf), squares, update)
        change = trees.map(lambda leaf, square: c * leaf / (ops.xp.sqrt(square) + floor), update, squares)
        return change, squares

    return Rate(init=lambda parameters: trees.map(ops.xp.zeros_like, parameters), step=step)


class AdaGrad(RateSettings):
    """η = c / √(Σ g²), each coordinate its own (Duchi, Hazan and Singer 2011)."""

    kind: Literal["adagrad"] = "adagrad"
    floor: float = Field(1e-8, gt=0, description="added to the root, against division by zero")

    def build(self, c: Array, ops: Ops) -> Rate:
        """Make the rate."""
        return _by_squares(c, self.floor, lambda old, new: old + new, ops)


class RmsProp(RateSettings):
    """η = c / √(running mean of g²), each coordinate its own (Tieleman and Hinton 2012)."""

    kind: Literal["rmsprop"] = "rmsprop"
    decay: float = Field(0.9, ge=0, lt=1, description="share of the old mean kept at each step")
    floor: float = Field(1e-8, gt=0, description="added to the root, against division by zero")

    def build(self, c: Array, ops: Ops) -> Rate:
        """Make the rate."""
        return _by_squares(c, self.floor, lambda old, new: self.decay * old + (1 - self.decay) * new, ops)
