"""Tables of the compiled loop: leaves of shape (replicas, slots, …) that are read and written in place."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from crowdml.core import Array
from crowdml.core.ops import Tree
from crowdml.simulation.engine.run_records import Carry

UNROLLED = 16
"""Up to so many replicas are read one by one; beyond, a gather compiles faster and runs alike."""


def finish(carry: Carry) -> Carry:
    """Write what is pending into the tables, so that they can be read."""
    if not carry.pending:
        return carry
    return dataclasses.replace(carry, tables=store(carry.tables, 0, *carry.pending))


def repeat(entries: Tree, slots: int) -> Tree:
    """Make a table with the same entry in every slot; entries have replicas as their first axis."""
    return jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], slots, axis=1), entries)


def store(table: Tree, first: Any, slots: Array, entries: Tree) -> Tree:
    """Write one entry per replica, from `first` on. Never by scatter, which XLA does not compile in place."""
    for replica in range(len(slots)):
        table = jax.tree.map(
            lambda leaf, entry, replica=replica: jax.lax.dynamic_update_slice(
                leaf, entry[replica][None, None], _index(leaf, first + replica, slots[replica])
            ),
            table,
            entries,
        )
    return table


def fetch(table: Tree, first: Any, slots: Array) -> Tree:
    """Read one entry per replica, from `first` on."""
    if len(slots) > UNROLLED:
        replicas = first + jnp.arange(len(slots))
        return jax.tree.map(lambda leaf: leaf.at[replicas, slots].get(mode="promise_in_bounds"), table)

    def read(leaf: Array) -> Array:
        parts = [
            jax.lax.dynamic_slice(leaf, _index(leaf, first + replica, slots[replica]), (1, 1, *leaf.shape[2:]))
            for replica in range(len(slots))
        ]
        return jnp.concatenate(parts).reshape(len(slots), *leaf.shape[2:])

    return jax.tree.map(read, table)


def _index(leaf: Array, replica: Any, slot: Array) -> tuple[Any, ...]:
    return (replica, slot, *[0] * (leaf.ndim - 2))
