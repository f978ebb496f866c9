"""Normalisation: numbers of mean 0 and variance 1, then a scale and a shift that are learnt.

Group normalisation takes mean and variance over groups of channels of one example: examples do not see each other, so
each has a gradient of its own that can be bounded. Batch normalisation takes them over the whole batch: the gradient
of one example then depends on all others, and no bound on it protects anybody. A model with it says so (`mixes`), and
terms that bound single examples refuse it.
"""

from __future__ import annotations

import functools
from typing import Literal

import numpy as np
from pydantic import Field

from crowdml.core import Array, BadInput, Coins, Float, Graph, Ops, Tree, Value, record
from crowdml.models.layers.layer import Layer, LayerSettings, RowFactors, Shape

FLOOR = 1e-5
"""Added to every variance, against division by zero."""


class GroupNorm(LayerSettings):
    """Normalise each example over groups of its channels (Wu and He 2018)."""

    kind: Literal["group-norm"] = "group-norm"
    groups: int = Field(4, gt=0, description="number of groups; the channels are shared out evenly")
    affine: bool = Field(True, description="whether a scale and a shift per channel are learnt")

    def build(self, shape: Shape, ops: Ops) -> Layer:
        """Make the layer for pictures, or for flat examples."""
        channels, xp, learnt = shape[-1], ops.xp, self.affine
        if channels % self.groups:
            raise BadInput(
                f"{channels} channels cannot be shared out to {self.groups} groups",
                where="model.layers",
                hint="a number of groups that divides them",
            )

        def grouped(x: Array) -> Array:
            first = x if len(shape) > 1 else x.T
            return first.reshape(len(first), -1, self.groups, channels // self.groups)

        def back(x: Array) -> Array:
            return x.reshape(-1, *shape) if len(shape) > 1 else x.reshape(-1, channels).T

        def mean(numbers: Array) -> Array:
            """Mean over each group of each example; it can be set against all of the group's numbers."""
            return ops.sum_each(numbers, (1, 3))[:, None, :, None] / xp.float32(numbers.shape[1] * numbers.shape[3])

        def forward(parameters: Tree, x: Array) -> tuple[Array, Tree]:
            together = grouped(x)
            centred = together - mean(together)
            scale = 1 / xp.sqrt(mean(centred * centred) + xp.float32(FLOOR))
            unit = centred * scale
            y = unit
            if learnt:
                scales, shifts = (parameters[name].reshape(self.groups, -1) for name in ("scale", "shift"))
                y = unit * scales + shifts
            return back(y), (unit, scale)

        def pull_back(parameters: Tree, memory: Tree, slope: Array) -> Array:
            unit, scale = memory
            slopes = grouped(slope)
            if learnt:
                slopes = slopes * parameters["scale"].reshape(self.groups, -1)
            return back((slopes - mean(slopes) - unit * mean(slopes * unit)) * scale)

        def factors(parameters: Tree, memory: Tree, slope: Array) -> RowFactors:
            slopes = grouped(slope)
            scales, shifts = (ops.sum_each(each, (1,)).reshape(-1, channels) for each in (slopes * memory[0], slopes))
            return RowFactors(each={"scale": scales, "shift": shifts}, ops=ops)

        return Layer(
            shape=shape,
            init=lambda coins, stage: _one_and_zero(channels, ops) if learnt else {},
            forward=forward,
            pull_back=pull_back,
            factors=factors if learnt else None,
            biased=learnt,
            write=functools.partial(self._write, shape),
        )

    def _write(self, shape: Shape, graph: Graph, parameters: Tree, x: Value) -> Value:
        """Add the layer to a graph of ONNX."""
        split_up = graph.add("Reshape", x, graph.constant((0, -1, self.groups, shape[-1] // self.groups)))
        mean = graph.add("ReduceMean", split_up, axes=(1, 3), keepdims=1)
        centred = graph.add("Sub", split_up, mean)
        y = graph.add("Div", centred, _deviation(graph, centred, (1, 3)))
        y = graph.add("Reshape", y, graph.constant((0, *shape)))
        if self.affine:
            y = graph.add("Mul", y, graph.constant(parameters["scale"]))
            y = graph.add("Add", y, graph.constant(parameters["shift"]))
        return y


@record
class BatchFactors:
    """Scale and shift as `RowFactors`; statistics move towards those of the batch, however examples are weighted."""

    learnt: RowFactors
    statistics: dict[str, Array]

    def squared_norms(self) -> Float[Array, " size"]:
        """Squares of scale and shift: statistics are no gradient."""
        return self.learnt.squared_norms()

    def absolute_norms(self) -> Float[Array, " size"]:
        """Absolute values of scale and shift."""
        return self.learnt.absolute_norms()

    def rows(self) -> Tree:
        """Refuse: there is no gradient of one example."""
        raise BadInput("batch normalisation mixes the examples of a batch", where="model", hint='use "group-norm"')

    def total(self, weights: Float[Array, " size"]) -> Tree:
        """Weighted sum, and how far the statistics are from those of the batch."""
        return self.learnt.total(weights) | self.statistics


class BatchNorm(LayerSettings):
    """Normalise each channel over the batch (Ioffe and Szegedy 2015); no terms that bound single examples allow it."""

    kind: Literal["batch-norm"] = "batch-norm"
    pace: float = Field(
        1.0, gt=0, description="the statistics for prediction move towards those of a batch by pace × rate, at most 1"
    )

    def build(self, shape: Shape, ops: Ops) -> Layer:
        """Make the layer for pictures, or for flat examples."""
        channels, xp = shape[-1] if len(shape) > 1 else shape[0], ops.xp
        axes = tuple(range(len(shape)))

        def last(x: Array) -> Array:
            return x if len(shape) > 1 else x.T

        def begin(coins: Coins, stage: str) -> Tree:
            begun = _one_and_zero(channels, ops)
            return begun | {"mean": begun["shift"], "variance": begun["scale"]}

        def forward(parameters: Tree, x: Array) -> tuple[Array, Tree]:
            scale = parameters["scale"] / xp.sqrt(xp.maximum(parameters["variance"], 0) + xp.float32(FLOOR))
            return last((last(x) - parameters["mean"]) * scale + parameters["shift"]), ()

        def learn(parameters: Tree, x: Array, mask: Array) -> tuple[Array, Tree]:
            numbers = last(x)
            places = numbers.size // (len(mask) * channels)
            share = (mask / (xp.maximum(xp.sum(mask), 1) * places)).reshape(-1, *[1] * len(shape))
            mean = ops.sum_each(numbers * share, axes)
            centred = numbers - mean
            variance = ops.sum_each(centred * centred * share, axes)
            scale = 1 / xp.sqrt(variance + xp.float32(FLOOR))
            unit = centred * scale
            return last(unit * parameters["scale"] + parameters["shift"]), (unit, scale, share, mean, variance)

        def pull_back(parameters: Tree, memory: Tree, slope: Array) -> Array:
            unit, scale, share, _, _ = memory
            slopes = last(slope) * (share > 0) * parameters["scale"]
            common = ops.sum_each(slopes, axes) + unit * ops.sum_each(slopes * unit, axes)
            return last((slopes - common * share) * scale)

        def factors(parameters: Tree, memory: Tree, slope: Array) -> BatchFactors:
            unit, _, _, mean, variance = memory
            slopes = last(slope)
            between = tuple(range(1, len(shape)))
            each = {"scale": ops.sum_each(slopes * unit, between), "shift": ops.sum_each(slopes, between)}
            pace = xp.float32(self.pace)
            moving = {
                "mean": (parameters["mean"] - mean) * pace,
                "variance": (parameters["variance"] - variance) * pace,
            }
            return BatchFactors(learnt=RowFactors(each=each, ops=ops), statistics=moving)

        return Layer(
            shape=shape,
            init=begin,
            forward=forward,
            pull_back=pull_back,
            factors=factors,
            biased=True,
            mixes=True,
            learn=learn,
            write=_write_statistics,
        )


def _write_statistics(graph: Graph, parameters: Tree, x: Value) -> Value:
    """Add batch normalisation to a graph of ONNX, with the statistics that were learnt."""
    scale = parameters["scale"] / np.sqrt(np.maximum(parameters["variance"], 0) + np.float32(FLOOR))
    y = graph.add("Sub", x, graph.constant(parameters["mean"]))
    y = graph.add("Mul", y, graph.constant(np.asarray(scale, np.float32)))
    return graph.add("Add", y, graph.constant(parameters["shift"]))


def _one_and_zero(channels: int, ops: Ops) -> Tree:
    xp = ops.xp
    return {"scale": xp.ones((channels,), dtype=xp.float32), "shift": xp.zeros((channels,), dtype=xp.float32)}


def _deviation(graph: Graph, centred: Value, axes: tuple[int, ...]) -> Value:
    square = graph.add("ReduceMean", graph.add("Mul", centred, centred), axes=axes, keepdims=1)
    return graph.add("Sqrt", graph.add("Add", square, graph.constant(np.float32(FLOOR))))
