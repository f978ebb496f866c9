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
        at = windows(shape, self.kernel, self.stride, self.padding)
        fitted = _Fitted(
            settings=self,
            channels=channels,
            at=at,
            table=self.table(channels),
            bands=bands(at, channels, self.size) if ops.convolve else None,
            ops=ops,
        )
        return Layer(
            shape=(*at.places, self.size),
            init=fitted.init,
            forward=fitted.forward,
            pull_back=fitted.pull_back,
            factors=fitted.factors,
            biased=self.bias,
            write=fitted.write,
        )

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


@record
class _Fitted:
    """A convolution of pictures of one shape.

    Attributes:
        settings: What the task file says.
        channels: Channels of a picture.
        at: Where windows are.
        table: Which channels each output sees, as `Convolution.table`; None where each sees all.
        bands: How windows are multiplied side by side; None where they are not.
        ops: Array operations.
    """

    settings: Convolution
    channels: int
    at: Windows
    table: Array | None
    bands: Bands | None
    ops: Ops

    @property
    def area(self) -> int:
        """Places of a window."""
        return self.settings.kernel * self.settings.kernel

    @property
    def shape(self) -> Shape:
        """Shape of the weights, (kernel, kernel, channels seen, outputs)."""
        seen = self.channels if self.table is None else self.table.shape[0]
        return self.settings.kernel, self.settings.kernel, seen, self.settings.size

    def init(self, coins: Coins, stage: str) -> Tree:
        """Draw the first weights and the first biases."""
        settings, shape = self.settings, self.shape
        fan_in = settings.start == "fan-in"
        seen, made = self.area * shape[2], self.area * settings.size
        reach = settings.start_scale * math.sqrt(1.0 / seen if fan_in else 6.0 / (seen + made))
        drawn = {"w": (coins.uniform(f"{stage}/w", shape) * 2 - 1) * reach}
        if not settings.bias:
            return drawn
        return drawn | {"b": first_biases(settings.size, reach * fan_in, coins, stage, self.ops)}

    def forward(self, parameters: Tree, x: Array) -> tuple[Array, Tree]:
        """Multiply, the fastest way there is, and remember the pictures, or their windows where they were unfolded."""
        ops, size = self.ops, self.settings.size
        if self.bands:
            product = ops.dot(self.bands.unfold(x, ops), self.bands.matrix(self._filters(parameters), ops))
            y, seen = product.reshape(-1, *self.at.places, size), x
        elif ops.convolve:
            y, seen = ops.convolve(x, self._filters(parameters), self.settings.stride, self.at.margin), x
        else:
            seen = self.at.unfold(x, ops)
            product = ops.dot(seen.reshape(-1, self.area * self.channels), self._dense(parameters))
            y = product.reshape(-1, *self.at.places, size)
        return y + parameters["b"] if self.settings.bias else y, seen

    def pull_back(self, parameters: Tree, seen: Array, slope: Array) -> Array:
        """Carry the slope back to every picture."""
        ops, settings = self.ops, self.settings
        if self.bands and settings.stride == 1:
            rows = slope.reshape(-1, self.bands.width * settings.size)
            return self.bands.fold(ops.dot_t(rows, self.bands.matrix(self._filters(parameters), ops)), ops)
        if ops.convolve and settings.stride == 1:
            # A picture's slope is a convolution too: of the output's slope, with the filters turned round.
            turned = self._filters(parameters)[::-1, ::-1].transpose(0, 1, 3, 2)
            above, below, left, right = (settings.kernel - 1 - lines for lines in self.at.margin)
            return ops.convolve(slope, turned, 1, (above, below, left, right))
        back = ops.dot_t(slope.reshape(-1, settings.size), self._dense(parameters))
        back = back.reshape(-1, *self.at.places, self.area, self.channels)
        return self.at.fold([back[:, :, :, place] for place in range(self.area)], ops)

    def factors(self, parameters: Tree, seen: Array, slope: Array) -> ConvolutionFactors:
        """Hold the gradients of single pictures."""
        return ConvolutionFactors(
            seen=seen,
            at=self.at,
            slope=slope.reshape(-1, self.at.places[0] * self.at.places[1], self.settings.size),
            bias=self.settings.bias,
            shape=self.shape,
            table=self.table,
            bands=self.bands,
            ops=self.ops,
        )

    def write(self, graph: Graph, parameters: Tree, x: Value) -> Value:
        """Add it to a graph of ONNX."""
        filters = np.asarray(self._filters(parameters)).transpose(3, 2, 0, 1)
        constants = [graph.constant(np.ascontiguousarray(filters))]
        if self.settings.bias:
            constants.append(graph.constant(parameters["b"]))
        above, below, left, right = self.at.margin
        pads, strides = (above, left, below, right), (self.settings.stride, self.settings.stride)
        y = graph.add("Conv", channels_first(graph, x), *constants, pads=pads, strides=strides)
        return channels_last(graph, y)

    def _dense(self, parameters: Tree) -> Array:
        """Weights of all channels, shape (inputs, outputs); zero where a filter does not look."""
        weights = parameters["w"]
        if self.table is not None:
            weights = self.ops.xp.sum(weights[:, :, :, None] * self.table, axis=2)
        return weights.reshape(self.area * self.channels, self.settings.size)

    def _filters(self, parameters: Tree) -> Array:
        """The same, shape (kernel, kernel, channels, outputs)."""
        kernel = self.settings.kernel
        return self._dense(parameters).reshape(kernel, kernel, self.channels, self.settings.size)
