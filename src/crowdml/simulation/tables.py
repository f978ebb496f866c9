"""Tables of the compiled loop: leaves of shape (lanes, slots, …), read and written in place."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from crowdml.core import Array
from crowdml.core.ops import Tree

UNROLLED = 16
"""Up to so many lanes are read one by one; beyond, a gather compiles faster and runs alike."""


def repeat(entries: Tree, slots: int) -> Tree:
    """Make a table with the same entry in every slot; entries have lanes as their first axis."""
    return jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], slots, axis=1), entries)


def store(table: Tree, first: Any, slots: Array, entries: Tree) -> Tree:
    """Write one entry per lane, for lanes from `first` on. Never by scatter, which XLA does not compile in place."""
    for lane in range(len(slots)):
        table = jax.tree.map(
            lambda leaf, own, lane=lane: jax.lax.dynamic_update_slice(
                leaf, own[lane][None, None], _index(leaf, first + lane, slots[lane])
            ),
            table,
            entries,
        )
    return table


def fetch(table: Tree, first: Any, slots: Array) -> Tree:
    """Read one entry per lane, for lanes from `first` on."""
    if len(slots) > UNROLLED:
        lanes = first + jnp.arange(len(slots))
        return jax.tree.map(lambda leaf: leaf.at[lanes, slots].get(mode="promise_in_bounds"), table)

    def read(leaf: Array) -> Array:
        parts = [
            jax.lax.dynamic_slice(leaf, _index(leaf, first + lane, slots[lane]), (1, 1, *leaf.shape[2:]))
            for lane in range(len(slots))
        ]
        return jnp.concatenate(parts).reshape(len(slots), *leaf.shape[2:])

    return jax.tree.map(read, table)


def _index(leaf: Array, lane: Any, slot: Array) -> tuple[Any, ...]:
    return (lane, slot, *[0] * (leaf.ndim - 2))
