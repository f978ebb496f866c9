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
        first_sums: What crossed the first cut: the sums of the first stage.
    """

    gradient: Tree
    outputs: Array
    first_sums: Array


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
        x = _as_examples(self.model, batch.rows)
        x = self._local(self.graph.before, parameters, x, batch.mask, memories)
        for number, (stage, own) in enumerate(zip(self.graph.stages, self.parts, strict=True)):
            seen = x
            x, told = _forward(own, stage, parameters[stage.linear], seen)
            heard.append((seen, told))
            if not number:
                x = first_cut(x) if first_cut else x
                first_sums = x
            x = self._local(stage.local, parameters, x, batch.mask, memories)
        weights = batch.mask / max(float(batch.mask.sum()), 1.0)
        gradient: Tree = tuple({name: np.zeros_like(leaf) for name, leaf in own.items()} for own in parameters)
        slope = self.model.loss.slope(x, batch.labels).astype(x.dtype)
        for number in reversed(range(len(heard))):
            stage = self.graph.stages[number]
            slope = self._local_back(stage.local, parameters, memories, slope, weights, gradient)
            further = bool(number) or any(self.model.layers[at].factors for at in self.graph.before)
            slope = self._sums_back(number, parameters, heard[number], slope, weights, gradient, further)
        if slope is not None:
            self._local_back(self.graph.before, parameters, memories, slope, weights, gradient)
        return Pass(gradient=gradient, outputs=x, first_sums=first_sums)

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
        own = parameters[stage.linear]
        if self.apart or not isinstance(self.model.declared[stage.linear], Dense):
            return _backward(self.parts[number], stage, own, told, slope, weights, gradient, further)
        layer = self.model.layers[stage.linear]
        assert layer.factors is not None  # noqa: S101  it has weights
        gradient[stage.linear].update(layer.factors(own, seen, slope).total(weights))
        return layer.pull_back(own, seen, slope) if further else None

    def _local(
        self, numbers: tuple[int, ...], parameters: Tree, x: Array, mask: Array, memories: dict[int, Tree]
    ) -> Array:
        """Run layers that work on each cell by itself: whoever owns it finds the same numbers."""
        for number in numbers:
            layer = self.model.layers[number]
            learn = layer.learn
            x, memories[number] = learn(parameters[number], x, mask) if learn else layer.forward(parameters[number], x)
        return x

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


def _as_examples(model: Model, rows: Array) -> Array:
    return rows.T if len(model.shape) == 1 else rows.reshape(-1, *model.shape)


def _forward(own: tuple[Part, ...], stage: Stage, parameters: Tree, x: Array) -> tuple[Array, list[Tree]]:
    """Let every owner send its partial sums; the sums' owners add them up and add the bias."""
    sums, told = None, []
    for part in own:
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
    own: tuple[Part, ...],
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
    for part, memory in zip(own, told, strict=True):
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
    own = cost_graph(model) if graph is None else graph
    return SlicedNet(model=model, graph=own, pieces=pieces, parts=parts(model, own, pieces), apart=apart)


def batch_gradients(
    net: SlicedNet,
    parameters: Tree,
    batch: Batch,
    *,
    micro_batches: int = 1,
    normalisation: Normalisation = "exact",
    first_cut: FirstCut | None = None,
) -> Pass:
    """Run a batch through the pieces, whole or as a pipeline of micro-batches.

    In a pipeline the pieces work on several micro-batches at the same time. Without batch normalisation that changes
    nothing. With it, `exact` waits for the whole batch before anything is normalised, so nothing overlaps; `pipelined`
    normalises every micro-batch by itself, which is another model than the unsliced one.
    """
    if micro_batches == 1 or (normalisation == "exact" and net.model.mixes):
        return net.gradients(parameters, batch, first_cut)
    some = [
        Batch(rows=batch.rows[own], labels=batch.labels[own], mask=batch.mask[own])
        for own in np.array_split(np.arange(len(batch.labels)), micro_batches)
        if len(own)
    ]
    passes = [net.gradients(parameters, own, first_cut) for own in some]
    shares = np.array([float(own.mask.sum()) for own in some])
    shares /= max(shares.sum(), 1.0)
    gradient = trees.map(
        lambda *leaves: sum(leaf * share for leaf, share in zip(leaves, shares, strict=True)),
        *(own.gradient for own in passes),
    )
    return Pass(
        gradient=gradient,
        outputs=np.concatenate([own.outputs for own in passes], axis=-1),
        first_sums=np.concatenate([own.first_sums for own in passes], axis=0 if passes[0].first_sums.ndim > 2 else -1),
    )
