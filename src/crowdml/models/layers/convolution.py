"""Convolution: every window of a picture times every filter.

Over NumPy windows are unfolded, each into a row, and one matrix product does the rest. Compiled code has a convolution
of its own, for outputs and for slopes; windows are unfolded for gradients only, and where nobody asks for those of
single examples, only as many at a time as stay in the cache. With few filters it multiplies bands of windows instead.

The gradient of one example is a product of its windows and its slopes. Its norm is found either by that product, for
all examples at once, or from inner products between windows and between slopes (their Gram matrices), whichever needs
fewer multiplications for the shape. Where the gradients were written out for their norms, the weighted sum costs next
to nothing; otherwise it is one more product. So a bounded step costs about as much as a plain one.
"""

from __future__ import annotations

import functools
import math
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from crowdml.core import Array, BadInput, Coins, Float, Graph, Ops, Tree, Value, record
from crowdml.models.layers.bands import Bands, bands
from crowdml.models.layers.layer import (
    Layer,
    LayerSettings,
    Shape,
    channels_first,
    channels_last,
    first_biases,
    require_picture,
)
from crowdml.models.layers.pooling import Padding, Windows, windows

CACHE_NUMBERS = 1 << 16
"""Numbers of unfolded windows that a core keeps near: more of them are unfolded and multiplied part by part."""


@record
class ConvolutionFactors:
    """Example i's gradient is `windows[i].T @ slope[i]` (and the sum of slope[i] over all places for the bias).

    Attributes:
        seen: What the layer has seen: pictures, or their windows where they were unfolded.
        at: Where windows are.
        slope: Shape (size, places, outputs).
        bias: Whether there is a bias.
        shape: Shape of the weights, (kernel, kernel, channels seen, outputs).
        table: Which channels each output sees, as `Convolution.table`; None where each sees all.
        bands: How windows are multiplied side by side; None where they are not.
        ops: Array operations.
    """

    seen: Array
    at: Windows
    slope: Float[Array, "size places outputs"]
    bias: bool
    shape: tuple[int, ...]
    table: Array | None
    bands: Bands | None
    ops: Ops

    @property
    def by_gram(self) -> bool:
        """Whether Gram matrices are cheaper: places² (inputs + outputs) against places · inputs · outputs."""
        _, places, outputs = self.slope.shape
        inputs = self._inputs
        return self.table is None and places * (inputs + outputs) < inputs * outputs

    def squared_norms(self) -> Float[Array, " size"]:
        """Squares of the written-out gradients, or the product of Gram matrices summed up."""
        xp = self.ops.xp
        if self.by_gram:
            found = xp.sum(
                self.ops.each_dot_t(self.windows, self.windows) * self.ops.each_dot_t(self.slope, self.slope),
                axis=(1, 2),
            )
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
        made = {"w": self._weights.reshape(-1, *self.shape)}
        return made | {"b": self._biases} if self.bias else made

    def total(self, weights: Float[Array, " size"]) -> Tree:
        """Weighted sum of the written-out gradients if there are any already, otherwise one product."""
        ops = self.ops
        if "_weights" in self.__dict__:
            flat = ops.dot(weights[None], self._weights.reshape(len(weights), -1))
        else:
            product = self._in_bands(weights) if self.bands else self._in_windows(weights)
            flat = product if self.table is None else self._seen(product[None])
        summed = {"w": flat.reshape(self.shape)}
        return summed | {"b": ops.dot(weights[None], self._biases)[0]} if self.bias else summed

    @functools.cached_property
    def windows(self) -> Float[Array, "size places inputs"]:
        """All windows of all pictures."""
        return self._unfold(self.seen)

    @property
    def _inputs(self) -> int:
        """How many numbers a window holds."""
        return self.at.kernel * self.at.kernel * (self.shape[2] if self.table is None else self.table.shape[1])

    @property
    def _at_once(self) -> int:
        """How many examples' windows fit into the cache; all where they were unfolded already."""
        _, places, _ = self.slope.shape
        return max(1, CACHE_NUMBERS // (places * self._inputs)) if self.ops.convolve else len(self.seen)

    def _unfold(self, seen: Array) -> Array:
        unfolded = self.at.unfold(seen, self.ops) if self.ops.convolve else seen
        return unfolded.reshape(len(seen), -1, self._inputs)

    def _in_bands(self, weights: Array) -> Array:
        """Sum up gradients of all channels, shape (inputs, outputs), as one product of bands."""
        assert self.bands is not None  # noqa: S101  the caller asked
        weighted = (self.slope * weights[:, None, None]).reshape(-1, self.bands.width * self.slope.shape[2])
        product = self.ops.long_t_dot(weighted, self.bands.unfold(self.seen, self.ops)).T
        return self.bands.filters(product).reshape(self._inputs, -1)

    def _in_windows(self, weights: Array) -> Array:
        """The same, by as many windows at a time as stay in the cache."""
        return self.ops.sum_in_parts(self._product, (self.seen, self.slope, weights), self._at_once).T

    def _product(self, seen: Array, slope: Array, weights: Array) -> Array:
        """Multiply slopes and windows of some examples; the gradient's transpose."""
        weighted = (slope * weights[:, None, None]).reshape(-1, slope.shape[2])
        return self.ops.long_t_dot(weighted, self._unfold(seen).reshape(-1, self._inputs))

    @functools.cached_property
    def _weights(self) -> Array:
        """Each example's gradient, shape (size, inputs seen, outputs)."""
        found = self.ops.each_t_dot(self.windows, self.slope)
        return found if self.table is None else self._seen(found)

    @functools.cached_property
    def _biases(self) -> Array:
        return self.ops.xp.sum(self.slope, axis=1)

    def _seen(self, found: Array) -> Array:
        """Keep what belongs to channels that an output sees."""
        assert self.table is not None  # noqa: S101  the callers asked
        kernel, _, seen, outputs = self.shape
        all_channels = found.reshape(len(found), kernel * kernel, 1, -1, outputs)
        kept = self.ops.xp.sum(all_channels * self.table, axis=3)
        return kept.reshape(len(found), kernel * kernel * seen, outputs)


class Convolution(LayerSettings):
    """Filters that look at every window of a picture."""

    kind: Literal["convolution"] = "convolution"
    size: int = Field(gt=0, le=100_000, description="number of filters: channels of the picture that results")
    kernel: int = Field(3, gt=0, le=64, description="height and width of a window")
    stride: int = Field(1, gt=0, le=64, description="step from one window to the next")
    padding: Padding | Annotated[int, Field(ge=0, le=63)] = Field(
        "same",
        description='"same": zeros around the picture; "valid": windows stay inside; a number: so many lines of zeros '
        "on each side",
    )
    bias: bool = Field(True, description="whether each filter has a constant of its own")
    connections: int | list[list[int]] | None = Field(
        None,
        description="sparse connections: how many channels each filter sees, in turn (filter f sees f, f+1, …), or for "
        "each filter the numbers of the channels it sees; not given: all",
    )
    start: Literal["random", "fan-in"] = Field(
        "random",
        description="first weights: uniform ±√(6/(in+out)) with biases of zero; or uniform ±1/√in, biases as well "
        "(PyTorch's default)",
    )
    start_scale: float = Field(1.0, gt=0, description="factor on the first numbers")

    def build(self, shape: Shape, ops: Ops) -> Layer:
        """Make the layer for pictures of the given shape."""
        channels = require_picture("convolution", shape)[2]
        at, table = windows(shape, self.kernel, self.stride, self.padding), self.table(channels)
        seen = channels if table is None else table.shape[0]
        weights_shape = (self.kernel, self.kernel, seen, self.size)
        area = self.kernel * self.kernel
        xp = ops.xp
        side_by_side = bands(at, channels, self.size) if ops.convolve else None

        def dense(parameters: Tree) -> Array:
            """Weights of all channels, shape (inputs, outputs); zero where a filter does not look."""
            weights = parameters["w"]
            if table is not None:
                weights = xp.sum(weights[:, :, :, None] * table, axis=2)
            return weights.reshape(area * channels, self.size)

        def filters(parameters: Tree) -> Array:
            return dense(parameters).reshape(self.kernel, self.kernel, channels, self.size)

        def init(coins: Coins, stage: str) -> Tree:
            return self._first_numbers(weights_shape, coins, stage, ops)

        def forward(parameters: Tree, x: Array) -> tuple[Array, Tree]:
            if side_by_side:
                y, seen = ops.dot(side_by_side.unfold(x, ops), side_by_side.matrix(filters(parameters), ops)), x
                y = y.reshape(-1, *at.places, self.size)
            elif ops.convolve:
                y, seen = ops.convolve(x, filters(parameters), self.stride, at.margin), x
            else:
                seen = at.unfold(x, ops)
                y = ops.dot(seen.reshape(-1, area * channels), dense(parameters)).reshape(-1, *at.places, self.size)
            return y + parameters["b"] if self.bias else y, seen

        def pull_back(parameters: Tree, seen: Array, slope: Array) -> Array:
            if side_by_side and self.stride == 1:
                rows = slope.reshape(-1, side_by_side.width * self.size)
                return side_by_side.fold(ops.dot_t(rows, side_by_side.matrix(filters(parameters), ops)), ops)
            if ops.convolve and self.stride == 1:
                # A picture's slope is a convolution too: of the output's slope, with the filters turned round.
                turned = filters(parameters)[::-1, ::-1].transpose(0, 1, 3, 2)
                above, below, left, right = (self.kernel - 1 - lines for lines in at.margin)
                return ops.convolve(slope, turned, 1, (above, below, left, right))
            back = ops.dot_t(slope.reshape(-1, self.size), dense(parameters))
            back = back.reshape(-1, *at.places, area, channels)
            return at.fold([back[:, :, :, place] for place in range(area)], ops)

        def factors(parameters: Tree, seen: Array, slope: Array) -> ConvolutionFactors:
            places = at.places[0] * at.places[1]
            return ConvolutionFactors(
                seen=seen,
                at=at,
                slope=slope.reshape(-1, places, self.size),
                bias=self.bias,
                shape=weights_shape,
                table=table,
                bands=side_by_side,
                ops=ops,
            )

        def write(graph: Graph, parameters: Tree, x: Value) -> Value:
            arrays = [np.asarray(filters(parameters)), *([parameters["b"]] if self.bias else [])]
            return self._written(graph, arrays, at, x)

        return Layer(
            shape=(*at.places, self.size),
            init=init,
            forward=forward,
            pull_back=pull_back,
            factors=factors,
            biased=self.bias,
            write=write,
        )

    def _first_numbers(self, shape: Shape, coins: Coins, stage: str, ops: Ops) -> Tree:
        """Draw the first weights, of that shape, and the first biases."""
        seen, fan_in = self.kernel * self.kernel * shape[2], self.start == "fan-in"
        made = self.kernel * self.kernel * self.size
        reach = self.start_scale * math.sqrt(1.0 / seen if fan_in else 6.0 / (seen + made))
        drawn = {"w": (coins.uniform(f"{stage}/w", shape) * 2 - 1) * reach}
        return drawn | ({"b": first_biases(self.size, reach * fan_in, coins, stage, ops)} if self.bias else {})

    def _written(self, graph: Graph, arrays: list[Array], at: Windows, x: Value) -> Value:
        """Add a convolution with these filters and biases to a graph of ONNX."""
        filters, *biases = arrays
        constants = [graph.constant(np.ascontiguousarray(filters.transpose(3, 2, 0, 1))), *map(graph.constant, biases)]
        above, below, left, right = at.margin
        pads, strides = (above, left, below, right), (self.stride, self.stride)
        y = graph.add("Conv", channels_first(graph, x), *constants, pads=pads, strides=strides)
        return channels_last(graph, y)

    def table(self, channels: int) -> Array | None:
        """Return 1 where what an output sees as its s-th channel is channel c: shape (seen, channels, outputs)."""
        if self.connections is None:
            return None
        if isinstance(self.connections, int):
            lists = [[(first + more) % channels for more in range(self.connections)] for first in range(self.size)]
        else:
            lists = self.connections
        seen = {len(channels_of_filter) for channels_of_filter in lists}
        right = len(lists) == self.size and len(seen) == 1 and 0 < min(seen) <= channels
        if not right or any(
            len(set(channels_of_filter)) != len(channels_of_filter)
            or not set(channels_of_filter) <= set(range(channels))
            for channels_of_filter in lists
        ):
            raise BadInput(
                f"connections must name, for each of {self.size} filters, equally many of the {channels} channels",
                where="model.layers",
                hint=f"a number from 1 to {channels}, or {self.size} lists of the same length, no channel twice",
            )
        return np.eye(channels, dtype=np.float32)[np.array(lists)].transpose(1, 2, 0)
