"""Model: a declared list of layers and a loss, with forward and per-example backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput, Batch, Coins, Graph, Labels, Number, Ops, Value, ZeroCoins, record, trees
from crowdml.core.trees import Array, Float, Num, SameTree, Tree
from crowdml.models.layers import Factors, Layer, LayerSettings, Shape
from crowdml.models.losses import Loss

NUMBERS_AT_ONCE = 1 << 21
"""Numbers that predictions hold at a time, of rows and of what layers make of them: more rows go through in parts."""

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
    outputs: Float[Array, "width size"]

    def norms(self, order: int, ops: Ops) -> Float[Array, " size"]:
        """Norm of each example's whole gradient, shape (size,)."""
        present = [layer for layer in self.layers if layer is not None]
        if order == 1:
            return sum(layer.absolute_norms() for layer in present)
        return ops.xp.sqrt(sum(layer.squared_norms() for layer in present))

    def layer_norms(self, ops: Ops) -> list[Float[Array, " size"] | None]:
        """L2 norm of each example's gradient, layer by layer; None where a layer has no parameters."""
        return [None if layer is None else ops.xp.sqrt(layer.squared_norms()) for layer in self.layers]

    def rows(self) -> Parameters:
        """Return each example's gradient: the parameters' shapes with examples as the first axis."""
        return tuple({} if layer is None else layer.rows() for layer in self.layers)

    def total(self, weights: Float[Array, " size"]) -> Parameters:
        """Sum of the examples' gradients, each times its weight."""
        return self.total_by_layer([weights] * len(self.layers))

    def total_by_layer(self, weights: Sequence[Float[Array, " size"] | None]) -> Parameters:
        """Sum of the examples' gradients, where an example may have another weight in every layer."""
        return tuple(
            {} if layer is None else layer.total(weight) for layer, weight in zip(self.layers, weights, strict=True)
        )


def _is_weight(path: str) -> bool:
    return path.endswith("/w")


@record
class Model:
    """What a crowd learns: layers, a loss, and the shapes around them.

    Attributes:
        layers: The layers, in order.
        loss: The loss over the last layer's outputs.
        ops: The array operations they were built for.
        features: Length of a row.
        shape: Shape of one example as the first layer wants it.
        declared: The settings that the layers were built from; nothing for a model of the user's own.
        decays: `decays(path)`: whether a regulariser acts on an array of parameters; on weights, not on biases.
    """

    layers: tuple[Layer, ...]
    loss: Loss
    ops: Ops
    features: int
    shape: Shape
    declared: tuple[LayerSettings, ...]
    decays: Callable[[str], bool] = _is_weight

    @property
    def mixes(self) -> bool:
        """Whether one example's gradient depends on the other examples of its batch."""
        return any(layer.mixes for layer in self.layers)

    @property
    def numpy_only(self) -> bool:
        """Whether it takes NumPy arrays alone, so that no simulation can compile it."""
        return any(layer.numpy_only for layer in self.layers)

    @property
    def linear(self) -> bool:
        """Whether outputs are linear in the parameters, with rows as they are."""
        return len(self.layers) == 1 and self.layers[0].linear

    @property
    def rows_at_once(self) -> int:
        """How many rows are predicted together: memory does not grow with their number, and layers find them near."""
        return max(1, NUMBERS_AT_ONCE // (self.features + sum(math.prod(layer.shape) for layer in self.layers)))

    def init(self, coins: Coins) -> Parameters:
        """Draw the first parameters."""
        return tuple(layer.init(coins, f"init/{index}") for index, layer in enumerate(self.layers))

    def zeros(self) -> Parameters:
        """Return parameters of the right shapes, all zero."""
        return trees.map(self.ops.xp.zeros_like, self.init(ZeroCoins(self.ops)))

    def outputs(self, parameters: Parameters, rows: Num[Array, "size features"]) -> Float[Array, "width size"]:
        """Run forward; outputs have shape (width, size)."""
        if len(self.shape) == 1:
            return self._forward(parameters, rows)[0]
        return self.ops.in_parts(lambda some: self._forward(parameters, some)[0], rows, self.rows_at_once)

    def predict(self, parameters: Parameters, rows: Num[Array, "size features"]) -> Num[Array, " size"]:
        """Return what each row is mapped to: class numbers, or encoded numbers."""
        return self.ops.in_parts(
            lambda some: self.loss.predict(self._forward(parameters, some)[0]), rows, self.rows_at_once
        )

    def losses(
        self, parameters: Parameters, rows: Num[Array, "size features"], targets: Num[Array, " size"]
    ) -> Float[Array, " size"]:
        """Return the loss of each row."""
        return self.loss.values(self.outputs(parameters, rows), targets)

    def gradients(self, parameters: Parameters, batch: Batch) -> Gradients:
        """Run forward and backward, and return each example's gradient as factors."""
        outputs, memories = self._forward(parameters, batch.rows, batch.mask)
        slope = self.loss.slope(outputs, batch.targets)
        found: list[Factors | None] = []
        for index in reversed(range(len(self.layers))):
            layer, memory = self.layers[index], memories[index]
            found.append(layer.factors(parameters[index], memory, slope) if layer.factors else None)
            if index:
                slope = layer.pull_back(parameters[index], memory, slope)
        return Gradients(layers=tuple(reversed(found)), outputs=outputs)

    def gradients_near(self, origin: SameTree, moved: SameTree, batch: Batch) -> Gradients:
        """Return each example's gradient at origin + moved, for a model of one layer whose outputs are linear.

        Outputs are the sum of two products. The first is fixed by row and origin, so only the second, of small numbers,
        and their sum have a rounding error that could tell two devices apart (`algorithms.stability`).
        """
        (layer,) = self.layers
        fixed, _ = layer.forward(origin[0], batch.rows.T)
        moving, memory = layer.forward(moved[0], batch.rows.T)
        outputs = fixed + moving
        factors = layer.factors(moved[0], memory, self.loss.slope(outputs, batch.targets)) if layer.factors else None
        return Gradients(layers=(factors,), outputs=outputs)

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

    def regulariser(self, parameters: SameTree, strength: float) -> SameTree:
        """Return the gradient of ½ strength ‖w‖². Biases are not regularised."""

        def of_leaf(path: str, leaf: Array) -> Array:
            return leaf * strength if self.decays(path) else self.ops.xp.zeros_like(leaf)

        return trees.map_paths(of_leaf, parameters)

    def write(self, graph: Graph, parameters: Parameters, rows: Value) -> tuple[Value, Value]:
        """Write the model into a graph: scores of shape (size, width), and what is predicted, of shape (size,).

        That is `label`, a class number, or `value`, a number in the target's own unit.
        """
        x = rows if len(self.shape) == 1 else graph.add("Reshape", rows, graph.constant((-1, *self.shape)))
        for layer, learnt in zip(self.layers, parameters, strict=True):
            if layer.write is None:
                raise BadInput("a layer of this model cannot be exported", where="model.layers")
            x = layer.write(graph, learnt, x)
        scores = graph.add("Identity", x, name="scores")
        target = self.loss.target
        if isinstance(target, Labels) and not self.loss.by_sign:
            return scores, graph.add("ArgMax", scores, name="label", axis=1, keepdims=0)
        first = graph.add("Squeeze", scores, graph.constant((1,)))
        if isinstance(target, Number):
            encoded = graph.add("Clip", first, graph.constant(np.float32(-1)), graph.constant(np.float32(1)))
            scaled = graph.add("Mul", encoded, graph.constant(np.float32(target.half_range)))
            return scores, graph.add("Add", scaled, graph.constant(np.float32(target.middle)), name="value")
        above = graph.add("Greater", first, graph.constant(np.float32(0)))
        return scores, graph.add("Cast", above, name="label", to="INT64")

    def _forward(self, parameters: Parameters, rows: Array, mask: Array | None = None) -> tuple[Array, list[Tree]]:
        x = rows.T if len(self.shape) == 1 else rows.reshape(-1, *self.shape)
        memories: list[Tree] = []
        for layer, learnt in zip(self.layers, parameters, strict=True):
            x, memory = layer.learn(learnt, x, mask) if layer.learn and mask is not None else layer.forward(learnt, x)
            memories.append(memory)
        return x, memories


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


@record
class FlatModel:
    """A model as one vector, over NumPy: for a server, which adds parameters up and never looks inside.

    Kernels of the server are written over trees; over a tree that is a single vector they cost a fraction.

    Attributes:
        model: The model itself.
        decays: 1 for every number that a regulariser acts on, otherwise 0.
    """

    model: Model
    decays: Float[Array, " numbers"]

    @staticmethod
    def of(model: Model) -> FlatModel:
        """Wrap a model."""
        ones = trees.map(np.ones_like, model.zeros())
        return FlatModel(model=model, decays=flatten(model.regulariser(ones, 1.0)))

    @property
    def loss(self) -> Loss:
        """The model's loss."""
        return self.model.loss

    def init(self, coins: Coins) -> Float[Array, " numbers"]:
        """Draw the first parameters."""
        return flatten(self.model.init(coins))

    def zeros(self) -> Float[Array, " numbers"]:
        """Return a vector of the right length, all zero."""
        return flatten(self.model.zeros())

    def regulariser(self, parameters: Float[Array, " numbers"], strength: float) -> Float[Array, " numbers"]:
        """Return the gradient of ½ strength ‖w‖²."""
        return parameters * (self.decays * np.float32(strength))


def flatten(tree: Tree) -> npt.NDArray[Any]:
    """Make one NumPy vector of a tree's leaves, in their order.

    >>> flatten({"b": np.ones(2), "a": np.zeros((1, 2))}).tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in trees.leaves(tree)])
