"""Rates: how an update becomes a step, perhaps with a memory of earlier updates.

Rates that depend on the count alone are c, c/t, c/√t, and those that fall by a factor, in steps or every time. AdaGrad,
RMSprop, Adam and Yogi remember the size of earlier updates, coordinate by coordinate; momentum remembers a velocity,
dual averaging the sum of all updates. A server may use any of them on what devices send, since it is post-processing
(Crowd-ML 2015, remark 3). A new one is a class and a line in the registry.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from pydantic import Field

from crowdml.core import Array, Ops, Registry, Settings, Tree, record, tree_record, trees

Counter = Literal["versions", "check-ins", "device-contacts", "local-steps"]
"""The four counters of the Crowd-ML library 2016: t_s, s_s, t_d and s_d."""


@record
class Rate:
    """A learning rate as two pure functions.

    Attributes:
        init: `init(parameters)`: what the rate remembers; `()` if nothing.
        step: `step(memory, update, count)` returns the change to subtract and the new memory; counts start at 1.
        factor: `factor(count)`: what an update is multiplied by; None where the rate looks at updates itself.
        counts_updates: Whether the count must be that of the updates in its memory, whatever the task has it count:
            means that begin at zero are corrected by it.
    """

    init: Callable[[Tree], Tree]
    step: Callable[[Tree, Tree, Array], tuple[Tree, Tree]]
    factor: Callable[[Array], Array] | None = None
    counts_updates: bool = False


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


class StepDecay(PowerSettings):
    """η = c · factor^⌊(t - 1)/every⌋: falls in steps."""

    kind: Literal["step"] = "step"
    every: int = Field(10, gt=0, description="the rate falls each time t has grown by this")
    factor: float = Field(0.1, gt=0, le=1, description="what it is multiplied by then")

    def build(self, c: Array, ops: Ops) -> Rate:
        """Make the rate."""

        def factor(count: Array) -> Array:
            falls = (ops.xp.asarray(count) - 1) // self.every
            return c * ops.xp.float32(self.factor) ** falls.astype(ops.xp.float32)

        return by_count(factor)


class Exponential(PowerSettings):
    """η = c · factor^(t - 1)."""

    kind: Literal["exponential"] = "exponential"
    factor: float = Field(0.99, gt=0, le=1, description="what the rate is multiplied by from one count to the next")

    def build(self, c: Array, ops: Ops) -> Rate:
        """Make the rate."""
        return by_count(lambda count: c * ops.xp.float32(self.factor) ** ops.xp.float32(count - 1))


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


@tree_record
class AdamState:
    """Running mean of updates, and of their squares."""

    mean: Tree
    squares: Tree


class _Adaptive(RateSettings):
    """What Adam and Yogi share: a running mean of updates, over the root of remembered squares."""

    decay: float = Field(0.9, ge=0, lt=1, description="β₁: share of the old mean of updates kept at each step")
    square_decay: float = Field(0.999, ge=0, lt=1, description="β₂: share of the old squares kept at each step")
    floor: float = Field(1e-8, gt=0, description="added to the root, against division by zero")
    corrected: bool = Field(
        True,
        description="whether means are corrected for beginning at zero, by the number of updates that they are of, "
        "whatever counter says",
    )

    @abc.abstractmethod
    def blend(self, old: Array, new: Array, ops: Ops) -> Array:
        """Return the squares to remember, from those before and those of an update."""

    def build(self, c: Array, ops: Ops) -> Rate:
        """Make the rate."""
        xp, kept, squares_kept = ops.xp, self.decay, self.square_decay

        def share(decay: float, count: Array) -> Array:
            return 1 - xp.float32(decay) ** xp.float32(count) if self.corrected else xp.float32(1)

        def step(memory: AdamState, update: Tree, count: Array) -> tuple[Tree, AdamState]:
            mean = trees.map(lambda old, leaf: kept * old + (1 - kept) * leaf, memory.mean, update)
            squares = trees.map(lambda old, leaf: self.blend(old, leaf * leaf, ops), memory.squares, update)
            by_mean, by_square = share(kept, count), share(squares_kept, count)

            def change(leaf: Array, square: Array) -> Array:
                return c * (leaf / by_mean) / (xp.sqrt(square / by_square) + self.floor)

            return trees.map(change, mean, squares), AdamState(mean=mean, squares=squares)

        def init(parameters: Tree) -> AdamState:
            zeros = trees.map(xp.zeros_like, parameters)
            return AdamState(mean=zeros, squares=zeros)

        return Rate(init=init, step=step, counts_updates=self.corrected)


class Adam(_Adaptive):
    """Adam (Kingma and Ba 2015): squares are a running mean."""

    kind: Literal["adam"] = "adam"

    def blend(self, old: Array, new: Array, ops: Ops) -> Array:
        """Take the running mean."""
        return self.square_decay * old + (1 - self.square_decay) * new


class Yogi(_Adaptive):
    """Yogi (Zaheer and others 2018): squares move by a share of the new ones, up or down, and so grow slowly."""

    kind: Literal["yogi"] = "yogi"

    def blend(self, old: Array, new: Array, ops: Ops) -> Array:
        """Move towards the new ones by a share of them."""
        return old - (1 - self.square_decay) * new * ops.xp.sign(old - new)


@tree_record
class SumState:
    """The sum of all updates, and how far it has moved the parameters."""

    total: Tree
    moved: Tree


class DualAveraging(RateSettings):
    """Parameters are the first ones minus c/√t times the sum of all updates (Nesterov 2009, Xiao 2010).

    Every update counts alike at every time, the first as much as the last, so that noise averages out. Where the
    parameters are brought back into their ball, the next step goes on from there.
    """

    kind: Literal["dual-averaging"] = "dual-averaging"

    def build(self, c: Array, ops: Ops) -> Rate:
        """Make the rate: a step is what is new of c/√t times the sum."""

        def step(memory: SumState, update: Tree, count: Array) -> tuple[Tree, SumState]:
            total = trees.map(lambda old, leaf: old + leaf, memory.total, update)
            eta = c / ops.xp.sqrt(ops.xp.float32(count))
            moved = trees.map(lambda leaf: eta * leaf, total)
            return trees.map(lambda new, old: new - old, moved, memory.moved), SumState(total=total, moved=moved)

        def init(parameters: Tree) -> SumState:
            zeros = trees.map(ops.xp.zeros_like, parameters)
            return SumState(total=zeros, moved=zeros)

        return Rate(init=init, step=step)


def uphill(rate: Rate) -> Rate:
    """Return the same rate for an average of changes, which point to where parameters should go."""
    factor = rate.factor

    def step(memory: Tree, change: Tree, count: Array) -> tuple[Tree, Tree]:
        return rate.step(memory, trees.map(lambda leaf: -leaf, change), count)

    return replace(rate, step=step, factor=None if factor is None else lambda count: -factor(count))


RATES: Registry[type[RateSettings]] = Registry(
    "rate",
    {
        "constant": Constant,
        "inverse": Inverse,
        "inverse-sqrt": InverseSqrt,
        "adagrad": AdaGrad,
        "rmsprop": RmsProp,
        "momentum": Momentum,
        "step": StepDecay,
        "exponential": Exponential,
        "adam": Adam,
        "yogi": Yogi,
        "dual-averaging": DualAveraging,
    },
)
