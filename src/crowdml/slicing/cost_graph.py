"""The cost graph of a model: what each cell costs to compute, and who must hear of whose sums.

A neuron costs 1 for itself and 1 for every edge that leaves it, because the owner of the earlier layer keeps the
weights of a cut edge. SliceNet's definition 1 says (incoming + outgoing edges) · σ_f, with σ_f the cost of the
activation; its table V comes out exactly under the cost used here, and under no whole σ_f of that definition. Only
hidden neurons are shared out: inputs and outputs stay with the dominator.

Cells keep together what sliced training cannot cut, such as the window of a pooling layer. The paper's tables count
slicings that may cut anywhere: in the neuron graph every hidden neuron stands for itself, as SliceNet's authors gave it
to METIS.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import sparse

from crowdml.core import record
from crowdml.models import Model
from crowdml.slicing.stages import Indices, Stage, stages

DOMINATOR = -1
"""Stands for the dominator where the number of a piece is expected."""


@record
class CostGraph:
    """A model as slicers see it. Cells of all hidden stages are numbered through, first stage first.

    Attributes:
        before: Numbers of the layers that see an example before the first sum; they are the dominator's.
        hidden: The stages that are shared out.
        last: The stage of the outputs, which is the dominator's.
        costs: What each cell costs to compute.
        nodes: Neurons of each cell.
        edges: Edges that each cell's owner keeps: those that leave it and those inside.
        inputs: Number of inputs.
    """

    before: tuple[int, ...]
    hidden: tuple[Stage, ...]
    last: Stage
    costs: Indices
    nodes: Indices
    edges: Indices
    inputs: int

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages, the outputs' last."""
        return (*self.hidden, self.last)

    @property
    def starts(self) -> list[int]:
        """Number of the first cell of each hidden stage, and behind the last one."""
        return [0, *np.cumsum([stage.cells for stage in self.hidden]).tolist()]

    @property
    def outputs(self) -> int:
        """How many sums the last stage has."""
        return int(np.prod(self.last.sums))

    @property
    def all_nodes(self) -> int:
        """All neurons, inputs and outputs too."""
        return self.inputs + int(self.nodes.sum()) + self.outputs

    @property
    def first_edges(self) -> int:
        """Edges that leave the inputs: the dominator's."""
        return int(self.hidden[0].reach.nnz)

    @property
    def all_edges(self) -> int:
        """Edges between neurons, those that leave the inputs too."""
        return self.first_edges + int(self.edges.sum())

    def of_stage(self, values: npt.NDArray[np.int64], number: int) -> Indices:
        """Take a hidden stage's part of an array over all cells."""
        starts = self.starts
        return values[starts[number] : starts[number + 1]]

    def owners_of_sums(self, pieces: Indices) -> list[Indices]:
        """Return the owner of every sum of every stage, for the pieces that cells belong to."""
        made = [self.of_stage(pieces, at)[stage.cell_of_sum] for at, stage in enumerate(self.hidden)]
        return [*made, np.full(self.outputs, DOMINATOR)]

    def owners_of_inputs(self, pieces: Indices) -> list[Indices]:
        """Return the owner of every input of every stage."""
        made = [self.of_stage(pieces, at)[stage.cell_of_output] for at, stage in enumerate(self.hidden)]
        return [np.full(self.inputs, DOMINATOR), *made]


def cost_graph(model: Model) -> CostGraph:
    """Build the cost graph from a model's declared layers."""
    before, (*hidden, last) = stages(model)
    edges = []
    for stage, later in zip(hidden, [*hidden[1:], last], strict=True):
        leaving = np.asarray(later.reach.sum(axis=1)).reshape(-1).astype(np.int64)
        edges.append(
            stage.edges + np.bincount(stage.cell_of_output, weights=leaving, minlength=stage.cells).astype(int)
        )
    nodes, kept = np.concatenate([stage.nodes for stage in hidden]), np.concatenate(edges)
    return CostGraph(
        before=before,
        hidden=tuple(hidden),
        last=last,
        costs=nodes + kept,
        nodes=nodes,
        edges=kept,
        inputs=int(np.prod(hidden[0].inputs)),
    )


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
