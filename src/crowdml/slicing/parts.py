"""Parts of a layer that forms sums: what each owner of its inputs keeps of it, and how it works on that alone.

An owner has the weights that leave its neurons and nothing else. Its part is the same kind of layer, over its own
inputs: forward it gives partial sums, backward it takes the slopes of the sums. What one process does for all owners
and what each owner does for itself goes through the same products of the same shapes, so it gives the same bits.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import Array, Ops, record
from crowdml.core.ops import Tree
from crowdml.models import Model
from crowdml.models.layers import Layer
from crowdml.models.layers.convolution import Convolution
from crowdml.models.layers.dense import Dense
from crowdml.slicing.cost_graph import DOMINATOR, CostGraph
from crowdml.slicing.stages import Indices, Stage


@record
class Part(abc.ABC):
    """One owner's part of a layer.

    Attributes:
        owner: Number of the piece.
        layer: The layer over the owner's inputs, without bias.
        positions: Where the owner's weights stand among all weights of the layer, if these are written as one row.
    """

    owner: int
    layer: Layer
    positions: Indices

    @abc.abstractmethod
    def take(self, parameters: Tree, rows: int) -> Tree:
        """Return what the owner keeps of the layer's parameters, for a product with so many rows."""

    @abc.abstractmethod
    def unpack(self, numbers: Array) -> Tree:
        """Return what the owner keeps, from its numbers in the order of `positions`."""

    @abc.abstractmethod
    def pack(self, total: Tree) -> Array:
        """Return the owner's gradient as one row, in the order of `positions`."""

    @abc.abstractmethod
    def see(self, x: Array) -> Array:
        """Return the owner's inputs of all inputs of the layer."""

    @abc.abstractmethod
    def add_sums(self, sums: Array, partial: Array) -> None:
        """Add its partial sums, as receivers do."""

    @abc.abstractmethod
    def hear(self, slope: Array) -> Array:
        """Return the slopes it receives."""

    @abc.abstractmethod
    def put_back(self, slope: Array, into: Array) -> None:
        """Put slopes of its inputs among those of all."""

    @abc.abstractmethod
    def lines(self, partial: Array, sums: Indices) -> Array:
        """Return some partial sums, a line for each."""

    @abc.abstractmethod
    def together(self, told: Sequence[tuple[Indices, Array]]) -> Array:
        """Put slopes that came from several owners together, in lines; who has no part in a sum is not told."""


@record
class DensePart(Part):
    """Some columns of a matrix.

    Attributes:
        place: The owner's inputs: a slice where they follow each other, which needs no copy.
        shape: Outputs and inputs of the part.
    """

    place: slice | Indices
    shape: tuple[int, int]

    def take(self, parameters: Tree, rows: int) -> Tree:
        """Take columns. Products with a vector have other bits where its matrix is part of a larger one."""
        kept = parameters["w"][:, self.place]
        return {"w": np.ascontiguousarray(kept) if 1 in (*self.shape, rows) else kept}

    def unpack(self, numbers: Array) -> Tree:
        """Numbers are the columns, line by line."""
        return {"w": numbers.reshape(self.shape)}

    def pack(self, total: Tree) -> Array:
        """Write lines one after the other."""
        return total["w"].reshape(-1)

    @np.errstate(invalid="ignore")  # as in core.ops
    def product(self, weighted: Array, x: Array, into: Array) -> None:
        """Put the gradient from weighted slopes and inputs into its columns of the layer's."""
        if isinstance(self.place, slice) and 1 not in (*self.shape, x.shape[-1]):
            np.matmul(weighted, x.T, out=into[:, self.place])
        else:
            into[:, self.place] = weighted @ x.T

    def see(self, x: Array) -> Array:
        """Take rows; the dominator, who has all, takes examples as they lie."""
        return x if self.owner == DOMINATOR else np.ascontiguousarray(x[self.place])

    def add_sums(self, sums: Array, partial: Array) -> None:
        """Every owner has a part in every sum."""
        sums += partial

    def hear(self, slope: Array) -> Array:
        """Every slope comes to every owner."""
        return slope

    def put_back(self, slope: Array, into: Array) -> None:
        """Nobody else has these inputs."""
        into[self.place] = slope

    def lines(self, partial: Array, sums: Indices) -> Array:
        """Sums are lines already."""
        return partial if len(sums) == len(partial) else partial[sums]

    def together(self, told: Sequence[tuple[Indices, Array]]) -> Array:
        """Put lines where they belong."""
        slope = np.empty((self.shape[0], told[0][1].shape[1]), told[0][1].dtype)
        for sums, numbers in told:
            slope[sums] = numbers
        return slope


@record
class ConvolutionPart(Part):
    """The channels that an owner has a place of, and the filters that see one of them.

    A channel that is split between rows has its filters with each of its owners; places of others count as zero, and
    the gradients of the owners add up.

    Attributes:
        channels: Numbers of the channels.
        filters: Numbers of the filters.
        all_filters: How many filters the layer has.
        mine: 1 at the owner's places of these channels; None where it has all.
        shape: Shape of the part's weights.
        inside: Where, in these written as one row, each of `positions` stands. Elsewhere a filter does not look.
    """

    channels: Indices
    filters: Indices
    all_filters: int
    mine: npt.NDArray[np.bool_] | None
    shape: tuple[int, ...]
    inside: Indices

    def take(self, parameters: Tree, rows: int) -> Tree:
        """Take filters, with zeros where they do not look."""
        return self.unpack(parameters["w"].reshape(-1)[self.positions])

    def unpack(self, numbers: Array) -> Tree:
        """Put numbers where filters look."""
        made = np.zeros(math.prod(self.shape), numbers.dtype)
        made[self.inside] = numbers
        return {"w": made.reshape(self.shape)}

    def pack(self, total: Tree) -> Array:
        """Take slopes from where filters look."""
        return total["w"].reshape(-1)[self.inside]

    def see(self, x: Array) -> Array:
        """Take channels, with zeros at places of others."""
        return self.own(np.ascontiguousarray(x[..., self.channels]))

    def own(self, channels: Array) -> Array:
        """Set places of others to zero."""
        return channels if self.mine is None else channels * self.mine

    def add_sums(self, sums: Array, partial: Array) -> None:
        """Add what filters found."""
        sums[..., self.filters] += partial

    def hear(self, slope: Array) -> Array:
        """Take slopes of the filters."""
        return np.ascontiguousarray(slope[..., self.filters])

    def put_back(self, slope: Array, into: Array) -> None:
        """A channel may have several owners, each with places of its own."""
        into[..., self.channels] += self.own(slope)

    def lines(self, partial: Array, sums: Indices) -> Array:
        """Take numbers out of pictures."""
        return partial.reshape(len(partial), -1)[:, self._columns(sums)].T

    def together(self, told: Sequence[tuple[Indices, Array]]) -> Array:
        """Put numbers into pictures; zeros stand where filters see nothing of the owner's."""
        rows = told[0][1].shape[1]
        slope = np.zeros((rows, math.prod(self.layer.shape)), told[0][1].dtype)
        for sums, numbers in told:
            slope[:, self._columns(sums)] = numbers.T
        return slope.reshape(rows, *self.layer.shape)

    def _columns(self, sums: Indices) -> Indices:
        place, channel = np.divmod(sums, self.all_filters)
        return place * len(self.filters) + np.searchsorted(self.filters, channel)


def parts(model: Model, graph: CostGraph, pieces: Indices) -> tuple[tuple[Part, ...], ...]:
    """Cut every layer that forms sums. The first is the dominator's as a whole."""
    made = []
    for stage, owners in zip(graph.stages, graph.owners_of_inputs(pieces), strict=True):
        of: Any = _dense_part if isinstance(model.declared[stage.linear], Dense) else _convolution_part
        made.append(
            tuple(
                of(model, stage, int(owner), np.nonzero(owners == owner)[0], model.ops) for owner in np.unique(owners)
            )
        )
    return tuple(made)


def _run(numbers: Indices) -> slice | Indices:
    """Return numbers that follow each other as a slice: it needs no copy."""
    if len(numbers) and numbers[-1] - numbers[0] + 1 == len(numbers):
        return slice(int(numbers[0]), int(numbers[-1]) + 1)
    return numbers


def _dense_part(model: Model, stage: Stage, owner: int, inputs: Indices, ops: Ops) -> Part:
    sums, width = stage.sums[0], math.prod(stage.inputs)
    return DensePart(
        owner=owner,
        layer=Dense(size=sums, bias=False).build((len(inputs),), ops),
        positions=(np.arange(sums)[:, None] * width + inputs).reshape(-1),
        place=_run(inputs),
        shape=(sums, len(inputs)),
    )


def _convolution_part(model: Model, stage: Stage, owner: int, inputs: Indices, ops: Ops) -> Part:
    whole = model.declared[stage.linear]
    assert isinstance(whole, Convolution)  # noqa: S101  a stage begins with a dense layer or a convolution
    channels = np.unique(inputs % stage.inputs[2])
    # What each filter sees as its s-th channel: shape (seen, channels, outputs).
    table = whole.table(stage.inputs[2])
    if table is None:
        table = np.broadcast_to(
            np.eye(stage.inputs[2], dtype=np.float32)[:, :, None], (stage.inputs[2],) * 2 + (whole.size,)
        )
    filters = np.nonzero(table[:, channels].sum(axis=(0, 1)))[0]
    seen = table[:, channels][:, :, filters]
    mine = np.zeros(math.prod(stage.inputs), bool)
    mine[inputs] = True
    mine = mine.reshape(stage.inputs)[:, :, channels]
    shape = (whole.kernel, whole.kernel, len(channels), len(filters))
    channel, output = np.nonzero(seen.sum(axis=0))
    as_which = np.argmax(seen[:, channel, output], axis=0)
    area = np.arange(whole.kernel**2)[:, None]
    return ConvolutionPart(
        owner=owner,
        layer=Convolution(
            size=len(filters), kernel=whole.kernel, stride=whole.stride, padding=whole.padding, bias=False
        ).build((*stage.inputs[:2], len(channels)), ops),
        positions=((area * len(table) + as_which) * whole.size + filters[output]).reshape(-1),
        channels=channels,
        filters=filters,
        all_filters=whole.size,
        mine=None if mine.all() else mine,
        shape=shape,
        inside=((area * len(channels) + channel) * len(filters) + output).reshape(-1),
    )
