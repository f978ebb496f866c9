"""What a kernel is handed: array operations, and coins.

Kernels are written once, over an `Ops`: NumPy on devices and on the server, JAX in the simulation. Whatever both
namespaces spell alike is used through `xp`; the few things that differ in spelling or in speed have a name here.

Coins are the only randomness a kernel may use. A draw is addressed by the check-in the coins were made for, a stage
name and its shape. The simulation answers from a counter hash, a device from the operating system's entropy, a test
from given values: so a formula with noise in it can be checked against the same numbers everywhere. All draws have unit
scale where a scale exists.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from crowdml.core import trees
from crowdml.core.records import record
from crowdml.core.trees import Array as Array
from crowdml.core.trees import Num, SameTree
from crowdml.core.trees import Tree as Tree


@record
class Ops:
    """An array namespace and the operations whose best spelling depends on it.

    Attributes:
        name: For messages and tests.
        xp: The array namespace, `numpy` or `jax.numpy`.
        dot: `dot(a, b)` is `a @ b`.
        dot_t: `dot_t(a, b)` is `a @ b.T`.
        t_dot: `t_dot(a, b)` is `a.T @ b`.
        long_t_dot: The same for matrices of many rows, the wider one on the right.
        each_t_dot: `each_t_dot(a, b)` is `a[i].T @ b[i]` for every i.
        each_dot_t: `each_dot_t(a, b)` is `a[i] @ b[i].T` for every i.
        sum_each: `sum_each(a, axes)` is the sum over axes. Over NumPy the bits of a sum do not depend on how many
            others stand beside it, so that whoever has some of them finds the same.
        weigh: `weigh(weights, rows)` is the sum of rows, each times its weight; column by column as `sum_each`.
        sum_of_squares: Of all numbers of an array.
        bits: `bits(x, dtype)` reads the same 32 bits as another type.
        fold: `fold(step, carry, xs)` applies `carry = step(carry, x)` along the first axis of the tree `xs`.
        repeat: `repeat(unfinished, step, carry)` applies `carry = step(carry)` while `unfinished(carry)` says so.
        in_parts: `in_parts(function, rows, size)` applies a function to so many rows at a time and joins what it gives
            along the last axis: the same as `function(rows)` with less memory.
        sum_in_parts: `sum_in_parts(function, arrays, size)` applies a function to at most so many entries of all arrays
            at a time and adds up what it gives: `function(*arrays)` but for the order of sums, within the cache.
        convolve: `convolve(pictures, filters, stride, margin)` multiplies every window of pictures, of shape (size,
            height, width, channels), by filters of shape (kernel, kernel, channels, outputs), after zeros were put
            around them: above, below, left, right. None where windows are better unfolded.
        solve: `solve(a, b)` is `a⁻¹ b` for a symmetric positive definite `a`.
        wide: The widest floating-point type there is, for proofs that need double precision on a device.
        long: The widest type of whole numbers there is, for sums on a device that must not wrap around.
    """

    name: str
    xp: Any
    dot: Callable[[Array, Array], Array]
    dot_t: Callable[[Array, Array], Array]
    t_dot: Callable[[Array, Array], Array]
    long_t_dot: Callable[[Array, Array], Array]
    each_t_dot: Callable[[Array, Array], Array]
    each_dot_t: Callable[[Array, Array], Array]
    sum_each: Callable[[Array, tuple[int, ...]], Array]
    weigh: Callable[[Array, Array], Array]
    sum_of_squares: Callable[[Array], Array]
    bits: Callable[[Array, Any], Array]
    fold: Callable[[Callable[[Tree, Tree], Tree], Tree, Tree], Tree]
    repeat: Callable[[Callable[[Tree], Array], Callable[[Tree], Tree], Tree], Tree]
    in_parts: Callable[[Callable[[Array], Array], Array, int], Array]
    sum_in_parts: Callable[[Callable[..., Array], tuple[Array, ...], int], Array]
    convolve: Callable[[Array, Array, int, tuple[int, int, int, int]], Array] | None
    solve: Callable[[Array, Array], Array]
    wide: Any
    long: Any


def _fold(step: Callable[[Tree, Tree], Tree], carry: Tree, xs: Tree) -> Tree:
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


def _sum_in_parts(function: Callable[..., Array], arrays: tuple[Array, ...], size: int) -> Array:
    if len(arrays[0]) <= size:
        return function(*arrays)
    parts = ([array[begin : begin + size] for array in arrays] for begin in range(0, len(arrays[0]), size))
    return sum(function(*part) for part in parts)


def _sum_each(a: Array, axes: tuple[int, ...]) -> Array:
    # Each sum runs along a row of memory. Otherwise NumPy adds in another order where there is one sum only.
    kept = tuple(axis for axis in range(a.ndim) if axis not in axes)
    shape = tuple(a.shape[axis] for axis in kept)
    rows = np.ascontiguousarray(a.transpose(*kept, *axes)).reshape(math.prod(shape), -1)
    return rows.sum(axis=1).reshape(shape)


def _sum_of_squares(a: Array) -> Array:
    flat = a.reshape(-1)
    return flat.dot(flat)


def _solve(a: Array, b: Array) -> Array:
    from scipy.linalg.lapack import dposv, sposv  # late: it costs half a second at every start

    _, found, problem = (sposv if a.dtype == np.float32 else dposv)(a, b, lower=1)
    # What rounding has made indefinite is left to a method that can do without; in compiled code it is not a number.
    return np.linalg.solve(a, b) if problem else found


@np.errstate(invalid="ignore")
def _dot(a: Array, b: Array) -> Array:
    # Some kernels of OpenBLAS compute on what stands beside a small matrix and throw that away: finite numbers, a right
    # product, and yet, once in many thousand calls, a warning. What is not finite is refused where it is used.
    return a @ b


NUMPY = Ops(
    name="numpy",
    xp=np,
    dot=_dot,
    dot_t=lambda a, b: _dot(a, b.T),
    t_dot=lambda a, b: _dot(a.T, b),
    long_t_dot=lambda a, b: _dot(a.T, b),
    each_t_dot=lambda a, b: _dot(a.transpose(0, 2, 1), b),
    each_dot_t=lambda a, b: _dot(a, b.transpose(0, 2, 1)),
    sum_each=_sum_each,
    weigh=lambda weights, rows: _sum_each(weights[:, None] * rows, (0,)),
    sum_of_squares=_sum_of_squares,
    bits=lambda x, dtype: np.asarray(x).view(dtype),
    fold=_fold,
    repeat=_repeat,
    in_parts=_in_parts,
    sum_in_parts=_sum_in_parts,
    convolve=None,
    solve=_solve,
    wide=np.float64,
    long=np.int64,
)


def joined(tree: Tree, ops: Ops) -> Num[Array, " numbers"]:
    """Make one vector of a tree's leaves, in their order.

    >>> import numpy as np
    >>> joined({"b": np.ones(2), "a": np.zeros((1, 2))}, NUMPY).tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    found = trees.leaves(tree)
    return found[0].reshape(-1) if len(found) == 1 else ops.xp.concatenate([leaf.reshape(-1) for leaf in found])


def squared_norm(tree: Tree, ops: Ops) -> Num[Array, ""]:
    """Sum of squares over all leaves."""
    return sum((ops.sum_of_squares(leaf) for leaf in trees.leaves(tree)), start=0.0)


def onto_ball(parameters: SameTree, radius: Array, ops: Ops) -> SameTree:
    """Shrink parameters whose norm exceeds the radius; leave others as they are (Crowd-ML 2015, equation 3)."""
    norm = ops.xp.sqrt(squared_norm(parameters, ops))
    # The floor keeps zero from dividing, and is large enough for any radius not to overflow.
    factor = ops.xp.minimum(ops.xp.float32(1), radius / ops.xp.maximum(norm, ops.xp.float32(1e-18)))
    return trees.map(lambda leaf: leaf * factor, parameters)


def shrinker(radius: float) -> Callable[[npt.NDArray[np.float32]], None]:
    """Return the same for one vector, in place and without arrays of one number; it changes the same bits.

    Roots and quotients of float32 numbers taken in double precision and rounded once more are the float32 results:
    double precision has more than twice the digits.
    """
    longest = float(np.float32(radius))

    def shrink(vector: npt.NDArray[np.float32]) -> None:
        norm = float(np.float32(math.sqrt(vector.dot(vector))))
        if not norm <= longest:
            np.multiply(vector, np.float32(longest / norm), vector)

    return shrink


class Coins(Protocol):
    """Named draws. Asking twice for the same stage of the same check-in is a mistake."""

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Uniform on (0, 1), float32."""
        ...

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Laplace with scale 1 (variance 2), float32."""
        ...

    def gaussian(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Gaussian with standard deviation 1, float32."""
        ...

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Integers z with probability proportional to exp(-|z| / scale), int32."""
        ...


class GridCoins(Coins, Protocol):
    """What sound mode draws besides. Every driver's coins are of this kind; a test of other modes needs less."""

    def discrete_gaussian(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Integers z with probability proportional to exp(-z² / (2 scale²)), int32."""
        ...

    def rounded_gaussian(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Integers nearest to Gaussian numbers of standard deviation `scale`, int32."""
        ...

    def skellam(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Differences of two Poisson draws of mean scale²/2 each, int32; the scale is never traced."""
        ...

    def retry(self, number: Array) -> GridCoins:
        """Coins for another try at the same stages, the `number`th; it may be traced."""
        ...


class ZeroCoins:
    """Coins that always fall the same way, for a look at shapes: noise is zero, a uniform draw is one half.

    >>> coins = ZeroCoins()
    >>> coins.uniform("init", (2,)).tolist(), coins.gaussian("noise", (2,)).tolist()
    ([0.5, 0.5], [0.0, 0.0])

    Args:
        ops: The array operations that draws are made for.
    """

    def __init__(self, ops: Ops = NUMPY) -> None:
        self._xp = ops.xp

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Array:
        """One half: the middle of (0, 1)."""
        return self._xp.full(shape, 0.5, dtype=self._xp.float32)

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Zero, as a float."""
        return self._xp.zeros(shape, dtype=self._xp.float32)

    gaussian = laplace

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Zero, as a whole number."""
        return self._xp.zeros(shape, dtype=self._xp.int32)

    discrete_gaussian = discrete_laplace
    rounded_gaussian = discrete_laplace
    skellam = discrete_laplace

    def retry(self, number: Array) -> ZeroCoins:
        """Another try falls no other way."""
        return self
