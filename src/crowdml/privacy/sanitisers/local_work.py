"""What recipes hand to a sanitiser: gradients of examples, statistics of rows, and local steps.

A sanitiser bounds these and adds its noise; it never asks which recipe they come from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from crowdml.core import Array, BadInput, Batch, Coins, Ops, record, trees
from crowdml.core.ops import Tree


class ExampleGradients(Protocol):
    """What a model tells of a batch: each example's gradient, as factors."""

    outputs: Array

    def norms(self, order: int, ops: Ops) -> Array:
        """Norm of each example's gradient."""

    def layer_norms(self, ops: Ops) -> list[Array | None]:
        """The same, layer by layer."""

    def total(self, weights: Array) -> Tree:
        """Sum of gradients, each times its weight."""

    def total_by_layer(self, weights: Any) -> Tree:
        """The same with other weights in each layer."""

    def rows(self) -> Tree:
        """Each example's gradient, examples as the first axis."""


class Statistic(Protocol):
    """Something that is summed over rows and whose bound has a proof of its own, such as squares of rows."""

    def plain(self) -> Array:
        """The sum as it is."""

    def on_grid(self, grid: Any) -> Array:
        """The sum of checked integers."""


@record
class Objective:
    """A model as devices see it.

    Attributes:
        gradients: `gradients(parameters, batch)`: each example's gradient.
        gradients_near: `gradients_near(origin, moved, batch)`: each example's gradient at origin + moved, where what
            does not depend on `moved` is worked out by itself (for steps whose stability is proven).
        regulariser: `regulariser(parameters)`: its gradient; public.
        steepness: `steepness(row)`: how fast the gradient of an example of that norm changes with the parameters at
            most, the regulariser included.
        clean: `clean(targets)`: brings targets into range, whatever they are.
        regularised: Whether the regulariser may be anything but zero; numbers that are traced may be anything.
    """

    gradients: Callable[[Tree, Batch], Any]
    gradients_near: Callable[[Tree, Tree, Batch], Any]
    regulariser: Callable[[Tree], Tree]
    steepness: Callable[[float], Array]
    clean: Callable[[Array], Array]
    regularised: bool = True


class StepRate(Protocol):
    """A learning rate, as local steps need it (`algorithms.rates.Rate`)."""

    @property
    def step(self) -> Callable[[Tree, Tree, Array], tuple[Tree, Tree]]:
        """`step(memory, update, count)`: the change to subtract, and the new memory."""


@record
class LocalWork:
    """What local steps are, as a recipe asks for them.

    Attributes:
        objective: The model.
        rate: The device's rate.
        largest_rate: What the rate never exceeds.
        wide_factor: `wide_factor(count)`: the rate in wide numbers, where it depends on its counter alone.
        counts_up: Whether the rate counts local steps.
        size: Rows per step.
        padded: Whether some steps may be empty, because devices differ in their number of rows.
        through_rows: Whether steps may go through the rows in turn; False where a device is told how many to take.
        group: Rows that go through together where steps bound every row; memory and speed only.
        proximal: μ of a pull back to the parameters checked out (FedProx); None: there is none.
    """

    objective: Objective
    rate: StepRate
    largest_rate: Array
    wide_factor: Callable[[Array], Array] | None = None
    counts_up: bool
    size: int
    padded: bool
    through_rows: bool = True
    group: int = 64
    proximal: Array | None = None

    @property
    def has_slope(self) -> bool:
        """Whether a step adds anything to the gradient of its rows."""
        return self.objective.regularised or self.proximal is not None

    def slope(self, here: Tree, checked_out: Tree) -> Tree:
        """Return what a step adds to the gradient of its rows: regulariser and pull, which depend on no row."""
        common = self.objective.regulariser(here)
        if self.proximal is None:
            return common
        return trees.map(lambda slope, w, w0: slope + self.proximal * (w - w0), common, here, checked_out)


class Walk(Protocol):
    """Local steps between check-out and check-in."""

    def take(
        self, parameters: Tree, memory: Tree, begin: Array, batch: Batch, coins: Coins
    ) -> tuple[Tree, Tree, Array]:
        """Take all steps; return what has changed, what the rate remembers, and steps taken.

        Args:
            parameters: What was checked out.
            memory: What the rate remembers.
            begin: The rate's counter at the first step, from 1.
            batch: The rows.
            coins: Coins of this check-in.
        """


def require_rows_in_turn(work: LocalWork) -> None:
    """Refuse a number of steps where steps follow from the rows that a device has."""
    if not work.through_rows:
        raise BadInput(
            'local-steps and privacy.noise-at = "steps" belong together: otherwise a device goes through its rows',
            where="algorithm.local-steps",
            hint="leave it out, or say how many steps a device takes in a round",
        )


def mean_weights(training: Array, ops: Ops) -> Array:
    """Return weights that make a mean of a sum over marked rows."""
    return training / ops.xp.maximum(ops.xp.sum(training), ops.xp.float32(1))


def plus(one: Tree, other: Tree) -> Tree:
    """Add two trees."""
    return trees.map(lambda a, b: a + b, one, other)
