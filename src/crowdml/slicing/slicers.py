"""Slicers by name. A new one is a file beside this and a line below."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crowdml.core import BadInput, Registry
from crowdml.slicing.cost_graph import CostGraph
from crowdml.slicing.in_order import in_order
from crowdml.slicing.metis import metis
from crowdml.slicing.stages import Indices

Slicer = Callable[[CostGraph, int, float], Indices]
"""`slicer(graph, pieces, balance)` returns the piece of every cell."""

SLICERS: Registry[Slicer] = Registry(
    "slicer",
    {
        "in-order": lambda graph, pieces, balance: in_order(graph, pieces, balance=balance),
        "metis": lambda graph, pieces, balance: metis(graph, pieces, balance=balance),
    },
)


def cut(graph: CostGraph, pieces: int, slicer: str = "in-order", balance: float = 1.03) -> Indices:
    """Cut a cost graph into pieces; 0 leaves everything with the dominator."""
    if pieces > len(graph.costs):
        raise BadInput(
            f"{pieces} pieces of {len(graph.costs)} parts that can be told apart", where="pieces", hint="fewer pieces"
        )
    if pieces == 0:
        return np.full(len(graph.costs), -1, np.int64)
    return SLICERS[slicer](graph, pieces, balance)
