"""A sliced net: forward and backward over pieces, with partial sums and slopes as the only messages.

Every owner works on its own weights. For each sum of the next stage it sends the part that it knows; the sum's owner
adds the parts up in the order of pieces, adds the bias, and goes on. Backward the slopes of the sums come to all who
sent a part. What lies between two stages (normalisation, activation, pooling) never reaches across owners, because
cells are owned as a whole. So gradients are those of the whole net, up to the order of additions.

This is all owners in one process. It takes shortcuts that do not change a bit of what separate owners find
(`piece_owner`): layers between stages see all cells at once, since their sums run row by row whoever has the rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from crowdml.core import Array, Batch, record, trees
from crowdml.core.ops import Tree
from crowdml.models import Model
from crowdml.slicing.cost_graph import CostGraph, cost_graph
from crowdml.slicing.number_formats import NUMBERS, Numbers
from crowdml.slicing.parts import DensePart, Part, parts
from crowdml.slicing.stages import Indices, Stage

Normalisation = Literal["exact", "pipelined"]
FirstCut = Callable[[Array], Array]
"""What happens to the dominator's sums on their way to the first followers, such as noise."""
Crossing = dict[tuple[int, int], Indices]
"""For a stage: which sums, of those that the second owns, the first has a part of. They may be one and the same."""


@record
class Pass:
    """What one batch gave.

    Attributes:
        gradient: The mean gradient over the batch, in the shape of the parameters.
        outputs: The net's outputs, shape (width, size).
    """

    gradient: Tree
    outputs: Array


@record
class Found:
    """The gradients that owners found from some rows, before those of shared filters are added up.

    Attributes:
        own: Gradients of what has one owner; empty places for the others.
        tied: Gradients of what may have several: for a layer and a name every owner's numbers, in the order of pieces.
        outputs: The net's outputs.
    """

    own: Tree
    tied: dict[tuple[int, str], list[Array]]
    outputs: Array


@record
class SlicedNet:
    """A model and the pieces it was cut into.

    Attributes:
        model: The whole model.
        graph: Its cost graph.
        pieces: The piece of every cell.
        parts: Of every stage, what its owners keep.
        numbers: Format of the numbers that cross a cut.
    """

    model: Model
    graph: CostGraph
    pieces: Indices
    parts: tuple[tuple[Part, ...], ...]
    numbers: Numbers = "float32"

    @functools.cached_property
    def owners_of_sums(self) -> list[Indices]:
        """The owner of every sum of every stage."""
        return self.graph.owners_of_sums(self.pieces)

    @functools.cached_property
    def crossing(self) -> tuple[Crossing, ...]:
        """For every stage what each owner tells each; a message is a matrix with a line for each of these sums."""
        made = []
        for stage, source, target in zip(
            self.graph.stages, self.graph.owners_of_inputs(self.pieces), self.owners_of_sums, strict=True
        ):
            of_stage: Crossing = {}
            for sender in np.unique(source).tolist():
                among = sparse.csr_array((source == sender).astype(np.int32)[None])
                told = np.unique((among @ stage.reach).nonzero()[1])
                for receiver in np.unique(target[told]).tolist():
                    of_stage[sender, receiver] = told[target[told] == receiver]
            made.append(of_stage)
        return tuple(made)

    @functools.cached_property
    def split(self) -> tuple[dict[int, npt.NDArray[np.bool_]], ...]:
        """For every stage with a channel of several owners, each owner's sums; such a channel's bias has as many."""
        made = []
        for stage, owners in zip(self.graph.stages, self.owners_of_sums, strict=True):
            of_channel = owners.reshape(-1, stage.channels)
            shared = len(stage.sums) > 1 and (of_channel != of_channel[0]).any()
            names = np.unique(owners).tolist() if shared else ()
            made.append({owner: (owners == owner).reshape(stage.sums) for owner in names})
        return tuple(made)

    def gradients(self, parameters: Tree, batch: Batch, first_cut: FirstCut | None = None) -> Pass:
        """Run one batch forward and backward through all pieces."""
        return self.joined(parameters, [self.run(parameters, batch, first_cut)], [1.0])

    def run(self, parameters: Tree, batch: Batch, first_cut: FirstCut | None = None) -> Found:
        """Run some rows forward and backward; owners do not tell each other what they found of shared filters."""
        memories: dict[int, Tree] = {}
        told: list[list[Tree]] = []
        x = before_first_sum(self.model, self.graph, parameters, batch, memories)
        for number, stage in enumerate(self.graph.stages):
            x, seen = self._forward(number, parameters[stage.linear], x, len(batch.mask))
            told.append(seen)
            if first_cut and not number:
                x = self._pass_on(number, self.parts[0][0].owner, first_cut(x), np.zeros_like(x))
            x = _local(self.model, stage.local, parameters, x, batch.mask, memories)
        weights = batch.mask / max(float(batch.mask.sum()), 1.0)
        found = Found(own=tuple({} for _ in parameters), tied={}, outputs=x)
        slope = self.model.loss.slope(x, batch.targets).astype(x.dtype)
        for number, stage in reversed(list(enumerate(self.graph.stages))):
            slope = self._local_back(stage.local, parameters, memories, slope, weights, found.own)
            if "b" in parameters[stage.linear]:
                self._biases_back(number, slope, weights, found)
            further = bool(number) or any(self.model.layers[at].factors for at in self.graph.before)
            slope = self._sums_back(number, parameters[stage.linear], told[number], slope, weights, found, further)
        if slope is not None:
            self._local_back(self.graph.before, parameters, memories, slope, weights, found.own)
        return found

    def joined(self, parameters: Tree, some: Sequence[Found], shares: Sequence[float]) -> Pass:
        """Add micro-batches up, each times its share, then what owners of shared filters have found."""
        gradient = trees.map(lambda *leaves: weighted_mean(leaves, shares), *(found.own for found in some))
        for number, name in some[0].tied:
            into = np.zeros_like(parameters[number][name])
            stage = next(at for at, stage in enumerate(self.graph.stages) if stage.linear == number)
            for at, positions in enumerate(self.tied_positions(stage, name)):
                into.reshape(-1)[positions] += weighted_mean([found.tied[number, name][at] for found in some], shares)
            gradient[number][name] = into
        return Pass(gradient=gradient, outputs=np.concatenate([found.outputs for found in some], axis=-1))

    def tied_positions(self, number: int, name: str) -> list[Indices]:
        """Where the numbers of each owner of a convolution's weights, or of a split stage's biases, stand."""
        if name == "w":
            return [part.positions for part in self.parts[number]]
        return [np.nonzero(mask.any(axis=(0, 1)))[0] for mask in self.split[number].values()]

    def _forward(self, number: int, parameters: Tree, x: Array, rows: int) -> tuple[Array, list[Tree]]:
        """Let every owner send its partial sums; the sums' owners add them up and add the bias."""
        stage, sums, told = self.graph.stages[number], None, []
        for part in self.parts[number]:
            partial, memory = part.layer.forward(part.take(parameters, rows), part.see(x))
            told.append(memory)
            if sums is None and partial.shape == _shape(stage, rows) and self._exact:
                sums = partial
                continue
            if sums is None:
                sums = np.zeros(_shape(stage, rows), partial.dtype)
            if self._exact:
                part.add_sums(sums, partial)
            else:
                whole = np.zeros_like(sums)
                part.add_sums(whole, partial)
                sums = self._pass_on(number, part.owner, whole, sums)
        if "b" in parameters:
            sums += parameters["b"] if len(stage.sums) > 1 else parameters["b"][:, None]
        return sums, told

    @functools.cached_property
    def _exact(self) -> bool:
        return NUMBERS[self.numbers].exact

    def _pass_on(self, number: int, sender: int, partial: Array, sums: Array) -> Array:
        """Add the sums that one owner sends, as they arrive."""
        if self._exact:
            return sums + partial
        columns, into = as_columns(partial), as_columns(sums)
        for (source, receiver), lines in self.crossing[number].items():
            if source == sender:
                sent = columns[lines]
                into[lines] += sent if receiver == sender else NUMBERS[self.numbers].passed(sent)
        return from_columns(into, self.graph.stages[number])

    def _hear(self, number: int, owner: int, slope: Array) -> Array:
        """Return the slopes of a stage's sums as they arrive at one who sent a part."""
        if self._exact:
            return slope
        columns = np.array(as_columns(slope))
        for (source, receiver), lines in self.crossing[number].items():
            if source == owner != receiver:
                columns[lines] = NUMBERS[self.numbers].passed(columns[lines])
        return from_columns(columns, self.graph.stages[number])

    def _biases_back(self, number: int, slope: Array, weights: Array, found: Found) -> None:
        stage = self.graph.stages[number]
        if len(stage.sums) == 1:
            found.own[stage.linear]["b"] = self.model.ops.sum_each(slope * weights, (1,))
            return
        weighted = slope * weights.reshape(-1, 1, 1, 1)
        if not self.split[number]:
            found.own[stage.linear]["b"] = self.model.ops.sum_each(weighted, (0, 1, 2))
            return
        found.tied[stage.linear, "b"] = [
            self.model.ops.sum_each((weighted * mask)[..., mask.any(axis=(0, 1))], (0, 1, 2))
            for mask in self.split[number].values()
        ]

    def _sums_back(
        self,
        number: int,
        parameters: Tree,
        told: list[Tree],
        slope: Array,
        weights: Array,
        found: Found,
        further: bool,
    ) -> Array:
        """Let every owner turn the slopes it receives into its gradient, and into slopes of its own neurons."""
        stage, rows = self.graph.stages[number], len(weights)
        back = np.zeros((rows, *stage.inputs) if len(stage.inputs) > 1 else (stage.inputs[0], rows), slope.dtype)
        dense = isinstance(self.parts[number][0], DensePart)
        total = np.empty_like(parameters["w"]) if dense else None
        weighted = slope * weights if dense and self._exact else None
        for part, memory in zip(self.parts[number], told, strict=True):
            kept, heard = part.take(parameters, rows), part.hear(self._hear(number, part.owner, slope))
            if isinstance(part, DensePart):
                part.product(heard * weights if weighted is None else weighted, memory, total)
            else:
                assert part.layer.factors is not None  # noqa: S101  it has weights
                made = part.pack(part.layer.factors(kept, memory, heard).total(weights))
                found.tied.setdefault((stage.linear, "w"), []).append(made)
            if further:
                part.put_back(part.layer.pull_back(kept, memory, heard), back)
        if dense:
            found.own[stage.linear]["w"] = total
        return back if further else None

    def _local_back(
        self,
        numbers: tuple[int, ...],
        parameters: Tree,
        memories: dict[int, Tree],
        slope: Array,
        weights: Array,
        gradient: Tree,
    ) -> Array:
        for number in reversed(numbers):
            layer, memory = self.model.layers[number], memories[number]
            if layer.factors:
                gradient[number].update(layer.factors(parameters[number], memory, slope).total(weights))
            if number:
                slope = layer.pull_back(parameters[number], memory, slope)
        return slope


def weighted_mean(leaves: Sequence[Array], shares: Sequence[float]) -> Array:
    """Add up what micro-batches gave, each times its share of the rows."""
    if len(leaves) == 1:
        return leaves[0]
    summed = sum(leaf * np.float64(share) for leaf, share in zip(leaves, shares, strict=True))
    return np.asarray(summed, leaves[0].dtype)


def before_first_sum(
    model: Model, graph: CostGraph, parameters: Tree, batch: Batch, memories: dict[int, Tree]
) -> Array:
    """Return what the first layer that forms sums sees of a batch."""
    x = batch.rows.T if len(model.shape) == 1 else batch.rows.reshape(-1, *model.shape)
    return _local(model, graph.before, parameters, x, batch.mask, memories)


def _local(
    model: Model, numbers: tuple[int, ...], parameters: Tree, x: Array, mask: Array, memories: dict[int, Tree]
) -> Array:
    """Run layers that work on each cell by itself: whoever owns it finds the same numbers."""
    for number in numbers:
        layer = model.layers[number]
        learn = layer.learn
        x, memories[number] = learn(parameters[number], x, mask) if learn else layer.forward(parameters[number], x)
    return x


def as_columns(sums: Array) -> Array:
    """Write sums as one column per example, whatever the shape of a stage."""
    return sums if sums.ndim == 2 else sums.reshape(len(sums), -1).T


def from_columns(columns: Array, stage: Stage) -> Array:
    """Write columns in the shape of a stage's sums again."""
    return columns if len(stage.sums) == 1 else np.ascontiguousarray(columns.T).reshape(-1, *stage.sums)


def _shape(stage: Stage, rows: int) -> tuple[int, ...]:
    return (rows, *stage.sums) if len(stage.sums) > 1 else (stage.sums[0], rows)


def sliced_net(
    model: Model, pieces: Indices, graph: CostGraph | None = None, numbers: Numbers = "float32"
) -> SlicedNet:
    """Cut a model. `pieces` names the piece of every cell of its cost graph, as a slicer returns it."""
    costs = cost_graph(model) if graph is None else graph
    return SlicedNet(model=model, graph=costs, pieces=pieces, parts=parts(model, costs, pieces), numbers=numbers)


def micro_batch_sizes(model: Model, rows: int, micro_batches: int, normalisation: Normalisation) -> list[int]:
    """Return how many rows of a batch each micro-batch has: as equal as can be, larger ones first."""
    if normalisation == "exact" and model.mixes:
        return [rows]
    least, more = divmod(rows, micro_batches)
    return [least + (at < more) for at in range(min(rows, micro_batches))]


def batch_gradients(
    net: SlicedNet,
    parameters: Tree,
    batch: Batch,
    *,
    micro_batches: int = 1,
    normalisation: Normalisation = "exact",
) -> Pass:
    """Run a batch through the pieces, whole or as a pipeline of micro-batches.

    In a pipeline the pieces work on several micro-batches at the same time. Without batch normalisation that changes
    nothing. With it, `exact` waits for the whole batch before anything is normalised, so nothing overlaps; `pipelined`
    normalises every micro-batch by itself, which is another model than the unsliced one.
    """
    sizes = micro_batch_sizes(net.model, len(batch.targets), micro_batches, normalisation)
    if len(sizes) == 1:
        return net.gradients(parameters, batch)
    ends = np.cumsum(sizes)
    some = [
        Batch(rows=batch.rows[begin:end], targets=batch.targets[begin:end], mask=batch.mask[begin:end])
        for begin, end in zip(ends - sizes, ends, strict=True)
    ]
    counts = np.array([float(micro_batch.mask.sum()) for micro_batch in some])
    shares = [count / max(float(counts.sum()), 1.0) for count in counts.tolist()]
    return net.joined(parameters, [net.run(parameters, micro_batch) for micro_batch in some], shares)
