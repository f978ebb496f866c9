"""Ops: what a kernel may do with arrays.

Kernels are written once, over an `Ops` that is handed in: NumPy on devices and on the server, JAX in the
simulation. Whatever both namespaces spell alike is used through `xp`; the few things that differ in spelling
or in speed have a name here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
"""An array of either namespace. Shapes are stated in docstrings and checked when a task is built."""

Tree: TypeAlias = Any
"""Nested dicts, tuples and tree records with arrays as leaves."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ops:
    """An array namespace and the operations whose best spelling depends on it.

    Attributes:
        name: For messages and tests.
        xp: The array namespace, `numpy` or `jax.numpy`.
        dot: `dot(a, b)` is `a @ b`.
        dot_t: `dot_t(a, b)` is `a @ b.T`.
        t_dot: `t_dot(a, b)` is `a.T @ b`.
        each_t_dot: `each_t_dot(a, b)` is `a[i].T @ b[i]` for every i.
        each_dot_t: `each_dot_t(a, b)` is `a[i] @ b[i].T` for every i.
        sum_of_squares: Of all numbers of an array.
        bits: `bits(x, dtype)` reads the same 32 bits as another type.
        fold: `fold(step, carry, xs)` applies `carry = step(carry, x)` along the first axis of the tree `xs`.
        repeat: `repeat(unfinished, step, carry)` applies `carry = step(carry)` while `unfinished(carry)` says so.
        in_parts: `in_parts(function, rows, size)` applies a function to so many rows at a time and joins what it gives
            along the last axis: the same as `function(rows)` with less memory.
        solve: `solve(a, b)` is `a⁻¹ b` for a symmetric positive definite `a`.
        wide: The widest floating-point type there is, for proofs that need double precision on a device.
    """

    name: str
    xp: Any
    dot: Callable[[Array, Array], Array]
    dot_t: Callable[[Array, Array], Array]
    t_dot: Callable[[Array, Array], Array]
    each_t_dot: Callable[[Array, Array], Array]
    each_dot_t: Callable[[Array, Array], Array]
    sum_of_squares: Callable[[Array], Array]
    bits: Callable[[Array, Any], Array]
    fold: Callable[[Callable[[Tree, Tree], Tree], Tree, Tree], Tree]
    repeat: Callable[[Callable[[Tree], Array], Callable[[Tree], Tree], Tree], Tree]
    in_parts: Callable[[Callable[[Array], Array], Array, int], Array]
    solve: Callable[[Array, Array], Array]
    wide: Any


def _fold(step: Callable[[Tree, Tree], Tree], carry: Tree, xs: Tree) -> Tree:
    from crowdml.core import trees

    for index in range(len(trees.leaves(xs)[0])):
        carry = step(carry, trees.map(lambda leaf, at=index: leaf[at], xs))
    return carry


def _repeat(unfinished: Callable[[Tree], Array], step: Callable[[Tree], Tree], carry: Tree) -> Tree:
    while unfinished(carry):
        carry = step(carry)
    return carry


def _in_parts(function: Callable[[Array], Array], rows: Array, size: int) -> Array:
    if len(rows) <= size:
        return function(rows)
    return np.concatenate([function(rows[begin : begin + size]) for begin in range(0, len(rows), size)], axis=-1)


def _sum_of_squares(a: Array) -> Array:
    flat = a.reshape(-1)
    return flat.dot(flat)


def _solve(a: Array, b: Array) -> Array:
    from scipy.linalg.lapack import dposv, sposv  # late: it costs half a second at every start

    _, found, problem = (sposv if a.dtype == np.float32 else dposv)(a, b, lower=1)
    # What rounding has made indefinite is left to a method that can do without; in compiled code it is not a number.
    return np.linalg.solve(a, b) if problem else found


NUMPY = Ops(
    name="numpy",
    xp=np,
    dot=lambda a, b: a @ b,
    dot_t=lambda a, b: a @ b.T,
    t_dot=lambda a, b: a.T @ b,
    each_t_dot=lambda a, b: a.transpose(0, 2, 1) @ b,
    each_dot_t=lambda a, b: a @ b.transpose(0, 2, 1),
    sum_of_squares=_sum_of_squares,
    bits=lambda x, dtype: np.asarray(x).view(dtype),
    fold=_fold,
    repeat=_repeat,
    in_parts=_in_parts,
    solve=_solve,
    wide=np.float64,
)
