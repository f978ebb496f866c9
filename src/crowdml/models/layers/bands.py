"""Bands: a convolution with few filters as one wide matrix product, for compiled code.

A vector of the machine holds sixteen numbers. A product with six filters fills less than half of one, and windows are
copied for little use. So neighbouring places are taken together: a band of `width` windows side by side is one row, and
each filter stands in the matrix once for every place, one stride further right each time, with zeros around it. There
are more multiplications, of which some are by zero, and still it takes a quarter to two thirds of the time:
`benchmarks/cnn/few_filters.py` measures it.
"""

from __future__ import annotations

from crowdml.core import Array, Float, Ops, record
from crowdml.models.layers.pooling import Windows

FEW_FILTERS, FEW_CHANNELS = 16, 8
"""Up to so many filters and channels, bands are faster than XLA's convolution; with more of both they are slower."""
FILLED = 24
"""Columns that a matrix should have at least; more of them are more zeros."""


@record
class Bands:
    """Places of a kernel, taken together in bands.

    Attributes:
        at: Where the kernel stands.
        width: How many places side by side are a band.
        channels: Channels of a picture.
        outputs: How many filters there are.
    """

    at: Windows
    width: int
    channels: int
    outputs: int

    @property
    def span(self) -> int:
        """Columns of a picture that a band sees."""
        return self.at.kernel + (self.width - 1) * self.at.stride

    @property
    def step(self) -> int:
        """Columns from one band to the next."""
        return self.width * self.at.stride

    @property
    def across(self) -> int:
        """Bands in a line."""
        return self.at.places[1] // self.width

    @property
    def tilings(self) -> int:
        """How many times a line is cut into steps, each time one step further right, until bands are whole."""
        return -(-self.span // self.step)

    def unfold(self, pictures: Array, ops: Ops) -> Float[Array, "bands inputs"]:
        """Return every band of every picture as a row."""
        xp, (down, _), kernel = ops.xp, self.at.places, self.at.kernel
        above, below, left, right = self.at.margin
        columns = (self.tilings - 1 + self.across) * self.step
        right = max(right, columns - left - self.at.size[1])
        padded = xp.pad(pictures, ((0, 0), (above, below), (left, right), (0, 0)))
        high, wide = padded.shape[1], self.across * self.step
        tiles = [
            padded[:, :, first : first + wide].reshape(-1, high, self.across, self.step * self.channels)
            for first in range(0, self.tilings * self.step, self.step)
        ]
        lines = xp.concatenate(tiles, axis=-1)[..., : self.span * self.channels]
        lines_used = (down - 1) * self.at.stride + 1
        bands = xp.concatenate([lines[:, row : row + lines_used : self.at.stride] for row in range(kernel)], axis=-1)
        return bands.reshape(-1, kernel * self.span * self.channels)

    def matrix(self, filters: Array, ops: Ops) -> Float[Array, "inputs outputs"]:
        """Put filters of shape (kernel, kernel, channels, outputs) side by side, once for every place of a band."""
        xp, stride = ops.xp, self.at.stride
        moved = [
            xp.pad(filters, ((0, 0), (place * stride, (self.width - 1 - place) * stride), (0, 0), (0, 0)))
            for place in range(self.width)
        ]
        return xp.stack(moved, axis=3).reshape(-1, self.width * self.outputs)

    def filters(self, matrix: Array) -> Float[Array, "kernel kernel channels outputs"]:
        """Add up what belongs to a filter in all places; the transpose of `matrix`."""
        kernel, stride = self.at.kernel, self.at.stride
        parts = matrix.reshape(kernel, self.span, self.channels, self.width, self.outputs)
        return (
            sum(parts[:, place * stride : place * stride + kernel, :, place] for place in range(1, self.width))
            + parts[:, :kernel, :, 0]
        )

    def fold(self, rows: Array, ops: Ops) -> Array:
        """Add rows up where `unfold` took them from, for a stride of one."""
        xp, (down, _), kernel = ops.xp, self.at.places, self.at.kernel
        above, _, left, _ = self.at.margin
        rows = rows.reshape(-1, down, self.across, kernel, self.span * self.channels)
        lines = sum(
            xp.pad(rows[:, :, :, row], ((0, 0), (row, kernel - 1 - row), (0, 0), (0, 0))) for row in range(kernel)
        )
        wide, missing = self.tilings * self.step, (self.tilings * self.step - self.span) * self.channels
        lines = xp.pad(lines, ((0, 0), (0, 0), (0, 0), (0, missing)))
        lines = lines.reshape(-1, down + kernel - 1, self.across, wide, self.channels)
        total: Array = 0
        for first in range(0, wide, self.step):
            tiles = lines[:, :, :, first : first + self.step]
            tiles = tiles.reshape(-1, down + kernel - 1, self.across * self.step, self.channels)
            total = total + xp.pad(tiles, ((0, 0), (0, 0), (first, wide - self.step - first), (0, 0)))
        return total[:, above : above + self.at.size[0], left : left + self.at.size[1]]


def bands(at: Windows, channels: int, outputs: int) -> Bands | None:
    """Take as few places together as fill a vector and divide a line; None where there are filters enough."""
    if outputs > FEW_FILTERS or channels > FEW_CHANNELS:
        return None
    fitting = [width for width in range(1, at.places[1] + 1) if at.places[1] % width == 0]
    filling = [width for width in fitting if width * outputs >= FILLED]
    found = Bands(at=at, width=min(filling, default=max(fitting)), channels=channels, outputs=outputs)
    # A line of a prime number of places is one band, most of it zeros.
    return found if found.span <= 4 * at.kernel else None
