"""Model: a declared list of layers and a loss, with forward and per-example backward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from crowdml.core import Array, BadInput, Batch, Coins, Graph, Ops, Value, record, trees
from crowdml.core.ops import Tree
from crowdml.models.layers import Factors, Layer, LayerSettings, Shape
from crowdml.models.losses import Loss

PICTURES_AT_ONCE = 250
"""Pictures that are predicted together: their unfolded patches take many times the room of the pictures."""

Parameters = Tree
"""A tuple with one dict per layer, such as `({"w": …, "b": …}, {}, {"w": …})`."""


@record
class Gradients:
    """The per-example gradients of a batch, as one `Factors` per layer (None where a layer has no parameters).

    Attributes:
        layers: The factors, first layer first.
        outputs: The model's outputs for the batch, shape (width, size), so that predictions cost nothing more.
    """

    layers: tuple[Factors | None, ...]
    outputs: Array

    def norms(self, order: int, ops: Ops) -> Array:
        """Norm of each example's whole gradient, shape (size,)."""
        present = [layer for layer in self.layers if layer is not None]
        if order == 1:
            return sum(layer.absolute_norms() for layer in present)
        return ops.xp.sqrt(sum(layer.squared_norms() for layer in present))

    def layer_norms(self, ops: Ops) -> list[Array | None]:
        """L2 norm of each example's gradient, layer by layer; None where a layer has no parameters."""
        return [None if layer is None else ops.xp.sqrt(layer.squared_norms()) for layer in self.layers]

    def rows(self) -> Parameters:
        """Return each example's gradient: the parameters' shapes with examples as the first axis."""
        return tuple({} if layer is None else layer.rows() for layer in self.layers)

    def total(self, weights: Array) -> Parameters:
        """Sum of the examples' gradients, each times its weight."""
        return self.total_by_layer([weights] * len(self.layers))

    def total_by_layer(self, weights: Sequence[Array | None]) -> Parameters:
        """Sum of the examples' gradients, where an example may have another weight in every layer."""
        return tuple({} if layer is None else layer.total(own) for layer, own in zip(self.layers, weights, strict=True))


@record
class Model:
    """What a crowd learns: layers, a loss, and the shapes around them.

    Attributes:
        layers: The layers, in order.
        loss: The loss over the last layer's outputs.
        ops: The array operations they were built for.
        features: Length of a row.
        shape: Shape of one example as the first layer wants it.
        declared: The settings that the layers were built from.
    """

    layers: tuple[Layer, ...]
    loss: Loss
    ops: Ops
    features: int
    shape: Shape
    declared: tuple[LayerSettings, ...]

    @property
    def mixes(self) -> bool:
        """Whether one example's gradient depends on the other examples of its batch."""
        return any(layer.mixes for layer in self.layers)

    @property
    def linear(self) -> bool:
        """Whether outputs are linear in the parameters, with rows as they are."""
        return len(self.layers) == 1 and self.layers[0].linear

    def init(self, coins: Coins) -> Parameters:
        """Draw the first parameters."""
        return tuple(layer.init(coins, f"init/{index}") for index, layer in enumerate(self.layers))

    def zeros(self) -> Parameters:
        """Return parameters of the right shapes, all zero."""
        return trees.map(self.ops.xp.zeros_like, self.init(_Zeros(self.ops)))

    def outputs(self, parameters: Parameters, rows: Array) -> Array:
        """Run forward; outputs have shape (width, size)."""
        if len(self.shape) == 1:
            return self._forward(parameters, rows)[0]
        return self.ops.in_parts(lambda some: self._forward(parameters, some)[0], rows, PICTURES_AT_ONCE)

    def predict(self, parameters: Parameters, rows: Array) -> Array:
        """Return the class number of each row."""
        return self.loss.predict(self.outputs(parameters, rows))

    def losses(self, parameters: Parameters, rows: Array, labels: Array) -> Array:
        """Return the loss of each row."""
        return self.loss.values(self.outputs(parameters, rows), labels)

    def gradients(self, parameters: Parameters, batch: Batch) -> Gradients:
        """Run forward and backward, and return each example's gradient as factors."""
        outputs, memories = self._forward(parameters, batch.rows, batch.mask)
        slope = self.loss.slope(outputs, batch.labels)
        found: list[Factors | None] = []
        for index in reversed(range(len(self.layers))):
            layer, memory = self.layers[index], memories[index]
            found.append(layer.factors(parameters[index], memory, slope) if layer.factors else None)
            if index:
                slope = layer.pull_back(parameters[index], memory, slope)
        return Gradients(layers=tuple(reversed(found)), outputs=outputs)

    def gradient_bound(self, order: int, input_bound: float | None) -> float | None:
        """Return a proven bound on one example's gradient norm, or None where there is none.

        Only a model of one dense layer has one: the norm of the loss's slope times the norm of the row (with a
        bias, of the row with a 1 appended).
        """
        if not self.linear or self.loss.slope_bound is None or input_bound is None:
            return None
        return self.loss.slope_bound[order] * self.longest_input(order, input_bound)

    def smoothness(self, input_bound: float | None) -> float | None:
        """Return how fast one example's gradient changes with the parameters at most, in L2, for a convex loss.

        None where the loss is not convex and smooth in the parameters: they must enter linearly.
        """
        if not self.linear or self.loss.curvature is None or input_bound is None:
            return None
        return self.loss.curvature * self.longest_input(2, input_bound) ** 2

    def longest_input(self, order: int, input_bound: float) -> float:
        """Return the norm of a row as the first layer sees it: with a 1 appended where there is a bias."""
        if not self.layers[0].biased:
            return input_bound
        return input_bound + 1.0 if order == 1 else math.hypot(input_bound, 1.0)

    def regulariser(self, parameters: Parameters, strength: float) -> Parameters:
        """Return the gradient of ½ strength ‖w‖². Biases are not regularised."""

        def of_leaf(path: str, leaf: Array) -> Array:
            return leaf * strength if path.endswith("/w") else self.ops.xp.zeros_like(leaf)

        return trees.map_paths(of_leaf, parameters)

    def write(self, graph: Graph, parameters: Parameters, rows: Value) -> tuple[Value, Value]:
        """Write the model into a graph: scores of shape (size, width) and class numbers of shape (size,)."""
        x = rows if len(self.shape) == 1 else graph.add("Reshape", rows, graph.constant((-1, *self.shape)))
        for layer, own in zip(self.layers, parameters, strict=True):
            if layer.write is None:
                raise BadInput("a layer of this model cannot be exported", where="model.layers")
            x = layer.write(graph, own, x)
        scores = graph.add("Identity", x, name="scores")
        if not self.loss.by_sign:
            return scores, graph.add("ArgMax", scores, name="label", axis=1, keepdims=0)
        first = graph.add("Squeeze", scores, graph.constant((1,)))
        above = graph.add("Greater", first, graph.constant(self.ops.xp.float32(0)))
        return scores, graph.add("Cast", above, name="label", to="INT64")

    def _forward(self, parameters: Parameters, rows: Array, mask: Array | None = None) -> tuple[Array, list[Tree]]:
        x = rows.T if len(self.shape) == 1 else rows.reshape(-1, *self.shape)
        memories: list[Tree] = []
        for layer, own in zip(self.layers, parameters, strict=True):
            x, memory = layer.learn(own, x, mask) if layer.learn and mask is not None else layer.forward(own, x)
            memories.append(memory)
        return x, memories


class _Zeros:
    """Coins for a look at shapes: whatever is drawn is zero."""

    def __init__(self, ops: Ops) -> None:
        def draw(stage: str, *arguments: Any) -> Array:
            return ops.xp.zeros(arguments[-1], dtype=ops.xp.float32)

        self.uniform = self.laplace = self.gaussian = self.discrete_laplace = draw


def build(
    declared: tuple[LayerSettings, ...], loss: Loss, features: int, ops: Ops, shape: Shape | None = None
) -> Model:
    """Build a model from declared layers, checking that each fits the one before."""
    if shape is not None and math.prod(shape) != features:
        raise BadInput(
            f"the shape {list(shape)} holds {math.prod(shape)} numbers, a row has {features}",
            where="model.shape",
            hint="their product must be the number of features",
        )
    layers: list[Layer] = []
    first = at = shape or (features,)
    for settings in declared:
        layers.append(settings.build(at, ops))
        at = layers[-1].shape
    if at != (loss.width,):
        raise BadInput(
            f"the last layer gives {at}, the loss needs ({loss.width},)",
            where="model.layers",
            hint="change the last layer's size",
        )
    if not any(layer.factors for layer in layers):
        raise BadInput("none of the layers has anything to learn", where="model.layers", hint="add a dense layer")
    return Model(layers=tuple(layers), loss=loss, ops=ops, features=features, shape=first, declared=declared)
