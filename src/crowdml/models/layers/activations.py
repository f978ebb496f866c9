"""Activations: tanh, sigmoid and ReLU, and the flattening of an example."""

from __future__ import annotations

import math
from typing import Literal

from crowdml.core import Ops, Settings
from crowdml.core.ops import Array, Tree
from crowdml.models.layers.contract import Layer, Shape, no_parameters


class Tanh(Settings):
    """The hyperbolic tangent of each number."""

    kind: Literal["tanh"] = "tanh"

    def build(self, shape: Shape, ops: Ops) -> Layer:
        """Make the layer; it remembers its output, from which the slope follows."""

        def forward(parameters: Tree, x: Array) -> tuple[Array, Tree]:
            y = ops.xp.tanh(x)
            return y, y

        return Layer(
            shape=shape,
            init=no_parameters,
            forward=forward,
            pull_back=lambda parameters, y, slope: slope * (1 - y * y),
            write=lambda graph, parameters, x: graph.add("Tanh", x),
        )


class Sigmoid(Settings):
    """The logistic function of each number."""

    kind: Literal["sigmoid"] = "sigmoid"

    def build(self, shape: Shape, ops: Ops) -> Layer:
        """Make the layer; tanh is used because it cannot overflow."""

        def forward(parameters: Tree, x: Array) -> tuple[Array, Tree]:
            y = 0.5 * (ops.xp.tanh(0.5 * x) + 1)
            return y, y

        return Layer(
            shape=shape,
            init=no_parameters,
            forward=forward,
            pull_back=lambda parameters, y, slope: slope * y * (1 - y),
            write=lambda graph, parameters, x: graph.add("Sigmoid", x),
        )


class Relu(Settings):
    """Zero for negative numbers, the number itself otherwise."""

    kind: Literal["relu"] = "relu"

    def build(self, shape: Shape, ops: Ops) -> Layer:
        """Make the layer; the slope at zero is zero."""

        def forward(parameters: Tree, x: Array) -> tuple[Array, Tree]:
            return ops.xp.maximum(x, 0), x > 0

        return Layer(
            shape=shape,
            init=no_parameters,
            forward=forward,
            pull_back=lambda parameters, above, slope: slope * above,
            write=lambda graph, parameters, x: graph.add("Relu", x),
        )


class Flatten(Settings):
    """An example of any shape as one row of numbers."""

    kind: Literal["flatten"] = "flatten"

    def build(self, shape: Shape, ops: Ops) -> Layer:
        """Make the layer; going back restores the shape."""

        def forward(parameters: Tree, x: Array) -> tuple[Array, Tree]:
            return (x if len(shape) == 1 else x.reshape(len(x), -1).T), ()

        def pull_back(parameters: Tree, memory: Tree, slope: Array) -> Array:
            return slope if len(shape) == 1 else slope.T.reshape(-1, *shape)

        return Layer(
            shape=(math.prod(shape),),
            init=no_parameters,
            forward=forward,
            pull_back=pull_back,
            write=lambda graph, parameters, x: graph.add("Flatten", x, axis=1),
        )
