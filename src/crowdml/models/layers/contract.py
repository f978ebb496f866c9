"""What a layer is: a forward and an explicit backward, written once over `ops`.

The backward half is in two parts. `factors` returns what is needed for the parameters' gradients of each example,
kept as the few vectors it is made of, so that norms and weighted sums never materialise one gradient per example.
`pull_back` carries the slope on to the layer before.

Inside a model examples are the *last* axis: activations have shape (units, size). Sums over units then run along
rows of memory, and every product is a plain matrix product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from crowdml.core import Array, Coins, Graph, Value, record
from crowdml.core.ops import Tree

Shape = tuple[int, ...]


class Factors(Protocol):
    """The per-example gradients of one layer, held as factors."""

    def squared_norms(self) -> Array:
        """Squared L2 norm of each example's gradient, shape (size,)."""
        ...

    def absolute_norms(self) -> Array:
        """L1 norm of each example's gradient, shape (size,)."""
        ...

    def rows(self) -> Tree:
        """Each example's gradient, written out: the shape of the parameters with examples as the first axis."""
        ...

    def total(self, weights: Array) -> Tree:
        """Sum of the examples' gradients, each times its weight; the shape of the layer's parameters."""
        ...


@record
class Layer:
    """One layer of a model.

    Attributes:
        shape: Shape of one example after this layer.
        init: Draws the first parameters: `init(coins, stage)`; `{}` for a layer without any.
        forward: `forward(parameters, x)` gives the output and what the backward half needs to remember.
        pull_back: `pull_back(parameters, memory, slope)` gives the slope with respect to `x`.
        factors: `factors(parameters, memory, slope)`, or None for a layer without parameters.
        biased: Whether the layer adds a constant; it is an input of 1 to anyone who bounds gradients.
        write: `write(graph, parameters, x)` writes the forward half into a graph, where examples are the *first* axis,
            and returns its output; None for a layer that cannot be exported.
    """

    shape: Shape
    init: Callable[[Coins, str], Tree]
    forward: Callable[[Tree, Array], tuple[Array, Tree]]
    pull_back: Callable[[Tree, Tree, Array], Array]
    factors: Callable[[Tree, Tree, Array], Factors] | None = None
    biased: bool = False
    write: Callable[[Graph, Tree, Value], Value] | None = None


def no_parameters(coins: Coins, stage: str) -> Tree:
    """Begin a layer that has nothing to learn."""
    return {}
