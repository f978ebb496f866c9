"""Slicers: the paper's maxima by METIS, less communication than published by ours, and sums counted right."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.models import Model
from crowdml.slicing import SLICERS, CostGraph, cost_graph, costs, cut
from crowdml.slicing.costs import crossings
from crowdml.slicing.published import PUBLISHED

PIECES = (5, 10, 15, 20)
OURS = {5: 10.2, 10: 17.2, 15: 24.2, 20: 31.3}
"""KiB per example that contiguous pieces of the MLP must not exceed."""


@pytest.mark.parametrize("pieces", PIECES)
def test_metis_finds_the_papers_maxima(mlp: Model, pieces: int) -> None:
    graph = cost_graph(mlp)
    found = costs(graph, cut(graph, pieces, "metis"))
    assert abs(found.largest - PUBLISHED["mlp"][pieces].largest) <= 5
    assert found.kib <= PUBLISHED["mlp"][pieces].kib


@pytest.mark.parametrize("pieces", PIECES)
def test_contiguous_pieces_of_the_mlp_are_balanced_and_send_less(mlp: Model, pieces: int) -> None:
    graph = cost_graph(mlp)
    found = costs(graph, cut(graph, pieces))
    assert found.balance <= 1.03 and found.kib <= OURS[pieces]


@pytest.mark.parametrize("pieces", PIECES)
def test_contiguous_pieces_of_the_cnn_are_balanced_and_send_no_more_than_published(cnn: Model, pieces: int) -> None:
    graph = cost_graph(cnn)
    found = costs(graph, cut(graph, pieces, balance=1.05))
    assert found.balance <= 1.05 and found.kib <= PUBLISHED["cnn"][pieces].kib


def counted(graph: CostGraph, pieces: np.ndarray) -> int:
    """Partial sums across cuts, by the definition: pairs of an owner and somebody else's sum that it reaches."""
    pairs = set()
    for number, (stage, source, target) in enumerate(
        zip(graph.stages, graph.owners_of_inputs(pieces), graph.owners_of_sums(pieces), strict=True)
    ):
        reach = stage.reach.tocoo()
        for begin, end in zip(reach.row.tolist(), reach.col.tolist(), strict=True):
            if source[begin] != target[end]:
                pairs.add((number, int(source[begin]), end))
    return len(pairs)


@pytest.mark.parametrize("slicer", list(SLICERS))
def test_sums_across_cuts_are_counted_by_the_definition(small: Model, slicer: str) -> None:
    graph = cost_graph(small)
    pieces = cut(graph, 3, slicer, 2.0)
    assert crossings(graph, pieces).sum() == counted(graph, pieces)
    found = costs(graph, pieces)
    assert sum(piece.sends for piece in (*found.pieces, found.dominator)) == found.crossing
    assert sum(piece.receives for piece in (*found.pieces, found.dominator)) == found.crossing
    assert found.dominator.sends == 6 * 6 * 8


def test_borders_are_the_best_there_are(small: Model) -> None:
    """All contiguous cuts in layer order, tried one by one."""
    graph = cost_graph(small)
    count, limit = len(graph.costs), 1.6 * graph.costs.sum() / 3
    best = np.inf
    for ends in itertools.combinations(range(1, count), 2):
        pieces = np.searchsorted(ends, np.arange(count), side="right")
        if np.bincount(pieces, weights=graph.costs).max() <= limit:
            best = min(best, crossings(graph, pieces).sum())
    assert np.isfinite(best)
    assert crossings(graph, cut(graph, 3, balance=1.6)).sum() <= best


def test_what_cannot_be_cut_is_refused(small: Model) -> None:
    graph = cost_graph(small)
    with pytest.raises(BadInput, match="contiguous"):
        cut(graph, 20, balance=1.01)
    with pytest.raises(BadInput, match="pieces of 26"):
        cut(graph, 27)


def test_no_pieces_leave_all_to_the_dominator(small: Model) -> None:
    graph = cost_graph(small)
    assert set(cut(graph, 0).tolist()) == {-1}
