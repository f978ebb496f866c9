"""Windows of a picture, and pooling: of every window its largest number or its average, channel by channel.

Windows are the places at which a convolution or a pooling layer looks, unfolded into rows and folded back. Pictures
have shape (size, height, width, channels). Unfolding is a copy for each place of the kernel; folding adds the same
slices up again, so it is the transpose of unfolding. Both are slices and pads that NumPy and compiled code share.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from crowdml.core import Array, BadInput, Graph, Ops, Tree, Value, record
from crowdml.models.layers.layer import (
    Layer,
    LayerSettings,
    Shape,
    channels_first,
    channels_last,
    require_picture,
)

Padding = Literal["same", "valid"]


@record
class Windows:
    """Where a kernel stands.

    Attributes:
        kernel: Height and width of the kernel.
        stride: Step from one place to the next.
        size: Height and width of a picture.
        places: Number of places, downwards and across.
        margin: Lines put around the picture: above, below, left, right.
    """

    kernel: int
    stride: int
    size: tuple[int, int]
    places: tuple[int, int]
    margin: tuple[int, int, int, int]

    @property
    def padded(self) -> bool:
        """Whether the kernel reaches beyond the picture."""
        return any(self.margin)

    @property
    def tiles(self) -> bool:
        """Whether windows cover the picture without gap and overlap."""
        return not self.padded and all(
            self.kernel == self.stride and places * self.stride == size
            for places, size in zip(self.places, self.size, strict=True)
        )

    def slices(self, pictures: Array, ops: Ops, fill: float = 0.0) -> list[Array]:
        """What each place of the kernel sees, in the order of the kernel; each of shape (size, *places, channels)."""
        above, below, left, right = self.margin
        if self.padded:
            around = ((0, 0), (above, below), (left, right), (0, 0))
            pictures = ops.xp.pad(pictures, around, constant_values=fill)
        down, across = ((count - 1) * self.stride + 1 for count in self.places)
        return [
            pictures[:, row : row + down : self.stride, column : column + across : self.stride]
            for row in range(self.kernel)
            for column in range(self.kernel)
        ]

    def unfold(self, pictures: Array, ops: Ops) -> Array:
        """Return every window as a row: shape (size, *places, kernel · kernel · channels)."""
        above, below, left, right = self.margin
        if self.padded:
            pictures = ops.xp.pad(pictures, ((0, 0), (above, below), (left, right), (0, 0)))
        down, across = ((count - 1) * self.stride + 1 for count in self.places)
        kernel, step = range(self.kernel), self.stride
        # Lines first: then a window is copied line by line, and pieces as small as the channels of one place are copied
        # once only, not again for every line of the kernel.
        lines = ops.xp.concatenate([pictures[:, :, at : at + across : step] for at in kernel], axis=-1)
        return ops.xp.concatenate([lines[:, at : at + down : step] for at in kernel], axis=-1)

    def fold(self, slices: list[Array], ops: Ops) -> Array:
        """Add slices up where they came from; the transpose of `slices`."""
        xp, s = ops.xp, self.stride
        above, below, left, right = self.margin
        high, wide = self.size[0] + above + below, self.size[1] + left + right
        total: Array = 0
        for at, piece in enumerate(slices):
            row, column = divmod(at, self.kernel)
            if s > 1:
                count, down, across, channels = piece.shape
                piece = xp.pad(piece[:, :, None, :, None], ((0, 0), (0, 0), (0, s - 1), (0, 0), (0, s - 1), (0, 0)))
                piece = piece.reshape(count, down * s, across * s, channels)[:, : high - row, : wide - column]
            below_it, beside_it = high - row - piece.shape[1], wide - column - piece.shape[2]
            total = total + xp.pad(piece, ((0, 0), (row, below_it), (column, beside_it), (0, 0)))
        return total[:, above : above + self.size[0], left : left + self.size[1]]


def windows(shape: Shape, kernel: int, stride: int, padding: Padding | int) -> Windows:
    """Place a kernel over pictures.

    `same` gives a place for every `stride` lines, `valid` stays inside the picture, a number puts so many lines of
    zeros on each side.
    """
    lines = 0 if padding == "valid" else padding
    if lines != "same" and kernel > min(shape[:2]) + 2 * lines:
        raise BadInput(
            f"a window of {kernel} by {kernel} does not fit into a picture of {shape[0]} by {shape[1]}"
            + f" with {lines} lines around it" * bool(lines),
            where="model.layers",
            hint='a smaller kernel, fewer layers that shrink the picture, or padding = "same"',
        )
    if lines != "same" and lines >= kernel:
        raise BadInput(
            f"padding = {lines} has windows of {kernel} by {kernel} that see nothing but zeros",
            where="model.layers",
            hint=f"at most {kernel - 1}",
        )
    places, margin = [], []
    for size in shape[:2]:
        if lines != "same":
            places.append((size + 2 * lines - kernel) // stride + 1)
            margin += [lines, lines]
        else:
            places.append(-(-size // stride))
            needed = max(0, (places[-1] - 1) * stride + kernel - size)
            margin += [needed // 2, needed - needed // 2]
    return Windows(
        kernel=kernel,
        stride=stride,
        size=(shape[0], shape[1]),
        places=(places[0], places[1]),
        margin=(margin[0], margin[1], margin[2], margin[3]),
    )


LOWEST = -3.0e38
"""What stands around a picture for the largest of a window: below every number that can be there."""


class Pooling(LayerSettings):
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

        return Layer(shape=(*at.places, channels), forward=forward, pull_back=pull_back, write=write)


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
            for seen in slices[1:]:
                y = xp.maximum(y, seen)
        return y, (x, y)

    def pull_back(parameters: Tree, memory: Tree, slope: Array) -> Array:
        x, y = memory
        free, parts = xp.ones_like(y, dtype=bool), []
        for seen in at.slices(x, ops, LOWEST):
            hit = (seen == y) & free
            free = free & ~hit
            parts.append(xp.where(hit, slope, xp.float32(0)))
        return _untile(parts, at, ops) if at.tiles else at.fold(parts, ops)

    return forward, pull_back


def _average(at: Windows, ops: Ops):  # type: ignore[no-untyped-def]
    area = np.float32(at.kernel * at.kernel)

    def forward(parameters: Tree, x: Array) -> tuple[Array, Tree]:
        if at.tiles:
            return ops.sum_each(_tiles(x, at), (2, 4)) / area, ()
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
