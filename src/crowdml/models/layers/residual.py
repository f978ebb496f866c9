"""Residual: an example is added to what some layers make of it, y = x + f(x) (He, Zhang, Ren and Sun 2016)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from crowdml.core import Array, BadInput, Coins, Graph, OneOf, Ops, Tree, Value, record
from crowdml.models.layers.layer import LAYERS, Factors, Layer, LayerSettings, Shape


@record
class InnerFactors:
    """Factors of the layers inside, first layer first; None where one has no parameters."""

    layers: tuple[Factors | None, ...]

    @property
    def _present(self) -> list[Factors]:
        return [layer for layer in self.layers if layer is not None]

    def squared_norms(self) -> Array:
        """Add up those of all layers."""
        return sum(layer.squared_norms() for layer in self._present)

    def absolute_norms(self) -> Array:
        """Add up those of all layers."""
        return sum(layer.absolute_norms() for layer in self._present)

    def rows(self) -> Tree:
        """Return the gradients of each layer."""
        return tuple({} if layer is None else layer.rows() for layer in self.layers)

    def total(self, weights: Array) -> Tree:
        """Return the weighted sums of each layer."""
        return tuple({} if layer is None else layer.total(weights) for layer in self.layers)


class Residual(LayerSettings):
    """Layers whose output is added to their input; both have the same shape."""

    # Which layers there are is known once all are: `crowdml.models.layers` completes this class.
    model_config = ConfigDict(defer_build=True)

    kind: Literal["residual"] = "residual"
    layers: list[Annotated[Any, OneOf(LAYERS)]] = Field(
        description="the layers inside, in order, such as { kind = 'dense', size = 10 }; the last gives the shape that "
        "the first takes"
    )

    def build(self, shape: Shape, ops: Ops) -> Layer:
        """Make the layers inside, checking that each fits the one before, and the last the first."""
        inner: list[Layer] = []
        at = shape
        for settings in self.layers:
            inner.append(settings.build(at, ops))
            at = inner[-1].shape
        if not inner or at != shape:
            raise BadInput(
                f"the layers inside a residual layer make {list(at)} of {list(shape)}, which cannot be added up"
                if inner
                else "a residual layer has no layers inside",
                where="model.layers",
                hint=f"let the last of them give {list(shape)}",
            )
        return _around(tuple(inner), shape)


def _around(inner: tuple[Layer, ...], shape: Shape) -> Layer:
    def init(coins: Coins, stage: str) -> Tree:
        return tuple(layer.init(coins, f"{stage}/{index}") for index, layer in enumerate(inner))

    def run(parameters: Tree, x: Array, mask: Array | None) -> tuple[Array, Tree]:
        y, memories = x, []
        for layer, learnt in zip(inner, parameters, strict=True):
            learns = layer.learn and mask is not None
            y, memory = layer.learn(learnt, y, mask) if learns else layer.forward(learnt, y)  # type: ignore[misc]
            memories.append(memory)
        return x + y, tuple(memories)

    def slopes(parameters: Tree, memories: Tree, slope: Array) -> list[Array]:
        """Return the slope over each layer's output, and last that over the input of the first."""
        found = [slope]
        for layer, learnt, memory in reversed(list(zip(inner, parameters, memories, strict=True))):
            found.append(layer.pull_back(learnt, memory, found[-1]))
        return [*reversed(found[:-1]), found[-1]]

    def factors(parameters: Tree, memories: Tree, slope: Array) -> InnerFactors:
        over = slopes(parameters, memories, slope)
        each = zip(inner, parameters, memories, over[:-1], strict=True)
        return InnerFactors(
            layers=tuple(
                layer.factors(learnt, memory, above) if layer.factors else None for layer, learnt, memory, above in each
            )
        )

    def write(graph: Graph, parameters: Tree, x: Value) -> Value:
        y = x
        for layer, learnt in zip(inner, parameters, strict=True):
            assert layer.write is not None  # noqa: S101  or this one cannot be written either
            y = layer.write(graph, learnt, y)
        return graph.add("Add", x, y)

    return Layer(
        shape=shape,
        init=init,
        forward=lambda parameters, x: run(parameters, x, None),
        pull_back=lambda parameters, memories, slope: slope + slopes(parameters, memories, slope)[-1],
        factors=factors if any(layer.factors for layer in inner) else None,
        biased=any(layer.biased for layer in inner),
        mixes=any(layer.mixes for layer in inner),
        learn=run if any(layer.learn for layer in inner) else None,
        write=write if all(layer.write for layer in inner) else None,
        numpy_only=any(layer.numpy_only for layer in inner),
    )
