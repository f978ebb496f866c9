"""Inputs: how a device of the compiled loop reads its rows and works on them; whole, or without their rare columns.

`data_tables` chooses, and nobody else knows which it is. `DenseInputs` takes rows as they are. `SparseInputs` is for
rows that are mostly zero.

A pixel at the edge of a picture is zero in nearly all rows, and costs a matrix product as much as any other. Here the
first layer's products take the common columns only. What the rare ones hold is added number by number: forward
`v · w[column]` to its row, backward `v · slope[row]` to its column. Nothing is left out, so the results are those of
the whole product but for the order in which numbers are added.

The device part of an algorithm does not know: its first weights are `SplitWeights`, its rows `SplitRows`, and the
gradient between them stays two factors until it is subtracted. That works where a step is a multiple of the gradient:
a weight whose gradient is zero must not move, so there is no decay, and the rate keeps no memory.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from crowdml.algorithms import Phase
from crowdml.algorithms.recipe import Hyper
from crowdml.core import Array, Batch, Broadcast, Coins, Release, record
from crowdml.core.ops import Tree
from crowdml.simulation.engine.data_tables import DataTables
from crowdml.simulation.engine.jax_ops import JAX, LazyRows, Same, read, read_lazy
from crowdml.task import Task


class Inputs(Protocol):
    """How a device reads its rows, and works on them."""

    @property
    def one_at_a_time(self) -> bool:
        """Whether replicas run one after the other, as their work differs in length."""

    def rows(self, numbers: Array) -> Any:
        """Return training rows by number, read now or when their turn comes."""

    def step(
        self, phase: Phase, hyper: Hyper, broadcast: Broadcast, work: Tree, batch: Batch, coins: Coins
    ) -> tuple[Release, Tree]:
        """Do what the device part of a phase does between check-out and noise, on a batch of such rows."""


@record
class DenseInputs:
    """Training rows as they are.

    Attributes:
        table: All of them.
        in_parts: Whether they are read when their turn comes, which changes speed only.
    """

    table: Array
    in_parts: bool
    one_at_a_time = False

    def rows(self, numbers: Array) -> Any:
        """Return rows by number."""
        rows = LazyRows(self.table, numbers)
        return rows if self.in_parts else read_lazy(rows)

    def step(
        self, phase: Phase, hyper: Hyper, broadcast: Broadcast, work: Tree, batch: Batch, coins: Coins
    ) -> tuple[Release, Tree]:
        """Have the device part work."""
        return phase.device.step(broadcast, work, batch, coins)


@record
class SparseInputs:
    """Training rows by common and by rare columns.

    Attributes:
        task: Builds the device part that takes split weights and rows.
        common: Numbers of the common columns; their weights have shape (outputs, common).
        rare: Numbers of the others that are not zero everywhere; their weights have shape (rare, outputs).
        place: Where each column stands when common and rare ones are side by side; behind them is one of zeros.
        common_rows: The common columns of all rows.
        ends: Where the numbers of each row end in `columns` and `values`; those of row r begin at `ends[r]`.
        columns: Index into `rare` of every number there that is not zero.
        values: The numbers.
    """

    task: Task
    common: Array
    rare: Array
    place: Array
    common_rows: Array
    ends: Array
    columns: Array
    values: Array
    # Numbers are added one by one, and replicas differ in how many there are.
    one_at_a_time = True

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the rows before they were split."""
        return len(self.common_rows), len(self.place)

    def rows(self, numbers: Array) -> LazyRows:
        """Return rows by number, read when their turn comes."""
        return LazyRows(self, numbers)

    def read_rows(self, numbers: Array) -> SplitRows:
        """Read the common part of some rows; the rest is read where it is used."""
        return SplitRows(self, numbers, read(self.common_rows, numbers))

    def step(
        self, phase: Phase, hyper: Hyper, broadcast: Broadcast, work: Tree, batch: Batch, coins: Coins
    ) -> tuple[Release, Tree]:
        """Have a device part of the same make work on split weights."""
        device = self.task.build(SPLIT, dict(hyper) | {"regularisation": 0.0}).last.device
        release, work = device.step(self._split(broadcast), work, batch, coins)
        return self._whole(release), work

    def _split(self, broadcast: Broadcast) -> Broadcast:
        """Split the first weights of what a device has checked out."""
        first, *others = broadcast.parameters
        whole = first["w"]
        split = first | {"w": SplitWeights(_columns(whole, self.common), read(whole.T, self.rare))}
        return dataclasses.replace(broadcast, parameters=(split, *others))

    def _whole(self, release: Release) -> Release:
        """Put the first weights of a change together again: what is always zero has not changed."""
        first, *others = release.update
        change = first["w"]
        nothing = jnp.zeros((len(change.common), 1), jnp.float32)
        both = jnp.concatenate([change.common, change.rare.T, nothing], axis=1)
        return dataclasses.replace(release, update=(first | {"w": _columns(both, self.place)}, *others))


def _columns(matrix: Array, numbers: Array) -> Array:
    return matrix.at[:, numbers].get(mode="promise_in_bounds", wrap_negative_indices=False)


class SplitRows:
    """Some rows, examples as columns: the common part as a matrix, the rest where the inputs have it."""

    def __init__(self, inputs: SparseInputs, numbers: Array, common: Array) -> None:
        self.inputs, self.numbers, self.common = inputs, numbers, common

    @property
    def T(self) -> SplitRows:
        """The model asks for examples as columns; products below know."""
        return self

    def once(self, array: Array) -> Array:
        """Have an array written out here, where XLA would work it out anew for every use (as `replica` fences)."""
        return jax.lax.cond(self.numbers[0] < 0, lambda given: given + given, lambda given: given, array)

    def add_rare(self, total: Array, source: Array, *, to_rows: bool) -> Array:
        """Add every rare number's multiple of a row of `source`: to its example, or to its column."""
        inputs, width = self.inputs, total.shape[1]

        def one(example: Array, at: Array, total: Array) -> Array:
            column = inputs.columns[at]
            to, of = (example, column) if to_rows else (column, example)
            more = inputs.values[at] * jax.lax.dynamic_slice(source, (of, 0), (1, width))
            return jax.lax.dynamic_update_slice(
                total, jax.lax.dynamic_slice(total, (to, 0), (1, width)) + more, (to, 0)
            )

        def of_row(example: Array, total: Array) -> Array:
            row = self.numbers[example]
            begin, end = inputs.ends[row], inputs.ends[row + 1]
            return jax.lax.fori_loop(begin, end, lambda at, so_far: one(example, at, so_far), total)

        return jax.lax.fori_loop(0, len(self.numbers), of_row, total)


jax.tree_util.register_pytree_node(
    SplitRows,
    lambda rows: ((rows.numbers, rows.common), Same(rows.inputs)),
    lambda same, children: SplitRows(same.table, *children),
)


@jax.tree_util.register_pytree_node_class
class SplitWeights:
    """The first layer's weights in two parts, or a change of them."""

    def __init__(self, common: Array, rare: Array) -> None:
        self.common, self.rare = common, rare

    def tree_flatten(self) -> tuple[tuple[Array, Array], None]:
        """Tell JAX that both parts are arrays."""
        return (self.common, self.rare), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Array, Array]) -> SplitWeights:
        """Put the parts back together for JAX."""
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
        self.slope, self.rows, self.factor = slope, rows, factor

    def __add__(self, decay: float) -> SplitGradient:
        """Return itself: the only decay that is ever added here is 0."""
        return self

    def __mul__(self, factor: Array) -> SplitGradient:
        """Multiply by a number."""
        return SplitGradient(self.slope, self.rows, self.factor * factor)


def _dot(a: Any, b: Any) -> Any:
    return a.dot(b) if isinstance(a, SplitWeights) else JAX.dot(a, b)


def _dot_t(a: Any, b: Any) -> Any:
    return SplitGradient(a, b) if isinstance(b, SplitRows) else JAX.dot_t(a, b)


SPLIT = dataclasses.replace(JAX, dot=_dot, dot_t=_dot_t)
"""The operations of a device part whose rows and first weights are split."""


def inputs_of(tables: DataTables, task: Task) -> Inputs:
    """Return what devices read their rows from, as the tables have them."""
    rows = tables.rows
    if "whole" in rows:
        return DenseInputs(table=rows["whole"], in_parts=task.built.hints.in_parts)
    return SparseInputs(task=task, **rows)
