"""A piece: all numbers that one owner keeps of a net, as one row of floats that can be put away and handed over.

What an owner keeps: the weights that leave its neurons, bias and normalisation of its own sums, Σ|gradient| of the
weights, and how many batches it has seen. A filter whose channel is split between owners is in the piece of each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from crowdml.core import record
from crowdml.core.errors import MalformedMessage
from crowdml.core.ops import Tree
from crowdml.slicing.cost_graph import DOMINATOR
from crowdml.slicing.parts import ConvolutionPart
from crowdml.slicing.sliced_net import SlicedNet
from crowdml.slicing.stages import Indices, Stage

Floats = npt.NDArray[np.float32] | npt.NDArray[np.float64]
HEADER = struct.Struct("<4sBxxxIII")
"""Of a piece's bytes: a mark, bytes of a number, batches, numbers, and how many of them are weights."""
MARK = b"CMP1"


@record
class Leaf:
    """Numbers of a piece that belong to one array of the net's parameters.

    Attributes:
        layer: Number of the layer.
        name: Name of the array: "w", "b", or one of a normalisation's.
        positions: Where they stand in the array, if it is written as one row.
    """

    layer: int
    name: str
    positions: Indices


@record
class PieceState:
    """What one owner keeps after so many batches.

    Attributes:
        numbers: All its numbers, in the order of its layout.
        importance: Σ|gradient| of those that are weights, in the same order.
        batches: Steps that have been made.
    """

    numbers: Floats
    importance: Floats
    batches: int = 0

    def to_bytes(self) -> bytes:
        """Write it; from these bytes it comes back with every bit."""
        size = self.numbers.dtype.itemsize
        header = HEADER.pack(MARK, size, self.batches, len(self.numbers), len(self.importance))
        return b"".join([header, *(row.astype(f"<f{size}").tobytes() for row in (self.numbers, self.importance))])

    @staticmethod
    def from_bytes(content: bytes | memoryview, layout: tuple[Leaf, ...]) -> PieceState:
        """Read it. Raises MalformedMessage for what is no piece of this layout, or has numbers that are not finite."""
        if len(content) < HEADER.size:
            raise MalformedMessage(f"{len(content)} bytes are no piece of a net")
        mark, size, batches, count, weights = HEADER.unpack_from(content)
        expected = length(layout), length(leaf for leaf in layout if leaf.name == "w")
        if mark != MARK or size not in (4, 8) or (count, weights) != expected:
            raise MalformedMessage(f"a piece of {expected[0]} numbers was expected, of which {expected[1]} are weights")
        if len(content) != HEADER.size + size * (count + weights):
            raise MalformedMessage(f"{len(content)} bytes for a piece of {count} numbers and {weights} weights")
        found = np.frombuffer(content, f"<f{size}", offset=HEADER.size).astype(f"f{size}")
        if not np.isfinite(found).all() or (found[count:] < 0).any():
            raise MalformedMessage("a number of a piece is not finite, or a sum of absolute values below zero")
        return PieceState(numbers=found[:count], importance=found[count:], batches=batches)


def length(layout: Iterable[Leaf]) -> int:
    """Count the numbers of a layout."""
    return sum(len(leaf.positions) for leaf in layout)


def piece_layout(net: SlicedNet, like: Tree, owner: int) -> tuple[Leaf, ...]:
    """Return which numbers an owner keeps, layer by layer; `like` has the shapes of the parameters."""
    return tuple(sorted(_leaves(net, like, owner), key=lambda leaf: (leaf.layer, leaf.name)))


def _leaves(net: SlicedNet, like: Tree, owner: int) -> Iterator[Leaf]:
    for number in net.graph.before if owner == DOMINATOR else ():
        yield from _all(like, number)
    owners_of_outputs = net.graph.owners_of_inputs(net.pieces)[1:]
    for number, (stage, sums) in enumerate(zip(net.graph.stages, net.owners_of_sums, strict=True)):
        for part in net.parts[number]:
            if part.owner == owner:
                yield Leaf(layer=stage.linear, name="w", positions=part.positions)
        own_sums = np.nonzero(sums == owner)[0]
        if not len(own_sums):
            continue
        if owner == DOMINATOR:
            # The last stage is its own, or all are.
            yield from (
                leaf for layer in (stage.linear, *stage.local) for leaf in _all(like, layer) if leaf.name != "w"
            )
            continue
        channels = own_channels(stage, own_sums)
        outputs = np.nonzero(owners_of_outputs[number] == owner)[0]
        for layer in (stage.linear, *stage.local):
            flat = len(net.model.layers[layer].shape) == 1 and len(stage.sums) > 1
            for name in sorted(set(like[layer]) - {"w"}):
                yield Leaf(layer=layer, name=name, positions=outputs if flat else channels)


def _all(like: Tree, layer: int) -> Iterator[Leaf]:
    for name in sorted(like[layer]):
        yield Leaf(layer=layer, name=name, positions=np.arange(np.size(like[layer][name])))


def own_channels(stage: Stage, sums: Indices) -> Indices:
    """Return the channels that some sums of a stage belong to; in a flat stage every sum is one."""
    return np.unique(sums % stage.channels) if len(stage.sums) > 1 else sums


def tied_numbers(net: SlicedNet, like: Tree, owner: int) -> dict[int, Indices]:
    """Return which numbers of an owner's layout others have as well, by the other's number; both in the same order.

    These are filters of a channel that is split between owners, and biases of such a channel.
    """
    mine, found = piece_layout(net, like, owner), {}
    may_be_tied = {
        (stage.linear, name)
        for number, stage in enumerate(net.graph.stages)
        for name in ("w", "b")
        if (isinstance(net.parts[number][0], ConvolutionPart) if name == "w" else net.split[number])
    }
    for other in (DOMINATOR, *range(int(net.pieces.max()) + 1)) if may_be_tied else ():
        theirs = {(leaf.layer, leaf.name): leaf.positions for leaf in piece_layout(net, like, other)}
        at, both = 0, []
        for leaf in mine:
            key = (leaf.layer, leaf.name)
            if key in may_be_tied and key in theirs and other != owner:
                both.append(at + np.intersect1d(leaf.positions, theirs[key], True, True)[1])
            at += len(leaf.positions)
        if sum(map(len, both)):
            found[other] = np.concatenate(both)
    return found
