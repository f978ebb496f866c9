"""Layers of flat examples: dense, the activations tanh, sigmoid and ReLU, and flatten, which makes examples flat.

A dense layer is y = W x + b, with W of shape (outputs, inputs) and examples as columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from pydantic import Field

from crowdml.core import Array, BadInput, Coins, Float, Graph, Num, Ops, Tree, Value, record
from crowdml.models.layers.layer import Layer, LayerSettings, Shape, first_biases


@record
class DenseFactors:
    """Example i's gradient is the outer product of slope[:, i] and x[:, i] (and slope[:, i] itself for the bias)."""

    slope: Float[Array, "outputs size"]
    x: Num[Array, "inputs size"]
    bias: bool
    ops: Ops

    def squared_norms(self) -> Float[Array, " size"]:
        """‖slope‖² (‖x‖² + 1 with bias)."""
        xp = self.ops.xp
        return xp.sum(self.slope * self.slope, axis=0) * (xp.sum(self.x * self.x, axis=0) + float(self.bias))

    def absolute_norms(self) -> Float[Array, " size"]:
        """‖slope‖₁ (‖x‖₁ + 1 with bias)."""
        xp = self.ops.xp
        return xp.sum(xp.abs(self.slope), axis=0) * (xp.sum(xp.abs(self.x), axis=0) + float(self.bias))

    def rows(self) -> Tree:
        """Write the outer products out."""
        made = {"w": self.slope.T[:, :, None] * self.x.T[:, None, :]}
        return made | {"b": self.slope.T} if self.bias else made

    def total(self, weights: Float[Array, " size"]) -> Tree:
        """Weighted sum by one matrix product."""
        weighted = self.slope * weights
        summed = {"w": self.ops.dot_t(weighted, self.x)}
        if self.bias:
            summed["b"] = self.ops.xp.sum(weighted, axis=1)
        return summed


class Dense(LayerSettings):
    """A fully connected layer."""

    kind: Literal["dense"] = "dense"
    size: int = Field(gt=0, le=10_000_000, description="number of outputs")
    bias: bool = Field(True, description="whether each output has a constant of its own")
    start: Literal["random", "zero", "fan-in"] = Field(
        "random",
        description="first weights: uniform ±√(6/(in+out)), or zero, both with biases of zero; or uniform ±1/√in, "
        "biases as well (PyTorch's default)",
    )
    start_scale: float = Field(1.0, gt=0, description="factor on random first numbers")

    def build(self, shape: Shape, ops: Ops) -> Layer:
        """Make the layer for examples of the given shape."""
        if len(shape) != 1:
            raise BadInput(
                f"a dense layer takes flat examples, not {shape}",
                hint="put a flatten layer before it",
                where="model.layers",
            )
        inputs, xp = shape[0], ops.xp
        fan_in = self.start == "fan-in"
        reach = self.start_scale * math.sqrt(1.0 / inputs if fan_in else 6.0 / (inputs + self.size))

        def init(coins: Coins, stage: str) -> Tree:
            if self.start == "zero":
                weights = xp.zeros((self.size, inputs), dtype=xp.float32)
            else:
                weights = (coins.uniform(f"{stage}/w", (self.size, inputs)) * 2 - 1) * reach
            biases = {"b": first_biases(self.size, reach * fan_in, coins, stage, ops)} if self.bias else {}
            return {"w": weights} | biases

        def forward(parameters: Tree, x: Array) -> tuple[Array, Tree]:
            y = ops.dot(parameters["w"], x)
            return (y + parameters["b"][:, None] if self.bias else y), x

        def pull_back(parameters: Tree, x: Array, slope: Array) -> Array:
            return ops.t_dot(parameters["w"], slope)

        def factors(parameters: Tree, x: Array, slope: Array) -> DenseFactors:
            return DenseFactors(slope=slope, x=x, bias=self.bias, ops=ops)

        def write(graph: Graph, parameters: Tree, x: Value) -> Value:
            arrays = [graph.constant(parameters[name]) for name in (("w", "b") if self.bias else ("w",))]
            return graph.add("Gemm", x, *arrays, transB=1)

        return Layer(
            shape=(self.size,),
            init=init,
            forward=forward,
            pull_back=pull_back,
            factors=factors,
            biased=self.bias,
            linear=True,
            write=write,
        )


def _activation(
    shape: Shape,
    operator: str,
    forward: Callable[[Array], tuple[Array, Array]],
    pull_back: Callable[[Array, Array], Array],
) -> Layer:
    """Make a layer that changes each number by itself.

    Args:
        shape: Shape of one example.
        operator: What the layer is called in ONNX.
        forward: `forward(x)` gives the output, and what the slope follows from.
        pull_back: `pull_back(memory, slope)` gives the slope with respect to `x`.
    """
    return Layer(
        shape=shape,
        forward=lambda parameters, x: forward(x),
        pull_back=lambda parameters, memory, slope: pull_back(memory, slope),
        write=lambda graph, parameters, x: graph.add(operator, x),
    )


class Tanh(LayerSettings):
    """The hyperbolic tangent of each number."""

    kind: Literal["tanh"] = "tanh"

    def build(self, shape: Shape, ops: Ops) -> Layer:
        """Make the layer; it remembers its output, from which the slope follows."""

        def forward(x: Array) -> tuple[Array, Array]:
            y = ops.xp.tanh(x)
            return y, y

        return _activation(shape, "Tanh", forward, lambda y, slope: slope * (1 - y * y))


class Sigmoid(LayerSettings):
    """The logistic function of each number."""

    kind: Literal["sigmoid"] = "sigmoid"

    def build(self, shape: Shape, ops: Ops) -> Layer:
        """Make the layer; tanh is used because it cannot overflow."""

        def forward(x: Array) -> tuple[Array, Array]:
            y = 0.5 * (ops.xp.tanh(0.5 * x) + 1)
            return y, y

        return _activation(shape, "Sigmoid", forward, lambda y, slope: slope * y * (1 - y))


class Relu(LayerSettings):
    """Zero for negative numbers, the number itself otherwise."""

    kind: Literal["relu"] = "relu"

    def build(self, shape: Shape, ops: Ops) -> Layer:
        """Make the layer; the slope at zero is zero."""
        return _activation(shape, "Relu", lambda x: (ops.xp.maximum(x, 0), x > 0), lambda above, slope: slope * above)


class Flatten(LayerSettings):
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
            forward=forward,
            pull_back=pull_back,
            write=lambda graph, parameters, x: graph.add("Flatten", x, axis=1),
        )
