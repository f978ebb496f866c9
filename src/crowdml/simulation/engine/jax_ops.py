"""Ops for compiled code, the registration of our records as JAX trees, and rows that a fold reads when it uses them.

A device that takes several local steps uses a part of its batch in each. Read all at once, the rows of a long contact
would be written to memory and read again; part by part (`LazyRows`) they stay in the cache.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from crowdml.core import Array, Ops
from crowdml.core.ops import Tree
from crowdml.core.records import on_tree_record
from crowdml.simulation.engine import start_jax

start_jax()

Record = TypeVar("Record")

PACK = 4
"""XLA's convolution reads channels in packs of so many, and one by one where their number is no multiple of it, at a
quarter of the speed: channels of zeros are put to them."""


def as_tree(cls: type[Record]) -> type[Record]:
    """Tell JAX that a record is a tree whose fields are its children."""
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    jax.tree_util.register_dataclass(cls, data_fields=names, meta_fields=[])
    return cls


def read(table: Any, numbers: Array) -> Any:
    """Read entries whose numbers the timeline has checked; a table that is no array reads its rows itself."""
    if hasattr(table, "read_rows"):
        return table.read_rows(numbers)
    return table.at[numbers].get(mode="promise_in_bounds", wrap_negative_indices=False)


class LazyRows:
    """Rows of a table by number: as much of an array as cutting a batch into parts needs."""

    def __init__(self, table: Any, numbers: Array) -> None:
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


class Same:
    """Holds a table in a tree's structure, where things are compared: the same object is the same table."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.table is self.table

    def __hash__(self) -> int:
        return id(self.table)


jax.tree_util.register_pytree_node(
    LazyRows,
    lambda rows: ((rows.numbers,), Same(rows.table)),
    lambda same, children: LazyRows(same.table, children[0]),
)


def _fold(step, carry, xs):  # type: ignore[no-untyped-def]
    return jax.lax.scan(lambda state, x: (step(state, read_lazy(x)), None), carry, xs)[0]


def _sum_of_squares(a: Array) -> Array:
    """Add outer axes first, then halves.

    XLA adds up one number after the other, at four cycles each. The absolute value changes nothing and keeps XLA
    from merging the two sums into one.
    """
    squares = a * a
    sums = jnp.abs(jnp.sum(squares.reshape(-1, a.shape[-1]), axis=0)) if a.ndim > 1 else squares.reshape(-1)
    odd = jnp.float32(0)
    while sums.shape[0] > 8:
        half = sums.shape[0] // 2
        if sums.shape[0] % 2:
            odd = odd + sums[2 * half]
        sums = sums[:half] + sums[half : 2 * half]
    return jnp.sum(sums) + odd


def _in_parts(function, rows, size):  # type: ignore[no-untyped-def]
    """Cut parts where they are used: a table cut beforehand would be a copy, and lazy rows would all be read.

    The last part begins so early that it is as long as the others, and a function is compiled once.
    """
    lazy, numbers = (True, rows.numbers) if isinstance(rows, LazyRows) else (False, rows)
    count = len(numbers)

    def at(begin: Array) -> Array:
        some = jax.lax.dynamic_slice_in_dim(numbers, begin, size)
        return function(read(rows.table, some) if lazy else some)

    if count <= size:
        return function(read_lazy(rows))
    begins = jnp.arange(0, count, size).at[-1].set(count - size)
    parts = jax.lax.map(at, begins)
    joined = jnp.moveaxis(parts[:-1], 0, -2).reshape(*parts.shape[1:-1], -1)
    return jnp.concatenate([joined, parts[-1][..., joined.shape[-1] - count :]], axis=-1)


def _long_t_dot(a, b):  # type: ignore[no-untyped-def]
    """Transpose the narrower one by itself.

    XLA would take a transposition into the product, which its library does not know: it then takes twice as long, and a
    loop that holds nothing else becomes one kernel with a product of its own, at a fiftieth of the speed.
    """
    turned = jax.lax.optimization_barrier(a.T)  # type: ignore[no-untyped-call]
    return jnp.einsum("ij,jk->ik", turned, b)


def _sum_in_parts(function, arrays, size):  # type: ignore[no-untyped-def]
    count = len(arrays[0])
    if count <= size:
        return function(*arrays)
    size = next(part for part in range(size, 0, -1) if count % part == 0)
    parts = tuple(array.reshape(-1, size, *array.shape[1:]) for array in arrays)
    first = jax.eval_shape(function, *(array[:size] for array in arrays))
    begun = jnp.zeros(first.shape, first.dtype)
    return jax.lax.scan(lambda total, part: (total + function(*part), None), begun, parts)[0]


def _convolve(pictures, filters, stride, margin):  # type: ignore[no-untyped-def]
    above, below, left, right = margin
    missing = -filters.shape[2] % PACK if filters.shape[2] > 1 else 0
    if missing:
        pictures = jnp.pad(pictures, ((0, 0), (0, 0), (0, 0), (0, missing)))
        filters = jnp.pad(filters, ((0, 0), (0, 0), (0, missing), (0, 0)))
    return jax.lax.conv_general_dilated(
        pictures,
        filters,
        (stride, stride),
        ((above, below), (left, right)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


SMALL_PRODUCT = 64
"""Up to so many rows, columns and terms of a sum a product is written out, where `fenced` says so."""

_fence: ContextVar[Callable[[Array], Array] | None] = ContextVar("fence", default=None)


@contextlib.contextmanager
def fenced(fence: Callable[[Tree], Tree]) -> Iterator[None]:
    """Write small products out while a loop is traced; `fence` has an array computed once, where it stands.

    Calling a library costs more than such a product, and keeps XLA from compiling the loop into one kernel; XLA's own
    products add up one number after the other. Of sums of whole rows it makes vectors.
    """
    token = _fence.set(fence)
    try:
        yield
    finally:
        _fence.reset(token)


def is_small(*sizes: int) -> bool:
    """Tell whether a product of these sizes is written out; not with a vector, for which XLA has a good way."""
    return 2 < min(sizes) and max(sizes) <= SMALL_PRODUCT


def _dot(a: Array, b: Array) -> Array:
    fence = _fence.get()
    if fence is None or not is_small(*a.shape, b.shape[1]):
        return jnp.einsum("ij,jk->ik", a, b)
    # The rows of `a` lie side by side, as many as fill whole vectors, and `b` is read as rows of a batch lie in memory.
    across = fence(jnp.pad(a.T, ((0, 0), (0, -len(a) % 16))))
    return fence(_added_up([b[term][:, None] * across[term] for term in range(len(b))]))[:, : len(a)].T


def _dot_t(a: Array, b: Array) -> Array:
    fence = _fence.get()
    if fence is None or not is_small(*a.shape, len(b)):
        return jnp.einsum("ij,kj->ik", a, b)
    a = fence(a)
    return _added_up([a[:, term][:, None] * b[:, term] for term in range(a.shape[1])])


def _added_up(parts: list[Array]) -> Array:
    return functools.reduce(jnp.add, parts)


on_tree_record(as_tree)

JAX = Ops(
    name="jax",
    xp=jnp,
    # Written as einsum: XLA turns the transposed spelling into a copy first, at 1.6 to 3 times the cost.
    dot=_dot,
    dot_t=_dot_t,
    t_dot=lambda a, b: jnp.einsum("ji,jk->ik", a, b),
    long_t_dot=_long_t_dot,
    each_t_dot=lambda a, b: jnp.einsum("nji,njk->nik", a, b),
    each_dot_t=lambda a, b: jnp.einsum("nij,nkj->nik", a, b),
    sum_each=lambda a, axes: jnp.sum(a, axis=axes),
    weigh=lambda weights, rows: _dot(weights[None], rows)[0],
    sum_of_squares=_sum_of_squares,
    bits=jax.lax.bitcast_convert_type,
    fold=_fold,
    repeat=jax.lax.while_loop,
    in_parts=_in_parts,
    sum_in_parts=_sum_in_parts,
    convolve=_convolve,
    solve=lambda a, b: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a, lower=True), b),
    wide=jnp.float32,
    long=jnp.int32,
)
