"""Windows: the places at which a convolution or a pooling layer looks, unfolded into rows and folded back.

Pictures have shape (size, height, width, channels). Unfolding is a copy for each place of the kernel; folding adds the
same slices up again, so it is the transpose of unfolding. Both are slices and pads that NumPy and compiled code share.
"""

from __future__ import annotations

from typing import Literal

from crowdml.core import Array, BadInput, Ops, record
from crowdml.models.layers.contract import Shape

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
        return ops.xp.concatenate(self.slices(pictures, ops), axis=-1)

    def fold(self, slices: list[Array], ops: Ops) -> Array:
        """Add slices up where they came from; the transpose of `slices`."""
        xp, s = ops.xp, self.stride
        above, below, left, right = self.margin
        high, wide = self.size[0] + above + below, self.size[1] + left + right
        total: Array = 0
        for at, own in enumerate(slices):
            row, column = divmod(at, self.kernel)
            if s > 1:
                count, down, across, channels = own.shape
                own = xp.pad(own[:, :, None, :, None], ((0, 0), (0, 0), (0, s - 1), (0, 0), (0, s - 1), (0, 0)))
                own = own.reshape(count, down * s, across * s, channels)[:, : high - row, : wide - column]
            below_it, beside_it = high - row - own.shape[1], wide - column - own.shape[2]
            total = total + xp.pad(own, ((0, 0), (row, below_it), (column, beside_it), (0, 0)))
        return total[:, above : above + self.size[0], left : left + self.size[1]]


def windows(shape: Shape, kernel: int, stride: int, padding: Padding) -> Windows:
    """Place a kernel over pictures; `same` gives a place for every `stride` lines, `valid` stays inside the picture."""
    if padding == "valid" and kernel > min(shape[:2]):
        raise BadInput(
            f"a window of {kernel} by {kernel} does not fit into a picture of {shape[0]} by {shape[1]}",
            where="model.layers",
            hint='a smaller kernel, fewer layers that shrink the picture, or padding = "same"',
        )
    places, margin = [], []
    for size in shape[:2]:
        if padding == "valid":
            places.append((size - kernel) // stride + 1)
            margin += [0, 0]
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
