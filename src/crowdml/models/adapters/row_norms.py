"""Norms of a single row's gradient, without writing down gradients that are outer products.

Of one row, the gradient of a matrix that a vector is multiplied with is the outer product u vᵀ of that vector and the
slope behind it. Its entries are all products uᵢ vⱼ, so its norm is |u| |v|, in L1 and in L2: a few hundred
multiplications instead of a hundred thousand. Which gradients are such products is read off the traced program itself,
so it holds for any model and any loss. Every other gradient, that of a convolution or of a matrix that is used twice,
is computed whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from crowdml.core.trees import Array, Tree

SAME_NUMBERS = {"transpose", "reshape", "squeeze", "expand_dims", "neg", "copy"}
"""Operations after which the same numbers are there, in another order or with another sign."""


def gradient_norm(gradient: Callable[..., Tree], order: int, *given: Tree) -> Array:
    """Return the norm of a gradient in L1, or its square in L2.

    Args:
        gradient: Returns the gradient of one row, as a tree.
        order: 1 or 2.
        *given: What it is called with.
    """
    import jax

    program = jax.make_jaxpr(lambda *arrays: jax.tree.leaves(gradient(*arrays)))(*given)
    jaxpr = program.jaxpr
    made_by = {variable: equation for equation in jaxpr.eqns for variable in equation.outvars}
    wanted = [_factors(variable, made_by) for variable in jaxpr.outvars]
    # The same program with other outputs; what these do not need is not compiled.
    shorter = jaxpr.replace(outvars=[one for factors in wanted for one in factors])
    values = iter(jax.core.eval_jaxpr(shorter, program.consts, *jax.tree.leaves(given)))
    return sum(_norm([next(values) for _ in factors], order) for factors in wanted)


def _factors(variable: Any, made_by: dict[Any, Any]) -> list[Any]:
    """Return the two vectors whose outer product a variable holds, or the variable itself."""
    from jax.extend.core import Literal

    at = variable
    while not isinstance(at, Literal) and at in made_by:
        equation = made_by[at]
        if equation.primitive.name == "dot_general":
            return list(equation.invars) if _is_outer(equation) else [variable]
        if equation.primitive.name not in SAME_NUMBERS:
            break
        at = equation.invars[0]
    return [variable]


def _is_outer(equation: Any) -> bool:
    """Tell whether a product sums over nothing: every number of one side meets every number of the other."""
    (summed, _), (paired, _) = equation.params["dimension_numbers"]
    shape = equation.invars[0].aval.shape
    return all(shape[axis] == 1 for axis in (*summed, *paired))


def _norm(factors: list[Array], order: int) -> Array:
    """Return the norm of a product from its factors; squares of long vectors and short ones neither grow nor vanish."""
    import jax
    import jax.numpy as jnp

    if len(factors) == 1 or order == 1:
        return math.prod(_size(found, order) for found in factors)
    largest = [jnp.max(jnp.abs(found)) for found in factors]
    units = [jnp.where((most > 0) & jnp.isfinite(most), most, 1.0) for most in largest]
    hold: Callable[[Array], Array] = jax.lax.optimization_barrier  # else XLA squares first, and divides the sum
    scaled = [_size(hold(each / unit), 2) for each, unit in zip(factors, units, strict=True)]
    length = math.prod(jnp.sqrt(size) * unit for size, unit in zip(scaled, units, strict=True))
    return jnp.square(hold(length))


def _size(found: Array, order: int) -> Array:
    """Return the sum of absolute values, or of squares."""
    import jax.numpy as jnp

    positive = found * found if order == 2 else jnp.abs(found)
    # Over lines first: of such sums XLA makes vectors. The absolute value changes nothing, and keeps it from merging
    # the two sums into one.
    return jnp.sum(jnp.abs(jnp.sum(positive.reshape(-1, found.shape[-1] if found.ndim else 1), axis=0)))
