"""Stages: the parts of a model between two places where sums are formed, and what inside them must stay together.

A dense layer or a convolution forms sums over the layer before. Everything up to the next one (normalisation,
activation, pooling, flattening) works on the finished sums. A *cell* is the smallest set of neurons that one device
must own as a whole, because what joins them is not a sum: the window of a pooling layer, or a channel that is
normalised as one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from crowdml.core import NUMPY, BadInput, record
from crowdml.models import Model
from crowdml.models.layers import Shape
from crowdml.models.layers.convolution import Convolution
from crowdml.models.layers.dense import Dense, Flatten
from crowdml.models.layers.normalisation import BatchNorm, GroupNorm
from crowdml.models.layers.pooling import Pooling, windows
from crowdml.models.layers.residual import Residual
from crowdml.models.layers.series import SeriesConvolution

Indices = npt.NDArray[np.int64]
Edges = tuple[Indices, Indices]
"""From and to, one entry per edge."""


@record
class Stage:
    """A layer that forms sums, and the layers that work on them.

    Attributes:
        linear: Number of the layer that forms sums.
        local: Numbers of the layers that work on them.
        inputs: Shape of one example before the stage.
        sums: Shape of the sums.
        outputs: Shape of one example after the stage.
        reach: One row per input, one column per sum; 1 where an edge joins them.
        cell_of_sum: The cell of each sum.
        cell_of_output: The cell of each output.
        nodes: Neurons in each cell.
        edges: Edges inside each cell: from a sum to its pooling window, from a window to its place in a flat row.
        inside: The same edges one by one, between neurons of the stage; sums come first.
        neuron_of_output: The neuron behind each output.
    """

    linear: int
    local: tuple[int, ...]
    inputs: Shape
    sums: Shape
    outputs: Shape
    reach: Any
    cell_of_sum: Indices
    cell_of_output: Indices
    nodes: Indices
    edges: Indices
    inside: Edges
    neuron_of_output: Indices

    @property
    def cells(self) -> int:
        """How many cells there are: each belongs to one piece as a whole."""
        return len(self.nodes)

    @property
    def channels(self) -> int:
        """Number of channels of the sums; 1 where they are flat."""
        return self.sums[-1] if len(self.sums) > 1 else 1


def stages(model: Model) -> tuple[tuple[int, ...], tuple[Stage, ...]]:
    """Cut a model into the layers before its first sum, and its stages."""
    for layer in model.declared:
        if isinstance(layer, Residual | SeriesConvolution):
            raise BadInput(
                f"a {layer.kind} layer cannot be cut into pieces",
                where="model.layers",
                hint="dense and convolution can",
            )
    starts = [at for at, layer in enumerate(model.declared) if isinstance(layer, Dense | Convolution)]
    if len(starts) < 2:
        raise BadInput("there is no hidden layer to slice", where="model", hint='use kind = "mlp", "cnn" or "layers"')
    made = [_stage(model, begin, end) for begin, end in zip(starts, [*starts[1:], len(model.declared)], strict=True)]
    return tuple(range(starts[0])), tuple(made)


def _stage(model: Model, begin: int, end: int) -> Stage:
    before = model.layers[begin - 1].shape if begin else model.shape
    sums = model.layers[begin].shape
    growing = _Cells(math.prod(sums))
    at = sums
    for number in range(begin + 1, end):
        growing.add(model.declared[number], at)
        at = model.layers[number].shape
    cell_of_sum, cell_of_output, nodes, edges = growing.finish()
    return Stage(
        linear=begin,
        local=tuple(range(begin + 1, end)),
        inputs=before,
        sums=sums,
        outputs=at,
        reach=_reach(model.declared[begin], before, sums),
        cell_of_sum=cell_of_sum,
        cell_of_output=cell_of_output,
        nodes=nodes,
        edges=edges,
        inside=growing.edges,
        neuron_of_output=growing.now,
    )


def _reach(layer: Any, inputs: Shape, sums: Shape) -> Any:
    """Return which input reaches which sum."""
    if isinstance(layer, Dense):
        return sparse.csr_array(np.ones((math.prod(inputs), math.prod(sums)), np.int32))
    at, table = windows(inputs, layer.kernel, layer.stride, layer.padding), layer.table(inputs[2])
    seen = np.ones((inputs[2], layer.size), bool) if table is None else table.sum(axis=0) > 0
    channel, output = np.nonzero(seen)
    numbers = np.arange(math.prod(inputs)).reshape(1, *inputs)
    places = np.arange(math.prod(at.places)).reshape(*at.places, 1)
    sources, targets = [], []
    for seen in at.slices(numbers, NUMPY, -1):
        source = seen[0][:, :, channel]
        target = np.broadcast_to(places * layer.size + output, source.shape)
        inside = source >= 0
        sources.append(source[inside])
        targets.append(target[inside])
    edges = (np.concatenate(sources), np.concatenate(targets))
    shape = (math.prod(inputs), math.prod(sums))
    return sparse.csr_array((np.ones(len(edges[0]), np.int32), edges), shape=shape)


class _Cells:
    """Grows the cells of a stage layer by layer, by joining neurons that must stay together."""

    def __init__(self, sums: int) -> None:
        self.count = sums
        self.first = sums
        self.now: Indices = np.arange(sums)
        self.joins: list[Edges] = []
        self.inside: list[Edges] = []

    def add(self, layer: Any, shape: Shape) -> None:
        """Take the next layer, which sees examples of the given shape."""
        if isinstance(layer, BatchNorm | GroupNorm):
            groups = layer.groups if isinstance(layer, GroupNorm) else shape[-1]
            self._join_groups(np.arange(math.prod(shape)) % shape[-1] // (shape[-1] // groups))
        elif isinstance(layer, Pooling):
            at = windows(shape, layer.size, layer.stride or layer.size, layer.padding)
            numbers = np.arange(math.prod(shape)).reshape(1, *shape)
            seen = np.stack([piece[0].reshape(-1) for piece in at.slices(numbers, NUMPY, -1)])
            target = np.broadcast_to(np.arange(seen.shape[1]), seen.shape)
            self._grow(seen.shape[1], (seen[seen >= 0], target[seen >= 0]))
        elif isinstance(layer, Flatten) and len(shape) > 1:
            numbers = np.arange(math.prod(shape))
            self._grow(len(numbers), (numbers, numbers))

    @property
    def edges(self) -> Edges:
        """All edges between neurons of the stage."""
        none = np.zeros(0, np.int64)
        return np.concatenate([none, *(pair[0] for pair in self.inside)]), np.concatenate(
            [none, *(pair[1] for pair in self.inside)]
        )

    def _grow(self, count: int, edges: Edges) -> None:
        later = self.count + np.arange(count)
        made = (self.now[edges[0]], later[edges[1]])
        self.joins.append(made)
        self.inside.append(made)
        self.now, self.count = later, self.count + count

    def _join_groups(self, group: Indices) -> None:
        _, first = np.unique(group, return_index=True)
        self.joins.append((self.now, self.now[first[group]]))

    def finish(self) -> tuple[Indices, Indices, Indices, Indices]:
        """Return the cell of each sum and of each output, and every cell's neurons and edges."""
        cell = np.arange(self.count)
        if self.joins:
            source, target = (np.concatenate(part) for part in zip(*self.joins, strict=True))
            graph = sparse.coo_array((np.ones(len(source), np.int8), (source, target)), shape=(self.count,) * 2)
            cell = connected_components(graph, directed=False)[1].astype(np.int64)
        cells = int(cell.max()) + 1
        edges = np.zeros(cells, np.int64)
        for source, _ in self.inside:
            edges += np.bincount(cell[source], minlength=cells)
        return cell[: self.first], cell[self.now], np.bincount(cell, minlength=cells), edges
