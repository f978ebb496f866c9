"""Sharing between groups: the server's sliding window of uploaded weights (SliceNet, algorithm 1 and section IV-E).

After a pass each device of a group uploads, of the weights it keeps, the share θ that moved most, and everything that
belongs to a neuron itself (bias, normalisation). The server averages what its window has of each number. A group takes
over the numbers of which the window has more than ω·τ values. The paper can be read in two ways: a window of the last ω
uploads, or one of the last ω values of each weight.
"""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crowdml.core import Array, record
from crowdml.core.ops import Tree
from crowdml.models import flatten
from crowdml.slicing.sliced_net import SlicedNet
from crowdml.slicing.stages import Indices

Floats = npt.NDArray[np.float32]
ALWAYS = -2
"""Stands for the owner of a number that is shared in any case."""


class Window(abc.ABC):
    """What the server keeps. Lazy: averages are worked out when a group asks for them."""

    def __init__(self, omega: int, *, size: int) -> None:
        """Keep so many uploads, or so many values of each of at most `size` numbers."""
        self.omega = omega
        self._sum = np.zeros(size)
        self._count = np.zeros(size, np.int64)

    @abc.abstractmethod
    def upload(self, numbers: Indices, values: Floats) -> None:
        """Take an upload, whose numbers differ from each other; what is too old leaves the window."""

    def state(self) -> list[Array]:
        """Return all arrays of it, so that `restore` of another window has the same."""
        return [self._sum, self._count]

    def restore(self, arrays: Sequence[Array]) -> None:
        """Take over what the `state` of a window of the same kind and size was."""
        self._sum, self._count = (np.array(each) for each in arrays)

    def known(self, first: Floats) -> Floats:
        """Return what everybody may know of the parameters: averages of the window, first values elsewhere."""
        numbers, values = self.download(0.0)
        made = np.array(first, np.float32)
        made[numbers] = values
        return made

    def download(self, tau: float) -> tuple[Indices, Floats]:
        """Return the numbers of which the window has more than ω·τ values, and their averages."""
        numbers = np.nonzero(self._count > self.omega * tau)[0]
        return numbers, (self._sum[numbers] / self._count[numbers]).astype(np.float32)


class UploadWindow(Window):
    """The last ω uploads, whatever they contain.

    >>> window = UploadWindow(2, size=3)
    >>> window.upload(np.array([0, 1]), np.array([1.0, 5.0], np.float32))
    >>> window.upload(np.array([0]), np.array([3.0], np.float32))
    >>> numbers, values = window.download(0.5)
    >>> numbers.tolist(), values.tolist()
    ([0], [2.0])
    """

    def __init__(self, omega: int, *, size: int) -> None:
        super().__init__(omega, size=size)
        self.uploads: deque[tuple[Indices, Floats]] = deque()

    def state(self) -> list[Array]:
        """Add how long uploads are, and all of them one after the other."""
        lengths = np.array([len(numbers) for numbers, _ in self.uploads], np.int64)
        numbers = np.concatenate([np.zeros(0, np.int64), *(numbers for numbers, _ in self.uploads)])
        values = np.concatenate([np.zeros(0, np.float32), *(values for _, values in self.uploads)])
        return [*super().state(), lengths, numbers, values]

    def restore(self, arrays: Sequence[Array]) -> None:
        """Take over uploads, too."""
        *sums, lengths, numbers, values = arrays
        super().restore(sums)
        ends = np.cumsum(lengths)[:-1]
        self.uploads = (
            deque(zip(np.split(numbers, ends), np.split(values, ends), strict=True)) if len(lengths) else deque()
        )

    def upload(self, numbers: Indices, values: Floats) -> None:
        """Take an upload; the oldest leaves the window when it is full."""
        self.uploads.append((numbers, values))
        self._sum[numbers] += values
        self._count[numbers] += 1
        if len(self.uploads) > self.omega:
            old, past = self.uploads.popleft()
            self._sum[old] -= past
            self._count[old] -= 1


class WeightWindow(Window):
    """The last ω values of each weight, however long ago they were uploaded.

    >>> window = WeightWindow(2, size=3)
    >>> for value in (1.0, 3.0, 5.0):
    ...     window.upload(np.array([0]), np.array([value], np.float32))
    >>> window.upload(np.array([1]), np.array([9.0], np.float32))
    >>> window.download(0.5)[1].tolist(), window.download(0.0)[1].tolist()
    ([4.0], [4.0, 9.0])
    """

    def __init__(self, omega: int, *, size: int) -> None:
        super().__init__(omega, size=size)
        self._values = np.zeros((omega, size), np.float32)
        self._next = np.zeros(size, np.int64)

    def state(self) -> list[Array]:
        """Add all values, and where the next of each weight goes."""
        return [*super().state(), self._values, self._next]

    def restore(self, arrays: Sequence[Array]) -> None:
        """Take over all values, too."""
        *sums, values, following = arrays
        super().restore(sums)
        self._values, self._next = np.array(values), np.array(following)

    def upload(self, numbers: Indices, values: Floats) -> None:
        """Take an upload; of the weights in it the oldest value leaves where there are ω."""
        slot = self._next[numbers]
        # Places that were never used hold zeros.
        self._sum[numbers] += values.astype(np.float64) - self._values[slot, numbers]
        self._values[slot, numbers] = values
        self._next[numbers] = (slot + 1) % self.omega
        self._count[numbers] = np.minimum(self._count[numbers] + 1, self.omega)


WINDOWS: dict[str, type[Window]] = {"uploads": UploadWindow, "weights": WeightWindow}


@record
class UploadNoise:
    """Bound and noise on what a group uploads after a pass.

    Guarantee: an upload is sent relative to what the server knows already, bounded as a whole. So replacing a row, or a
    device, or the whole group, changes it by at most 2 · clip in L2; with Gaussian noise of standard deviation
    noise · clip each upload is a Gaussian release with μ = 2 / noise towards the server.

    Attributes:
        clip: Largest L2 norm of an upload.
        noise: Standard deviation of the noise on each number, as a multiple of `clip`.
    """

    clip: float
    noise: float

    @property
    def mu(self) -> float:
        """Strength of one upload: sensitivity over standard deviation."""
        return 2.0 / self.noise

    def released(self, values: Floats, known: Floats, generator: np.random.Generator) -> Floats:
        """Return what is sent: what is known, the bounded difference from it, and noise."""
        moved = values - known
        norm = float(np.sqrt(np.sum(moved.astype(np.float64) ** 2)))
        drawn = generator.standard_normal(len(values)) * (self.noise * self.clip)
        return (known + moved * min(1.0, self.clip / max(norm, 1e-12)) + drawn).astype(np.float32)


def owners_of_parameters(net: SlicedNet, like: Tree) -> Indices:
    """Return who keeps each number of the flat parameters: the owner of a weight's source; ALWAYS where none is."""
    marked = tuple(
        {name: np.full(np.shape(leaf), ALWAYS, np.int64) for name, leaf in of_layer.items()} for of_layer in like
    )
    for stage, of_stage in zip(net.graph.stages, net.parts, strict=True):
        for part in of_stage:
            marked[stage.linear]["w"].reshape(-1)[part.positions] = part.owner
    return flatten(marked)


def choose(importance: Floats, owners: Indices, theta: float) -> Indices:
    """Choose what is uploaded: the share θ of every owner's weights that matters most, and what is always shared."""
    chosen = [np.nonzero(owners == ALWAYS)[0]]
    for owner in np.unique(owners[owners != ALWAYS]):
        kept = np.nonzero(owners == owner)[0]
        count = round(theta * len(kept))
        if count:
            chosen.append(kept[np.argpartition(importance[kept], len(kept) - count)[len(kept) - count :]])
    return np.concatenate(chosen)
