"""Lazy rows: the rows of a batch by number, read when a step uses them.

A device that takes several local steps uses a part of its batch in each. Read all at once, the rows of a long contact
would be written to memory and read again; part by part they stay in the cache.
"""

from __future__ import annotations

from typing import Any

import jax

from crowdml.core import Array
from crowdml.core.ops import Tree


def read(table: Any, numbers: Array) -> Any:
    """Read entries whose numbers the timeline has checked; a table that is no array reads its rows itself."""
    if hasattr(table, "read_rows"):
        return table.read_rows(numbers)
    return table.at[numbers].get(mode="promise_in_bounds", wrap_negative_indices=False)


class LazyRows:
    """Rows of a table by number: as much of an array as cutting a batch into parts needs."""

    def __init__(self, table: Any, numbers: Array) -> None:
        """Remember where to read what."""
        self.table, self.numbers = table, numbers

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the rows once they are read."""
        return (*self.numbers.shape, self.table.shape[1])

    def reshape(self, *shape: int) -> LazyRows:
        """Group rows differently; a row stays as long as it is."""
        if shape[-1] != self.table.shape[1]:
            raise ValueError(f"rows of {self.table.shape[1]} numbers cannot become {shape}")
        return LazyRows(self.table, self.numbers.reshape(shape[:-1]))

    def __getitem__(self, some: Array) -> Array:
        """Read some of the rows."""
        return read(self.table, self.numbers[some])


def read_lazy(tree: Tree) -> Tree:
    """Read all lazy rows in a tree; the barrier keeps XLA from reading them again for every use."""

    def now(leaf: Any) -> Array:
        if not isinstance(leaf, LazyRows):
            return leaf
        return jax.lax.optimization_barrier(read(leaf.table, leaf.numbers))  # type: ignore[no-untyped-call]

    return jax.tree.map(now, tree, is_leaf=lambda leaf: isinstance(leaf, LazyRows))


class _Same:
    """Holds a table in a tree's structure, where things are compared: the same object is the same table."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.table is self.table

    def __hash__(self) -> int:
        return id(self.table)


jax.tree_util.register_pytree_node(
    LazyRows,
    lambda rows: ((rows.numbers,), _Same(rows.table)),
    lambda same, children: LazyRows(same.table, children[0]),
)
