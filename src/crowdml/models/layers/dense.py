"""Dense layer: y = W x + b, with W of shape (outputs, inputs) and examples as columns."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from crowdml.core import BadInput, Coins, Graph, Ops, Settings, Value, record
from crowdml.core.ops import Array, Tree
from crowdml.models.layers.contract import Layer, Shape


@record
class DenseFactors:
    """Example i's gradient is the outer product of slope[:, i] and x[:, i] (and slope[:, i] itself for the bias)."""

    slope: Array
    x: Array
    bias: bool
    ops: Ops

    def squared_norms(self) -> Array:
        """‖slope‖² (‖x‖² + 1 with bias)."""
        xp = self.ops.xp
        return xp.sum(self.slope * self.slope, axis=0) * (xp.sum(self.x * self.x, axis=0) + float(self.bias))

    def absolute_norms(self) -> Array:
        """‖slope‖₁ (‖x‖₁ + 1 with bias)."""
        xp = self.ops.xp
        return xp.sum(xp.abs(self.slope), axis=0) * (xp.sum(xp.abs(self.x), axis=0) + float(self.bias))

    def rows(self) -> Tree:
        """Write the outer products out."""
        made = {"w": self.slope.T[:, :, None] * self.x.T[:, None, :]}
        return made | {"b": self.slope.T} if self.bias else made

    def total(self, weights: Array) -> Tree:
        """Weighted sum by one matrix product."""
        weighted = self.slope * weights
        summed = {"w": self.ops.dot_t(weighted, self.x)}
        if self.bias:
            summed["b"] = self.ops.xp.sum(weighted, axis=1)
        return summed


class Dense(Settings):
    """A fully connected layer."""

    kind: Literal["dense"] = "dense"
    size: int = Field(gt=0, le=10_000_000, description="number of outputs")
    bias: bool = Field(True, description="whether each output has a constant of its own")
    start: Literal["random", "zero"] = Field("random", description="first weights: uniform ±√(6/(in+out)), or zero")
    start_scale: float = Field(1.0, gt=0, description="factor on random first weights")

    def build(self, shape: Shape, ops: Ops) -> Layer:
        """Make the layer for examples of the given shape."""
        if len(shape) != 1:
            raise BadInput(
                f"a dense layer takes flat examples, not {shape}",
                hint="put a flatten layer before it",
                where="model.layers",
            )
        inputs, xp = shape[0], ops.xp
        reach = self.start_scale * math.sqrt(6.0 / (inputs + self.size))

        def init(coins: Coins, stage: str) -> Tree:
            if self.start == "zero":
                weights = xp.zeros((self.size, inputs), dtype=xp.float32)
            else:
                weights = (coins.uniform(f"{stage}/w", (self.size, inputs)) * 2 - 1) * reach
            return {"w": weights} | ({"b": xp.zeros((self.size,), dtype=xp.float32)} if self.bias else {})

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
