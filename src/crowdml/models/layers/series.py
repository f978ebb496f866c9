"""Convolution over series: every window of a series times every filter.

A series has shape (length, channels), such as 128 readings of three axes. Windows are unfolded, each into a row, and
one matrix product does the rest; the gradient of one example is a product of its windows and its slopes.
"""

from __future__ import annotations

import functools
import math
from typing import Literal

import numpy as np
from pydantic import Field

from crowdml.core import Array, BadInput, Coins, Float, Graph, Ops, Tree, Value, record
from crowdml.models.layers.layer import Layer, LayerSettings, Shape
from crowdml.models.layers.pooling import Padding


@record
class SeriesFactors:
    """Example i's gradient is `windows[i].T @ slope[i]` (and the sum of slope[i] over all places for the bias).

    Attributes:
        windows: What each place sees.
        slope: Shape (size, places, outputs).
        bias: Whether there is a bias.
        kernel: Length of a window.
        ops: Array operations.
    """

    windows: Float[Array, "size places inputs"]
    slope: Float[Array, "size places outputs"]
    bias: bool
    kernel: int
    ops: Ops

    def squared_norms(self) -> Float[Array, " size"]:
        """Squares of the written-out gradients, or sums over products of Gram matrices where those are smaller."""
        xp, ops = self.ops.xp, self.ops
        (_, places, inputs), outputs = self.windows.shape, self.slope.shape[2]
        if places * (inputs + outputs) < inputs * outputs:
            grams = ops.each_dot_t(self.windows, self.windows) * ops.each_dot_t(self.slope, self.slope)
            found = xp.sum(grams, axis=(1, 2))
        else:
            found = xp.sum(self._weights * self._weights, axis=(1, 2))
        return found + xp.sum(self._biases * self._biases, axis=1) if self.bias else found

    def absolute_norms(self) -> Float[Array, " size"]:
        """Absolute values of the written-out gradients."""
        xp = self.ops.xp
        found = xp.sum(xp.abs(self._weights), axis=(1, 2))
        return found + xp.sum(xp.abs(self._biases), axis=1) if self.bias else found

    def rows(self) -> Tree:
        """Write the gradients out."""
        outputs = self.slope.shape[2]
        made = {"w": self._weights.reshape(len(self.slope), self.kernel, -1, outputs)}
        return made | {"b": self._biases} if self.bias else made

    def total(self, weights: Float[Array, " size"]) -> Tree:
        """Weighted sum by one product over all places of all examples."""
        ops, outputs = self.ops, self.slope.shape[2]
        weighted = (self.slope * weights[:, None, None]).reshape(-1, outputs)
        flat = ops.long_t_dot(weighted, self.windows.reshape(len(weighted), -1)).T
        summed = {"w": flat.reshape(self.kernel, -1, outputs)}
        return summed | {"b": ops.dot(weights[None], self._biases)[0]} if self.bias else summed

    @functools.cached_property
    def _weights(self) -> Array:
        """Each example's gradient, shape (size, inputs, outputs)."""
        return self.ops.each_t_dot(self.windows, self.slope)

    @functools.cached_property
    def _biases(self) -> Array:
        return self.ops.xp.sum(self.slope, axis=1)


class SeriesConvolution(LayerSettings):
    """Filters that look at every window of a series."""

    kind: Literal["convolution-1d"] = "convolution-1d"
    size: int = Field(gt=0, le=100_000, description="number of filters: channels of the series that results")
    kernel: int = Field(3, gt=0, le=4096, description="length of a window")
    stride: int = Field(1, gt=0, le=4096, description="step from one window to the next")
    padding: Padding = Field("same", description='"same": zeros around the series; "valid": windows stay inside')
    bias: bool = Field(True, description="whether each filter has a constant of its own")
    start_scale: float = Field(1.0, gt=0, description="factor on the first weights, uniform ±√(6/(in+out))")

    def build(self, shape: Shape, ops: Ops) -> Layer:
        """Make the layer for series of the given shape."""
        length, channels = self._series(shape)
        kernel, stride, xp = self.kernel, self.stride, ops.xp
        same = self.padding == "same"
        places = -(-length // stride) if same else (length - kernel) // stride + 1
        missing = max(0, (places - 1) * stride + kernel - length) if same else 0
        before = missing // 2
        long, span = length + missing, (places - 1) * stride + 1
        reach = self.start_scale * math.sqrt(6.0 / (kernel * (channels + self.size)))

        def init(coins: Coins, stage: str) -> Tree:
            drawn = (coins.uniform(f"{stage}/w", (kernel, channels, self.size)) * 2 - 1) * reach
            return {"w": drawn} | ({"b": xp.zeros((self.size,), dtype=xp.float32)} if self.bias else {})

        def flat(parameters: Tree) -> Array:
            return parameters["w"].reshape(kernel * channels, self.size)

        def forward(parameters: Tree, x: Array) -> tuple[Array, Tree]:
            padded = xp.pad(x, ((0, 0), (before, missing - before), (0, 0)))
            windows = xp.concatenate([padded[:, at : at + span : stride] for at in range(kernel)], axis=-1)
            y = ops.dot(windows.reshape(-1, kernel * channels), flat(parameters)).reshape(-1, places, self.size)
            return y + parameters["b"] if self.bias else y, windows

        def pull_back(parameters: Tree, windows: Array, slope: Array) -> Array:
            back = ops.dot_t(slope.reshape(-1, self.size), flat(parameters))
            back = back.reshape(-1, places, kernel, channels)
            total: Array = 0
            for at in range(kernel):
                piece = xp.pad(back[:, :, None, at], ((0, 0), (0, 0), (0, stride - 1), (0, 0)))
                piece = piece.reshape(-1, places * stride, channels)[:, :span]
                total = total + xp.pad(piece, ((0, 0), (at, max(0, long - at - span)), (0, 0)))
            return total[:, before : before + length]

        def write(graph: Graph, parameters: Tree, x: Value) -> Value:
            weights = np.ascontiguousarray(np.asarray(parameters["w"]).transpose(2, 1, 0))
            arrays = [graph.constant(weights)] + ([graph.constant(parameters["b"])] if self.bias else [])
            first = graph.add("Transpose", x, perm=(0, 2, 1))
            y = graph.add("Conv", first, *arrays, pads=(before, missing - before), strides=(stride,))
            return graph.add("Transpose", y, perm=(0, 2, 1))

        return Layer(
            shape=(places, self.size),
            init=init,
            forward=forward,
            pull_back=pull_back,
            factors=lambda parameters, windows, slope: SeriesFactors(
                windows=windows, slope=slope, bias=self.bias, kernel=kernel, ops=ops
            ),
            biased=self.bias,
            write=write,
        )

    def _series(self, shape: Shape) -> tuple[int, int]:
        """Refuse examples that are no series, or shorter than a window; return length and channels."""
        if len(shape) != 2:
            raise BadInput(
                f"a convolution-1d layer takes series (length, channels), not {shape}",
                where="model.shape",
                hint="such as shape = [128, 3] for 128 readings of three axes",
            )
        if self.padding == "valid" and self.kernel > shape[0]:
            raise BadInput(
                f"a window of {self.kernel} does not fit into a series of {shape[0]}",
                where="model.layers",
                hint='a smaller kernel, or padding = "same"',
            )
        return shape[0], shape[1]
