"""Ops for compiled code, and the registration of our records as JAX trees."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import jax
import jax.numpy as jnp

from crowdml.core import Array, Ops
from crowdml.core.records import TREE_RECORDS
from crowdml.simulation.lazy_rows import read_lazy

Record = TypeVar("Record")


def as_tree(cls: type[Record]) -> type[Record]:
    """Tell JAX that a record is a tree whose fields are its children."""
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    jax.tree_util.register_dataclass(cls, data_fields=names, meta_fields=[])
    return cls


def _fold(step, carry, xs):  # type: ignore[no-untyped-def]
    return jax.lax.scan(lambda state, x: (step(state, read_lazy(x)), None), carry, xs)[0]


def _sum_of_squares(a: Array) -> Array:
    """Add outer axes first, then halves.

    XLA adds up one number after the other, at four cycles each. The absolute value changes nothing and keeps XLA
    from merging the two sums into one.
    """
    squares = a * a
    lanes = jnp.abs(jnp.sum(squares.reshape(-1, a.shape[-1]), axis=0)) if a.ndim > 1 else squares.reshape(-1)
    odd = jnp.float32(0)
    while lanes.shape[0] > 8:
        half = lanes.shape[0] // 2
        if lanes.shape[0] % 2:
            odd = odd + lanes[2 * half]
        lanes = lanes[:half] + lanes[half : 2 * half]
    return jnp.sum(lanes) + odd


def _in_parts(function, rows, size):  # type: ignore[no-untyped-def]
    whole = len(rows) // size * size
    if len(rows) <= size:
        return function(rows)
    parts = jax.lax.map(function, rows[:whole].reshape(-1, size, *rows.shape[1:]))
    joined = jnp.moveaxis(parts, 0, -2).reshape(*parts.shape[1:-1], whole)
    return joined if whole == len(rows) else jnp.concatenate([joined, function(rows[whole:])], axis=-1)


for _record in TREE_RECORDS:
    as_tree(_record)

JAX = Ops(
    name="jax",
    xp=jnp,
    # Written as einsum: XLA turns the transposed spelling into a copy first, at 1.6 to 3 times the cost.
    dot=lambda a, b: jnp.einsum("ij,jk->ik", a, b),
    dot_t=lambda a, b: jnp.einsum("ij,kj->ik", a, b),
    t_dot=lambda a, b: jnp.einsum("ji,jk->ik", a, b),
    each_t_dot=lambda a, b: jnp.einsum("nji,njk->nik", a, b),
    each_dot_t=lambda a, b: jnp.einsum("nij,nkj->nik", a, b),
    sum_of_squares=_sum_of_squares,
    bits=jax.lax.bitcast_convert_type,
    fold=_fold,
    repeat=jax.lax.while_loop,
    in_parts=_in_parts,
    solve=lambda a, b: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a, lower=True), b),
    wide=jnp.float32,
)
