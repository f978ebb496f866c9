"""Columns: rows that are mostly zero, multiplied without their rare columns.

A pixel at the edge of a picture is zero in nearly all rows, and costs a matrix product as much as any other. Here the
first layer's products take the common columns only. What the rare ones hold is added number by number: forward
`v · w[column]` to its row, backward `v · slope[row]` to its column. Nothing is left out, so the results are those of
the whole product but for the order in which numbers are added.

The device's half of an algorithm does not know: its first weights are `SplitWeights`, its rows `SplitRows`, and the
gradient between them stays two factors until it is subtracted. That works where a step is a multiple of the gradient:
a weight whose gradient is zero must not move, so there is no decay, and the rate keeps no memory.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from crowdml.algorithms import Algorithm, Task
from crowdml.algorithms.contract import Hyper
from crowdml.core import NUMPY, Array, record, trees
from crowdml.core.ops import Tree
from crowdml.models.layers.dense import Dense
from crowdml.simulation.jax_ops import JAX
from crowdml.simulation.lazy_rows import read

LEAST = 0.1
"""Share of the first layer's work that must be saved; below, rows stay whole."""

ENTRY, PER_OUTPUT = 600, 6
"""What it costs to add one number, in multiplications of a product: so many, and so many for each output. Between half
and twice of this the time is nearly the same."""

BEGIN = 200_000
"""What going through a batch number by number costs in any case, in multiplications of a product."""


@record
class Split:
    """Training rows by common and by rare columns.

    Attributes:
        features: Length of a row.
        common: Numbers of the common columns; their weights have shape (outputs, common).
        rare: Numbers of the others that are not zero everywhere; their weights have shape (rare, outputs).
        rows: The common columns of all rows.
        ends: Where the numbers of each row end in `columns` and `values`; those of row r begin at `ends[r]`.
        columns: Index into `rare` of every number there that is not zero.
        values: The numbers.
    """

    features: int
    common: npt.NDArray[np.int64]
    rare: npt.NDArray[np.int64]
    rows: Array
    ends: Array
    columns: Array
    values: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Of the rows as they are without us."""
        return len(self.rows), self.features

    def read_rows(self, numbers: Array) -> SplitRows:
        """Read the common part of some rows; the rest is read where it is used."""
        return SplitRows(self, numbers, read(self.rows, numbers))

    def build(self, task: Task, hyper: Hyper) -> Algorithm:
        """Assemble the algorithm whose device half takes split weights and rows."""
        return task.build(SPLIT, dict(hyper) | {"regularisation": 0.0})

    def take(self, broadcast: Tree) -> Tree:
        """Split the first weights of what a device has checked out."""
        if isinstance(broadcast, dict):
            return broadcast | {"parameters": self.take(broadcast["parameters"])}
        first, *others = broadcast
        whole = first["w"]
        return (first | {"w": SplitWeights(whole[:, self.common], whole.T[self.rare])}, *others)

    def give(self, release: Tree) -> Tree:
        """Put the first weights of a change together again: what is always zero has not changed."""
        first, *others = release["change"]
        own = first["w"]
        both = jnp.concatenate([own.common, own.rare.T, jnp.zeros((len(own.common), 1), jnp.float32)], axis=1)
        place = np.full(self.features, both.shape[1] - 1)
        place[self.common] = np.arange(len(self.common))
        place[self.rare] = len(self.common) + np.arange(len(self.rare))
        return release | {"change": (first | {"w": both[:, place]}, *others)}


class SplitRows:
    """Some rows, examples as columns: the common part as a matrix, the rest where `Split` has it."""

    def __init__(self, split: Split, numbers: Array, common: Array) -> None:
        """Remember which rows they are."""
        self.split, self.numbers, self.common = split, numbers, common

    @property
    def T(self) -> SplitRows:
        """The model asks for examples as columns; products below know."""
        return self

    def once(self, array: Array) -> Array:
        """Have an array written out here, where XLA would work it out anew for every use (as `lane` fences)."""
        return jax.lax.cond(self.numbers[0] < 0, lambda own: own + own, lambda own: own, array)

    def add_rare(self, total: Array, source: Array, *, to_rows: bool) -> Array:
        """Add every rare number's multiple of a row of `source`: to its example, or to its column."""
        split, width = self.split, total.shape[1]

        def one(example: Array, at: Array, total: Array) -> Array:
            column = split.columns[at]
            to, of = (example, column) if to_rows else (column, example)
            more = split.values[at] * jax.lax.dynamic_slice(source, (of, 0), (1, width))
            return jax.lax.dynamic_update_slice(
                total, jax.lax.dynamic_slice(total, (to, 0), (1, width)) + more, (to, 0)
            )

        def of_row(example: Array, total: Array) -> Array:
            row = self.numbers[example]
            begin, end = split.ends[row], split.ends[row + 1]
            return jax.lax.fori_loop(begin, end, lambda at, own: one(example, at, own), total)

        return jax.lax.fori_loop(0, len(self.numbers), of_row, total)


jax.tree_util.register_pytree_node(
    SplitRows,
    lambda rows: ((rows.numbers, rows.common), rows.split),
    lambda split, children: SplitRows(split, *children),
)


@jax.tree_util.register_pytree_node_class
class SplitWeights:
    """The first layer's weights in two parts, or a change of them."""

    def __init__(self, common: Array, rare: Array) -> None:
        """Hold both parts."""
        self.common, self.rare = common, rare

    def tree_flatten(self) -> tuple[tuple[Array, Array], None]:
        """For JAX: two arrays."""
        return (self.common, self.rare), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Array, Array]) -> SplitWeights:
        """For JAX."""
        return cls(*children)

    def __mul__(self, strength: float) -> float:
        """Decay: none, or these weights could not be split."""
        if strength != 0.0:
            raise ValueError("weights that decay change in every column")
        return 0.0

    def __sub__(self, other: SplitWeights | SplitGradient) -> SplitWeights:
        """Make a step, or say what has changed."""
        if isinstance(other, SplitWeights):
            return SplitWeights(self.common - other.common, self.rare - other.rare)
        slope = other.slope * -other.factor
        rows = other.rows
        common = self.common - JAX.dot_t(other.slope, rows.common.T) * other.factor
        return SplitWeights(common, rows.add_rare(self.rare, slope.T, to_rows=False))

    def dot(self, rows: SplitRows) -> Array:
        """Multiply by rows; shape (outputs, size)."""
        nothing = jnp.zeros((len(rows.numbers), len(self.common)), jnp.float32)
        rare = rows.add_rare(nothing, self.rare, to_rows=True)
        return rows.once(JAX.dot(self.common, rows.common.T) + rare.T)


class SplitGradient:
    """A sum of outer products of slopes and rows, times a factor, not yet worked out."""

    def __init__(self, slope: Array, rows: SplitRows, factor: Any = 1.0) -> None:
        """Hold the factors."""
        self.slope, self.rows, self.factor = slope, rows, factor

    def __add__(self, decay: float) -> SplitGradient:
        """Add no decay."""
        return self

    def __mul__(self, factor: Array) -> SplitGradient:
        """Multiply by a number."""
        return SplitGradient(self.slope, self.rows, self.factor * factor)


def _dot(a: Any, b: Any) -> Any:
    return a.dot(b) if isinstance(a, SplitWeights) else JAX.dot(a, b)


def _dot_t(a: Any, b: Any) -> Any:
    return SplitGradient(a, b) if isinstance(b, SplitRows) else JAX.dot_t(a, b)


SPLIT = dataclasses.replace(JAX, dot=_dot, dot_t=_dot_t)
"""The operations of a device half whose rows and first weights are split."""


def split_rows(task: Task, rows: npt.NDArray[np.float32], regularisation: npt.NDArray[np.float32]) -> Split | None:
    """Split training rows where that saves enough; None where it does not, or where weights may move by themselves."""
    model, algorithm = task.model_for(NUMPY), task.build(NUMPY)
    first, plan = model.declared[0], task.plan(model)
    memory = algorithm.device_init().get("memory", ()) if algorithm.in_parts else ()
    if not algorithm.in_parts or plan.sound or regularisation.any() or trees.leaves(memory):
        return None
    if not isinstance(first, Dense) or algorithm.perturb:
        return None
    filled = np.count_nonzero(rows, axis=0) / len(rows)
    rare = (filled > 0) & (filled * (ENTRY + PER_OUTPUT * first.size) < first.size)
    common = filled > 0
    common[rare] = False
    if _saved(first.size, task.algorithm.local_batch, filled, common, rare) < LEAST:
        return None
    own, columns = np.nonzero(rows[:, rare])
    return Split(
        features=rows.shape[1],
        common=np.flatnonzero(common),
        rare=np.flatnonzero(rare),
        rows=jnp.asarray(rows[:, common]),
        ends=jnp.asarray(np.searchsorted(own, np.arange(len(rows) + 1)), jnp.int32),
        columns=jnp.asarray(columns, jnp.int32),
        values=jnp.asarray(rows[:, rare][own, columns]),
    )


def _saved(
    outputs: int,
    batch: int,
    filled: npt.NDArray[np.float64],
    common: npt.NDArray[np.bool_],
    rare: npt.NDArray[np.bool_],
) -> float:
    """Return the share of the first layer's two products, on one batch, that splitting saves."""
    whole = 2 * batch * outputs * len(filled)
    left = 2 * batch * outputs * int(common.sum())
    added = 2 * batch * float(filled[rare].sum()) * (ENTRY + PER_OUTPUT * outputs) + BEGIN
    return 1 - (left + added) / whole
