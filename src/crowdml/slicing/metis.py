"""The paper's slicer: METIS cuts the cost graph into pieces of equal cost with as few cut edges as it can."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from crowdml.slicing.cost_graph import CostGraph
from crowdml.slicing.stages import Indices


def adjacency(graph: CostGraph) -> sparse.csr_array:
    """Return how many edges join two cells; symmetric, nothing on the diagonal."""
    starts, blocks = graph.starts, []
    for at, stage in enumerate(graph.hidden[1:], start=1):
        reach = stage.reach.tocoo()
        before = graph.hidden[at - 1]
        source = starts[at - 1] + before.cell_of_output[reach.row]
        blocks.append((source, starts[at] + stage.cell_of_sum[reach.col]))
    source, target = (np.concatenate(part) for part in zip(*blocks, strict=True))
    cells = len(graph.costs)
    made = sparse.coo_array((np.ones(len(source), np.int64), (source, target)), shape=(cells, cells)).tocsr()
    return sparse.csr_array(made + made.T)


def metis(graph: CostGraph, pieces: int, *, balance: float = 1.03, seed: int = 0) -> Indices:
    """Cut by METIS's k-way method (Karypis and Kumar 1998), whose own default balance is 1.03."""
    return k_way(graph.costs, adjacency(graph), pieces, balance=balance, seed=seed)


def k_way(costs: Indices, edges: sparse.csr_array, pieces: int, *, balance: float = 1.03, seed: int = 0) -> Indices:
    """Cut any graph into pieces of equal cost."""
    import pymetis

    if pieces == 1:
        return np.zeros(len(costs), np.int64)
    options = pymetis.Options(ufactor=max(1, round((balance - 1) * 1000)), seed=seed)
    _, found = pymetis.part_graph(
        pieces,
        pymetis.CSRAdjacency(edges.indptr, edges.indices),
        vweights=costs,
        eweights=edges.data,
        recursive=False,
        options=options,
    )
    return np.asarray(found, np.int64)
