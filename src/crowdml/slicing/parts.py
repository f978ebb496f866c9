"""Parts of a layer that forms sums: what each owner of its inputs keeps of it, and how it works on that alone.

An owner has the weights that leave its neurons and nothing else. Its part is the same kind of layer, over its own
inputs: forward it gives partial sums, backward it takes the slopes of the sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from crowdml.core import Array, Ops, record
from crowdml.core.ops import Tree
from crowdml.models import Model
from crowdml.models.layers import Layer
from crowdml.models.layers.convolution import Convolution
from crowdml.models.layers.dense import Dense
from crowdml.slicing.cost_graph import CostGraph
from crowdml.slicing.stages import Indices, Stage


@record
class Part:
    """One owner's part of a layer.

    Attributes:
        owner: Number of the piece.
        layer: The layer over the owner's inputs, without bias.
        take: `take(parameters)`: what the owner keeps of the layer's parameters.
        give: `give(total, into)`: puts the owner's gradient where it belongs among those of all.
        see: `see(x)`: the owner's inputs.
        add_sums: `add_sums(sums, partial)`: what receivers do with its partial sums.
        hear: `hear(slope)`: the slopes it receives.
        put_back: `put_back(slope, into)`: puts slopes of its inputs among those of all.
    """

    owner: int
    layer: Layer
    take: Callable[[Tree], Tree]
    give: Callable[[Tree, Tree], None]
    see: Callable[[Array], Array]
    add_sums: Callable[[Array, Array], None]
    hear: Callable[[Array], Array]
    put_back: Callable[[Array, Array], None]


def parts(model: Model, graph: CostGraph, pieces: Indices) -> tuple[tuple[Part, ...], ...]:
    """Cut every layer that forms sums. The first is the dominator's as a whole."""
    made = []
    for stage, owners in zip(graph.stages, graph.owners_of_inputs(pieces), strict=True):
        of = _dense_part if isinstance(model.declared[stage.linear], Dense) else _convolution_part
        made.append(
            tuple(
                of(model, stage, int(owner), np.nonzero(owners == owner)[0], model.ops) for owner in np.unique(owners)
            )
        )
    return tuple(made)


def _run(numbers: Indices) -> Any:
    """Return numbers that follow each other as a slice: it needs no copy."""
    if len(numbers) and numbers[-1] - numbers[0] + 1 == len(numbers):
        return slice(int(numbers[0]), int(numbers[-1]) + 1)
    return numbers


def _dense_part(model: Model, stage: Stage, owner: int, inputs: Indices, ops: Ops) -> Part:
    place = _run(inputs)

    def give(total: Tree, into: Tree) -> None:
        into["w"][:, place] = total["w"]

    def add_sums(sums: Array, partial: Array) -> None:
        sums += partial

    def put_back(slope: Array, into: Array) -> None:
        into[place] = slope

    return Part(
        owner=owner,
        layer=Dense(size=stage.sums[0], bias=False).build((len(inputs),), ops),
        take=lambda parameters: {"w": parameters["w"][:, place]},
        give=give,
        see=lambda x: x[place],
        add_sums=add_sums,
        hear=lambda slope: slope,
        put_back=put_back,
    )


def _convolution_part(model: Model, stage: Stage, owner: int, inputs: Indices, ops: Ops) -> Part:
    """Take the channels that the owner has a place of, and the filters that see one of them.

    A channel that is split between rows has its filters with each of its owners; places of others count as zero, and
    the gradients of the owners add up.
    """
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
    joined = seen.sum(axis=0)
    mine = np.zeros(math.prod(stage.inputs), bool)
    mine[inputs] = True
    mine = mine.reshape(stage.inputs)[:, :, channels]
    partly = not mine.all()

    def take(parameters: Tree) -> Tree:
        return {"w": np.einsum("klsf,scf->klcf", parameters["w"][..., filters], seen)}

    def give(total: Tree, into: Tree) -> None:
        into["w"][..., filters] += np.einsum("klcf,scf->klsf", total["w"] * joined, seen)

    def see(x: Array) -> Array:
        return x[..., channels] * mine if partly else x[..., channels]

    def add_sums(sums: Array, partial: Array) -> None:
        sums[..., filters] += partial

    def put_back(slope: Array, into: Array) -> None:
        into[..., channels] += slope * mine if partly else slope

    return Part(
        owner=owner,
        layer=Convolution(
            size=len(filters), kernel=whole.kernel, stride=whole.stride, padding=whole.padding, bias=False
        ).build((*stage.inputs[:2], len(channels)), ops),
        take=take,
        give=give,
        see=see,
        add_sums=add_sums,
        hear=lambda slope: slope[..., filters],
        put_back=put_back,
    )
