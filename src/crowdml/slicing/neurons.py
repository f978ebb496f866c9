"""The cost graph neuron by neuron, as SliceNet's authors gave it to METIS.

Cells keep together what sliced training cannot cut, such as the window of a pooling layer. The paper's tables count
slicings that may cut anywhere: here every hidden neuron stands for itself.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from crowdml.core import record
from crowdml.slicing.cost_graph import CostGraph
from crowdml.slicing.stages import Indices


@record
class NeuronGraph:
    """All hidden neurons, first stage first, and within a stage in the order of its layers.

    Attributes:
        costs: 1 for a neuron, and 1 for every edge that leaves it.
        edges: Which neurons an edge joins; symmetric.
        starts: Number of the first neuron of each stage, and behind the last one.
    """

    costs: Indices
    edges: sparse.csr_array
    starts: tuple[int, ...]


def neuron_graph(graph: CostGraph) -> NeuronGraph:
    """Take the cells of a cost graph apart."""
    starts = [0, *np.cumsum([int(stage.nodes.sum()) for stage in graph.hidden]).tolist()]
    sources, targets = [], []
    for at, (stage, later) in enumerate(zip(graph.hidden, graph.stages[1:], strict=True)):
        reach = later.reach.tocoo()
        sources += [starts[at] + stage.inside[0], starts[at] + stage.neuron_of_output[reach.row]]
        # Outputs are the dominator's: their edges cost, but are not part of the graph. They are numbered behind it.
        targets += [starts[at] + stage.inside[1], starts[at + 1] + reach.col]
    source, target, count = np.concatenate(sources), np.concatenate(targets), starts[-1]
    costs = 1 + np.bincount(source, minlength=count)
    kept = target < count
    joined = (np.ones(int(kept.sum()), np.int64), (source[kept], target[kept]))
    made = sparse.coo_array(joined, shape=(count, count)).tocsr()
    return NeuronGraph(costs=costs, edges=sparse.csr_array(made + made.T), starts=tuple(starts))
