"""A sliced net: forward and backward over pieces, with partial sums and slopes as the only messages.

Every owner works on its own weights. For each sum of the next stage it sends the part that it knows; the sum's owner
adds the parts up, adds the bias, and goes on. Backward the slopes of the sums come to all who sent a part. What lies
between two stages (normalisation, activation, pooling) never reaches across owners, because cells are owned as a whole.
So gradients are those of the whole net, up to the order of additions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from crowdml.core import Array, Batch, record, trees
from crowdml.core.ops import Tree
from crowdml.models import Model
from crowdml.models.layers.dense import Dense
from crowdml.slicing.cost_graph import CostGraph, cost_graph
from crowdml.slicing.parts import Part, parts
from crowdml.slicing.stages import Indices, Stage

Normalisation = Literal["exact", "pipelined"]
FirstCut = Callable[[Array], Array]
"""What happens to the dominator's sums on their way to the first followers, such as noise."""


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
class SlicedNet:
    """A model and the pieces it was cut into.

    Attributes:
        model: The whole model.
        graph: Its cost graph.
        pieces: The piece of every cell.
        parts: Of every stage, what its owners keep.
        apart: Whether every owner of a dense layer goes backward by itself, as devices do. Each finds the columns of
            one matrix product that belong to its neurons, so a simulation finds all of them at once in less time.
    """

    model: Model
    graph: CostGraph
    pieces: Indices
    parts: tuple[tuple[Part, ...], ...]
    apart: bool = False

    def gradients(self, parameters: Tree, batch: Batch, first_cut: FirstCut | None = None) -> Pass:
        """Run one batch forward and backward through all pieces."""
        memories: dict[int, Tree] = {}
        heard: list[tuple[Array, list[Tree]]] = []
        x = before_first_sum(self.model, self.graph, parameters, batch, memories)
        for number, (stage, of_stage) in enumerate(zip(self.graph.stages, self.parts, strict=True)):
            seen = x
            x, told = _forward(of_stage, stage, parameters[stage.linear], seen)
            heard.append((seen, told))
            if first_cut and not number:
                x = first_cut(x)
            x = _local(self.model, stage.local, parameters, x, batch.mask, memories)
        weights = batch.mask / max(float(batch.mask.sum()), 1.0)
        gradient: Tree = tuple(
            {name: np.zeros_like(leaf) for name, leaf in of_layer.items()} for of_layer in parameters
        )
        slope = self.model.loss.slope(x, batch.targets).astype(x.dtype)
        for number in reversed(range(len(heard))):
            stage = self.graph.stages[number]
            slope = self._local_back(stage.local, parameters, memories, slope, weights, gradient)
            further = bool(number) or any(self.model.layers[at].factors for at in self.graph.before)
            slope = self._sums_back(number, parameters, heard[number], slope, weights, gradient, further)
        if slope is not None:
            self._local_back(self.graph.before, parameters, memories, slope, weights, gradient)
        return Pass(gradient=gradient, outputs=x)

    def _sums_back(
        self,
        number: int,
        parameters: Tree,
        heard: tuple[Array, list[Tree]],
        slope: Array,
        weights: Array,
        gradient: Tree,
        further: bool,
    ) -> Array:
        """Go back through a stage's sums: what owners of a dense layer find are columns of one product."""
        stage, (seen, told) = self.graph.stages[number], heard
        weights_of_layer = parameters[stage.linear]
        if self.apart or not isinstance(self.model.declared[stage.linear], Dense):
            return _backward(self.parts[number], stage, weights_of_layer, told, slope, weights, gradient, further)
        layer = self.model.layers[stage.linear]
        assert layer.factors is not None  # noqa: S101  it has weights
        gradient[stage.linear].update(layer.factors(weights_of_layer, seen, slope).total(weights))
        return layer.pull_back(weights_of_layer, seen, slope) if further else None

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


def _forward(parts_of_stage: tuple[Part, ...], stage: Stage, parameters: Tree, x: Array) -> tuple[Array, list[Tree]]:
    """Let every owner send its partial sums; the sums' owners add them up and add the bias."""
    sums, told = None, []
    for part in parts_of_stage:
        partial, memory = part.layer.forward(part.take(parameters), part.see(x))
        told.append(memory)
        if sums is None and partial.shape == _shape(stage, x):
            sums = partial
            continue
        if sums is None:
            sums = np.zeros(_shape(stage, x), partial.dtype)
        part.add_sums(sums, partial)
    if "b" in parameters:
        sums += parameters["b"] if len(stage.sums) > 1 else parameters["b"][:, None]
    return sums, told


def _shape(stage: Stage, x: Array) -> tuple[int, ...]:
    if len(stage.sums) > 1:
        return (len(x), *stage.sums)
    return (stage.sums[0], x.shape[-1])


def _backward(
    parts_of_stage: tuple[Part, ...],
    stage: Stage,
    parameters: Tree,
    told: list[Tree],
    slope: Array,
    weights: Array,
    gradient: Tree,
    further: bool,
) -> Array:
    """Let every owner turn the slopes it receives into its gradient, and into slopes of its own neurons."""
    pictures = len(stage.sums) > 1
    if "b" in parameters:
        axes = tuple(range(len(stage.sums)))
        gradient[stage.linear]["b"] = (
            np.sum(slope * weights.reshape(-1, 1, 1, 1), axis=axes) if pictures else slope @ weights
        )
    size = len(weights)
    before = np.zeros((size, *stage.inputs) if len(stage.inputs) > 1 else (stage.inputs[0], size), slope.dtype)
    for part, memory in zip(parts_of_stage, told, strict=True):
        heard = part.hear(slope)
        kept = part.take(parameters)
        assert part.layer.factors is not None  # noqa: S101  it has weights
        total = part.layer.factors(kept, memory, heard).total(weights)
        part.give(total, gradient[stage.linear])
        if further:
            part.put_back(part.layer.pull_back(kept, memory, heard), before)
    return before if further else None


def sliced_net(model: Model, pieces: Indices, graph: CostGraph | None = None, *, apart: bool = False) -> SlicedNet:
    """Cut a model. `pieces` names the piece of every cell of its cost graph, as a slicer returns it."""
    costs = cost_graph(model) if graph is None else graph
    return SlicedNet(model=model, graph=costs, pieces=pieces, parts=parts(model, costs, pieces), apart=apart)


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
    if micro_batches == 1 or (normalisation == "exact" and net.model.mixes):
        return net.gradients(parameters, batch)
    some = [
        Batch(rows=batch.rows[numbers], targets=batch.targets[numbers], mask=batch.mask[numbers])
        for numbers in np.array_split(np.arange(len(batch.targets)), micro_batches)
        if len(numbers)
    ]
    passes = [net.gradients(parameters, micro_batch) for micro_batch in some]
    shares = np.array([float(micro_batch.mask.sum()) for micro_batch in some])
    shares /= max(shares.sum(), 1.0)
    gradient = trees.map(
        lambda *leaves: sum(leaf * share for leaf, share in zip(leaves, shares, strict=True)),
        *(each.gradient for each in passes),
    )
    return Pass(gradient=gradient, outputs=np.concatenate([each.outputs for each in passes], axis=-1))
