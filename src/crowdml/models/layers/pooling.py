"""Pooling: of every window of a picture its largest number or its average, channel by channel."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from crowdml.core import Array, BadInput, Graph, Ops, Settings, Value
from crowdml.core.ops import Tree
from crowdml.models.layers.contract import (
    Layer,
    Shape,
    channels_first,
    channels_last,
    no_parameters,
    require_picture,
)
from crowdml.models.layers.windows import Padding, Windows, windows

LOWEST = -3.0e38
"""What stands around a picture for the largest of a window: below every number that can be there."""


class Pooling(Settings):
    """A smaller picture: what is largest, or the average, in each window."""

    kind: Literal["pooling"] = "pooling"
    of: Literal["max", "average"] = Field("max", description="what is taken of each window")
    size: int = Field(2, gt=0, le=256, description="height and width of a window")
    stride: int | None = Field(None, gt=0, le=256, description="step from one window to the next; not given: the size")
    padding: Padding = Field("valid", description='"valid": windows stay inside the picture; "same": max alone')

    def build(self, shape: Shape, ops: Ops) -> Layer:
        """Make the layer for pictures of the given shape."""
        channels = require_picture("pooling", shape)[2]
        at = windows(shape, self.size, self.stride or self.size, self.padding)
        if self.of == "average" and at.padded:
            raise BadInput(
                "an average over windows that reach beyond the picture has no one meaning",
                where="model.layers",
                hint='use padding = "valid"',
            )
        forward, pull_back = (_max if self.of == "max" else _average)(at, ops)

        def write(graph: Graph, parameters: Tree, x: Value) -> Value:
            above, below, left, right = at.margin
            operator = "MaxPool" if self.of == "max" else "AveragePool"
            y = graph.add(
                operator,
                channels_first(graph, x),
                kernel_shape=(at.kernel, at.kernel),
                strides=(at.stride, at.stride),
                pads=(above, left, below, right),
            )
            return channels_last(graph, y)

        return Layer(
            shape=(*at.places, channels), init=no_parameters, forward=forward, pull_back=pull_back, write=write
        )


def _tiles(x: Array, at: Windows) -> Array:
    """Cut a picture into its windows without copying: shape (size, down, kernel, across, kernel, channels)."""
    return x.reshape(-1, at.places[0], at.kernel, at.places[1], at.kernel, x.shape[-1])


def _max(at: Windows, ops: Ops):  # type: ignore[no-untyped-def]
    """Of several equal numbers the first takes the slope."""
    xp = ops.xp

    def forward(parameters: Tree, x: Array) -> tuple[Array, Tree]:
        if at.tiles:
            y = xp.max(_tiles(x, at), axis=(2, 4))
        else:
            slices = at.slices(x, ops, LOWEST)
            y = slices[0]
            for own in slices[1:]:
                y = xp.maximum(y, own)
        return y, (x, y)

    def pull_back(parameters: Tree, memory: Tree, slope: Array) -> Array:
        x, y = memory
        free, parts = xp.ones_like(y, dtype=bool), []
        for own in at.slices(x, ops, LOWEST):
            hit = (own == y) & free
            free = free & ~hit
            parts.append(xp.where(hit, slope, xp.float32(0)))
        return _untile(parts, at, ops) if at.tiles else at.fold(parts, ops)

    return forward, pull_back


def _average(at: Windows, ops: Ops):  # type: ignore[no-untyped-def]
    area = np.float32(at.kernel * at.kernel)

    def forward(parameters: Tree, x: Array) -> tuple[Array, Tree]:
        if at.tiles:
            return ops.xp.mean(_tiles(x, at), axis=(2, 4)), ()
        return sum(at.slices(x, ops)) / area, ()

    def pull_back(parameters: Tree, memory: Tree, slope: Array) -> Array:
        parts = [slope / area] * (at.kernel * at.kernel)
        return _untile(parts, at, ops) if at.tiles else at.fold(parts, ops)

    return forward, pull_back


def _untile(parts: list[Array], at: Windows, ops: Ops) -> Array:
    """Put windows side by side again."""
    size, down, across, channels = parts[0].shape
    stacked = ops.xp.stack(parts, axis=3).reshape(size, down, across, at.kernel, at.kernel, channels)
    return stacked.transpose(0, 1, 3, 2, 4, 5).reshape(size, *at.size, channels)
