"""The layers between two stages as one owner has them: over its own sums, and nobody else's.

Flat sums are the lines that it owns. Of pictures it has the channels in which it owns a place, as whole pictures:
places of others hold numbers that nobody looks at, since whatever joins places is owned as a whole.
"""

from __future__ import annotations

import numpy as np

from crowdml.core import NUMPY, Array, record
from crowdml.core.ops import Tree
from crowdml.models.layers import Layer, Shape
from crowdml.models.layers.dense import Flatten
from crowdml.models.layers.normalisation import GroupNorm
from crowdml.slicing.piece_state import own_channels
from crowdml.slicing.sliced_net import SlicedNet
from crowdml.slicing.stages import Indices, Stage


@record
class OwnLayers:
    """One owner's share of a stage's sums, and the layers that work on them.

    Attributes:
        stage: The stage.
        sums: Numbers of its sums.
        channels: Channels that they belong to; in a flat stage the sums themselves.
        shape: Shape of one example's sums.
        layers: Numbers of the layers, and the layers over its sums.
    """

    stage: Stage
    sums: Indices
    channels: Indices
    shape: Shape
    layers: tuple[tuple[int, Layer], ...]

    def columns(self, sums: Indices) -> Indices:
        """Return where sums stand in one example of its own."""
        if len(self.shape) == 1:
            return np.searchsorted(self.sums, sums)
        place, channel = np.divmod(sums, self.stage.channels)
        return place * len(self.channels) + np.searchsorted(self.channels, channel)

    def add(self, into: Array | None, columns: Indices, numbers: Array) -> Array:
        """Add partial sums, of which each line belongs to a column; begin where there are none yet."""
        rows = numbers.shape[1]
        if into is None:
            if len(self.shape) == 1 and len(columns) == self.shape[0]:
                return np.array(numbers)
            into = np.zeros((*self.shape, rows) if len(self.shape) == 1 else (rows, *self.shape), numbers.dtype)
        if len(self.shape) == 1:
            into[columns] += numbers
        else:
            into.reshape(rows, -1)[:, columns] += numbers.T
        return into

    def lines(self, slope: Array, columns: Indices) -> Array:
        """Return some of its slopes, a line for each."""
        if len(self.shape) == 1:
            return slope if len(columns) == len(slope) else slope[columns]
        return np.ascontiguousarray(slope.reshape(len(slope), -1)[:, columns].T)


def own_layers(net: SlicedNet, number: int, owner: int) -> OwnLayers | None:
    """Return what an owner has of a stage's sums; None where it has none."""
    stage = net.graph.stages[number]
    sums = np.nonzero(net.owners_of_sums[number] == owner)[0]
    if not len(sums):
        return None
    channels = own_channels(stage, sums)
    shape: Shape = (len(sums),) if len(stage.sums) == 1 else (*stage.sums[:2], len(channels))
    all_outputs = net.graph.owners_of_inputs(net.pieces)
    last = stage is net.graph.last
    outputs = np.arange(net.graph.outputs) if last else np.nonzero(all_outputs[number + 1] == owner)[0]
    made, at = [], shape
    for layer in stage.local:
        declared = net.model.declared[layer]
        if isinstance(declared, Flatten) and len(at) > 1:
            built = _flatten(at, channels, stage.outputs[0] // (at[0] * at[1]), outputs)
        elif isinstance(declared, GroupNorm):
            whole = net.model.layers[layer].shape[-1]
            built = declared.model_copy(update={"groups": declared.groups * at[-1] // whole}).build(at, NUMPY)
        else:
            built = declared.build(at, NUMPY)
        made.append((layer, built))
        at = built.shape
    return OwnLayers(stage=stage, sums=sums, channels=channels, shape=shape, layers=tuple(made))


def _flatten(shape: Shape, channels: Indices, all_channels: int, outputs: Indices) -> Layer:
    """Make an owner's pictures flat, and leave out places of others."""
    place, channel = np.divmod(outputs, all_channels)
    lines = place * len(channels) + np.searchsorted(channels, channel)

    def forward(parameters: Tree, x: Array) -> tuple[Array, Tree]:
        return np.ascontiguousarray(x.reshape(len(x), -1)[:, lines].T), ()

    def pull_back(parameters: Tree, memory: Tree, slope: Array) -> Array:
        back = np.zeros((slope.shape[1], int(np.prod(shape))), slope.dtype)
        back[:, lines] = slope.T
        return back.reshape(-1, *shape)

    return Layer(shape=(len(lines),), forward=forward, pull_back=pull_back)
