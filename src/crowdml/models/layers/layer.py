"""What a layer is: a forward and an explicit backward, written once over `ops`.

The backward half is in two parts. `factors` returns what is needed for the parameters' gradients of each example,
kept as the few vectors it is made of, so that norms and weighted sums never materialise one gradient per example.
`pull_back` carries the slope on to the layer before.

Inside a model flat examples are the *last* axis: activations have shape (units, size). Sums over units then run along
rows of memory, and every product is a plain matrix product. Examples of more than one axis are the *first*: pictures
have shape (size, height, width, channels). One example's patches then lie together, which is what a product for each
example needs, and channels are next to each other. A flatten layer stands between the two.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Protocol

from crowdml.core import Array, BadInput, Coins, Float, Graph, Ops, Registry, Settings, Tree, Value, record

Shape = tuple[int, ...]


class Factors(Protocol):
    """The per-example gradients of one layer, held as factors."""

    def squared_norms(self) -> Float[Array, " size"]:
        """Squared L2 norm of each example's gradient, shape (size,)."""
        ...

    def absolute_norms(self) -> Float[Array, " size"]:
        """L1 norm of each example's gradient, shape (size,)."""
        ...

    def rows(self) -> Tree:
        """Each example's gradient, written out: the shape of the parameters with examples as the first axis."""
        ...

    def total(self, weights: Float[Array, " size"]) -> Tree:
        """Sum of the examples' gradients, each times its weight; the shape of the layer's parameters."""
        ...


def no_parameters(coins: Coins, stage: str) -> Tree:
    """Begin a layer that has nothing to learn."""
    return {}


def first_biases(size: int, reach: float, coins: Coins, stage: str, ops: Ops) -> Array:
    """Draw the first biases, uniform ±reach; zero where it is 0, which needs no coin."""
    if not reach:
        return ops.xp.zeros((size,), dtype=ops.xp.float32)
    return (coins.uniform(f"{stage}/b", (size,)) * 2 - 1) * reach


@record
class Layer:
    """One layer of a model.

    Attributes:
        shape: Shape of one example after this layer.
        forward: `forward(parameters, x)` gives the output and what the backward half needs to remember.
        pull_back: `pull_back(parameters, memory, slope)` gives the slope with respect to `x`.
        init: Draws the first parameters: `init(coins, stage)`; `{}` for a layer without any.
        factors: `factors(parameters, memory, slope)`, or None for a layer without parameters.
        biased: Whether the layer adds a constant; it is an input of 1 to anyone who bounds gradients.
        linear: Whether outputs are weights times inputs (and a constant each), so that a bound on a row bounds the
            gradient. A layer that normalises is not: it makes short rows long.
        mixes: Whether an example's output depends on the other examples of the batch while the model learns. Then the
            gradient of one example has no bound of its own.
        learn: `learn(parameters, x, mask)` stands for `forward` while the model learns, where that is another
            calculation; examples whose mask is 0 are padding.
        write: `write(graph, parameters, x)` writes the forward half into a graph, where examples are the *first* axis,
            and returns its output; None for a layer that cannot be exported.
        numpy_only: Whether it takes NumPy arrays alone, so that no simulation can compile it.
    """

    shape: Shape
    forward: Callable[[Tree, Array], tuple[Array, Tree]]
    pull_back: Callable[[Tree, Tree, Array], Array]
    init: Callable[[Coins, str], Tree] = no_parameters
    factors: Callable[[Tree, Tree, Array], Factors] | None = None
    biased: bool = False
    linear: bool = False
    mixes: bool = False
    learn: Callable[[Tree, Array, Array], tuple[Array, Tree]] | None = None
    write: Callable[[Graph, Tree, Value], Value] | None = None
    numpy_only: bool = False


class LayerSettings(Settings):
    """The interface of all layers of a task file. A leaf class is final."""

    kind: str = ""

    @abc.abstractmethod
    def build(self, shape: Shape, ops: Ops) -> Layer:
        """Make the layer for examples of the given shape."""


LAYERS: Registry[type[LayerSettings]] = Registry("layer", {})
"""Layers by name; `crowdml.models.layers` fills it. Layers that hold others look into it."""


@record
class RowFactors:
    """Gradients that are short enough to be written out: for each example a few vectors, examples as the first axis."""

    each: dict[str, Array]
    ops: Ops

    def squared_norms(self) -> Float[Array, " size"]:
        """Add up squares."""
        return sum(self.ops.xp.sum(rows * rows, axis=1) for rows in self.each.values())

    def absolute_norms(self) -> Float[Array, " size"]:
        """Add up absolute values."""
        return sum(self.ops.xp.sum(self.ops.xp.abs(rows), axis=1) for rows in self.each.values())

    def rows(self) -> Tree:
        """They are written out already."""
        return self.each

    def total(self, weights: Float[Array, " size"]) -> Tree:
        """Weighted sum."""
        return {name: self.ops.weigh(weights, rows) for name, rows in self.each.items()}


def require_picture(kind: str, shape: Shape) -> tuple[int, int, int]:
    """Refuse examples that are not pictures; return height, width and channels."""
    if len(shape) != 3:
        raise BadInput(
            f"a {kind} layer takes pictures (height, width, channels), not {shape}",
            where="model.shape",
            hint="such as shape = [28, 28, 1] for MNIST or [32, 32, 3] for CIFAR-10",
        )
    return shape[0], shape[1], shape[2]


def channels_first(graph: Graph, x: Value) -> Value:
    """Turn pictures as they are here into pictures as ONNX wants them."""
    return graph.add("Transpose", x, perm=(0, 3, 1, 2))


def channels_last(graph: Graph, x: Value) -> Value:
    """Turn pictures back."""
    return graph.add("Transpose", x, perm=(0, 2, 3, 1))
