"""Rates: how an update becomes a step, perhaps with a memory of earlier updates.

Rates that depend on the count alone are c, c/t and c/√t; AdaGrad and RMSprop remember the size of earlier updates,
coordinate by coordinate; momentum remembers a velocity. A new one is a class and a line in the registry.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Literal

from pydantic import Field

from crowdml.core import Array, Ops, Registry, Settings, Tree, record, trees

Counter = Literal["versions", "check-ins", "device-contacts", "local-steps"]
"""The four counters of the Crowd-ML library 2016: t_s, s_s, t_d and s_d."""


@record
class Rate:
    """A learning rate as two pure functions.

    Attributes:
        init: `init(parameters)`: what the rate remembers; `()` if nothing.
        step: `step(memory, update, count)` returns the change to subtract and the new memory; counts start at 1.
        factor: `factor(count)`: what an update is multiplied by; None where the rate looks at updates itself.
    """

    init: Callable[[Tree], Tree]
    step: Callable[[Tree, Tree, Array], tuple[Tree, Tree]]
    factor: Callable[[Array], Array] | None = None


class RateSettings(Settings):
    """The interface of all rates, and the keys they share. A leaf class is final."""

    kind: str
    c: float = Field(gt=0, examples=[0.1], description="the constant c of the rate")
    counter: Counter = Field("versions", description="what t counts")

    @property
    def steepest(self) -> float | None:
        """The largest factor by which an update is ever multiplied; None where the rate looks at updates itself."""
        return None

    @abc.abstractmethod
    def build(self, c: Array, ops: Ops) -> Rate:
        """Make the rate; `c` is handed in because a sweep may trace it."""


def by_count(factor: Callable[[Array], Array]) -> Rate:
    """Make a rate that multiplies the update by `factor(count)` and remembers nothing."""

    def step(memory: Tree, update: Tree, count: Array) -> tuple[Tree, Tree]:
        eta = factor(count)
        return trees.map(lambda leaf: leaf * eta, update), memory

    return Rate(init=lambda parameters: (), step=step, factor=factor)


class PowerSettings(RateSettings):
    """Rates that never exceed c, since counts start at 1."""

    @property
    def steepest(self) -> float | None:
        """Return c."""
        return self.c


class Constant(PowerSettings):
    """η = c."""

    kind: Literal["constant"] = "constant"

    def build(self, c: Array, ops: Ops) -> Rate:
        """Make the rate."""
        return by_count(lambda count: c)


class Inverse(PowerSettings):
    """η = c / t."""

    kind: Literal["inverse"] = "inverse"

    def build(self, c: Array, ops: Ops) -> Rate:
        """Make the rate."""
        return by_count(lambda count: c / ops.xp.float32(count))


class InverseSqrt(PowerSettings):
    """η = c / √t (Crowd-ML 2015, equation 5)."""

    kind: Literal["inverse-sqrt"] = "inverse-sqrt"

    def build(self, c: Array, ops: Ops) -> Rate:
        """Make the rate."""
        return by_count(lambda count: c / ops.xp.sqrt(ops.xp.float32(count)))


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


RATES: Registry[type[RateSettings]] = Registry(
    "rate",
    {
        "constant": Constant,
        "inverse": Inverse,
        "inverse-sqrt": InverseSqrt,
        "adagrad": AdaGrad,
        "rmsprop": RmsProp,
        "momentum": Momentum,
    },
)
