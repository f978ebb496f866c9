"""The cost graph counts what SliceNet counts, and cells hold together what is not a sum."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.core import NUMPY, BadInput
from crowdml.models import Model
from crowdml.slicing import cost_graph
from crowdml.slicing.cost_graph import neuron_graph
from crowdml.slicing.published import EDGES, FIRST_EDGES, NODES, PUBLISHED, recognise
from crowdml.task import parse


def test_the_mlp_has_the_nodes_edges_and_costs_of_the_paper(mlp: Model) -> None:
    graph = cost_graph(mlp)
    assert (graph.all_nodes, graph.all_edges, graph.first_edges) == (NODES["mlp"], EDGES["mlp"], FIRST_EDGES)
    assert len(graph.costs) == 700 and graph.costs.sum() == 101_700
    for pieces, paper in PUBLISHED["mlp"].items():
        assert graph.costs.sum() / pieces == paper.ideal
    assert sorted(set(graph.costs.tolist())) == [11, 101, 201]


def test_the_cnn_has_the_nodes_and_edges_of_the_paper(cnn: Model) -> None:
    graph = cost_graph(cnn)
    assert (graph.all_nodes, graph.first_edges) == (NODES["cnn"], FIRST_EDGES)
    assert graph.all_edges - graph.last.reach.nnz == EDGES["cnn"]


def test_nets_are_recognised(mlp: Model, cnn: Model, small: Model) -> None:
    assert [recognise(cost_graph(model)) for model in (mlp, cnn, small)] == ["mlp", "cnn", None]


def test_a_window_of_a_pooling_layer_is_one_cell(cnn: Model) -> None:
    first, second = cost_graph(cnn).hidden[:2]
    assert first.cells == 14 * 14 * 16 and set(first.nodes.tolist()) == {5}
    assert second.cells == 5 * 5 * 128 and set(second.nodes.tolist()) == {6}
    assert len(np.unique(first.cell_of_output)) == first.cells


def test_neurons_taken_apart_cost_what_their_cells_cost(cnn: Model, small: Model) -> None:
    for model in (cnn, small):
        graph = cost_graph(model)
        neurons = neuron_graph(graph)
        assert len(neurons.costs) == graph.nodes.sum() == neurons.starts[-1]
        assert neurons.costs.sum() == graph.costs.sum()
        # An edge costs its source 1, but those into the outputs join nobody that is shared out.
        assert neurons.edges.sum() == 2 * (graph.edges.sum() - graph.last.reach.nnz)


def test_what_is_normalised_together_is_one_cell(small: Model) -> None:
    graph = cost_graph(small)
    # Channels by batch normalisation; pairs of channels by group normalisation; neurons; triples of neurons.
    assert [stage.cells for stage in graph.hidden] == [8, 3, 12, 3]


def test_reach_of_a_convolution_follows_its_table(small: Model) -> None:
    reach = cost_graph(small).hidden[0].reach.toarray().reshape(6, 6, 3, 6, 6, 8)
    assert reach[2, 2, :, 2, 2, 0].tolist() == [1, 1, 0] and reach[2, 2, :, 2, 2, 2].tolist() == [1, 0, 1]
    assert reach[0, 0, 0, :, :, 0].sum() == 4 and reach[2, 2, 0, :, :, 0].sum() == 9


def test_a_model_without_hidden_layers_is_refused() -> None:
    model = parse(
        'crowdml = 1\nname = "flat"\n[data]\nfeatures = 4\nlabels = ["a", "b"]\n[model]\nkind = "softmax"\n'
        '[algorithm]\nkind = "crowd-sgd"\n[privacy]\nmode = "none"\n'
    ).model_for(NUMPY)
    with pytest.raises(BadInput, match="no hidden layer"):
        cost_graph(model)
