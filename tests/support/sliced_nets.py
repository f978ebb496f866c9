"""Small nets in pieces, for tests of live slices."""

from __future__ import annotations

import numpy as np

from crowdml.core import NUMPY, trees
from crowdml.core.ops import Tree
from crowdml.models import Model
from crowdml.slicing import cost_graph, cut, sliced_net
from crowdml.slicing.live.slice_plan import SlicePlan, slice_plan
from crowdml.slicing.number_formats import Numbers
from crowdml.slicing.piece_messages import Plan
from crowdml.slicing.piece_state import Leaf, PieceState
from crowdml.task import parse

MLP = 'kind = "mlp"\nlayers = [8, 6]'
NORMALISED = (
    'kind = "layers"\nlayers = [{ kind = "batch-norm" }, { kind = "dense", size = 8 }, { kind = "batch-norm" }, '
    '{ kind = "relu" }, { kind = "dense", size = 6 }, { kind = "tanh" }, { kind = "dense", size = 3 }]'
)


def model_of(net: str = MLP, features: int = 5, labels: int = 3) -> Model:
    """Build a model from the `[model]` section of a task."""
    names = ", ".join(f'"{number}"' for number in range(labels))
    return parse(
        f'crowdml = 1\nname = "net"\nobjective = "Tests"\n[data]\nfeatures = {features}\nlabels = [{names}]\n'
        f'[model]\n{net}\n[algorithm]\nkind = "slicenet"\npieces = 3\n[privacy]\nmode = "none"\n'
    ).model_for(NUMPY)


def plan_of(
    model: Model,
    pieces: int = 3,
    *,
    balance: float = 2.0,
    micro_batches: int = 1,
    numbers: Numbers = "float32",
    released: bool = False,
) -> SlicePlan:
    """Cut a model."""
    graph = cost_graph(model)
    net = sliced_net(model, cut(graph, pieces, "in-order", balance), graph, numbers)
    return slice_plan(Plan(net=net, like=model.zeros(), micro_batches=micro_batches, released=released))


def first_parameters(model: Model, seed: int = 0) -> Tree:
    """Draw first parameters."""
    generator = np.random.default_rng(seed)
    return tuple(
        {
            name: (generator.uniform(-0.5, 0.5, np.shape(leaf)) + (name == "variance")).astype(np.float32)
            for name, leaf in layer.items()
        }
        for layer in model.zeros()
    )


def take_piece(parameters: Tree, importance: Tree, layout: tuple[Leaf, ...], batches: int = 0) -> PieceState:
    """Take an owner's numbers out of a net's parameters, and of Σ|gradient| in the same shape."""
    none = np.zeros(0, trees.leaves(parameters)[0].dtype)
    numbers = [parameters[leaf.layer][leaf.name].reshape(-1)[leaf.positions] for leaf in layout]
    matters = [importance[leaf.layer]["w"].reshape(-1)[leaf.positions] for leaf in layout if leaf.name == "w"]
    return PieceState(
        numbers=np.concatenate([none, *numbers]), importance=np.concatenate([none, *matters]), batches=batches
    )


def put_piece(piece: PieceState, layout: tuple[Leaf, ...], parameters: Tree, importance: Tree) -> None:
    """Put an owner's numbers where they belong among those of the whole net."""
    at, seen = 0, 0
    for leaf in layout:
        count = len(leaf.positions)
        parameters[leaf.layer][leaf.name].reshape(-1)[leaf.positions] = piece.numbers[at : at + count]
        at += count
        if leaf.name == "w":
            importance[leaf.layer]["w"].reshape(-1)[leaf.positions] = piece.importance[seen : seen + count]
            seen += count
