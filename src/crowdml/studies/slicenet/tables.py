"""SliceNet, tables V to VII: what the pieces of its two nets compute, store and send. Nothing is trained here."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from crowdml.algorithms import load
from crowdml.core import NUMPY
from crowdml.simulation import Result
from crowdml.slicing import CostGraph, Costs, cost_graph, costs, cut
from crowdml.slicing.published import EDGES, FIRST_EDGES, NODES, PUBLISHED
from crowdml.studies.comparisons import statement
from crowdml.studies.contract import Row, Study

TASKS = Path(__file__).parents[1] / "tasks"
BALANCE = {"mlp": 1.03, "cnn": 1.05}
"""How far pieces of ours may be from the ideal. METIS has the paper's 1.03."""


@functools.cache
def graph_of(net: str) -> CostGraph:
    """Return the cost graph of one of the paper's nets, "mlp" or "cnn"."""
    return cost_graph(load(TASKS / f"slicenet-{net}.toml").model_for(NUMPY))


@functools.cache
def counted_as_published(net: str) -> CostGraph:
    """Return the graph with the costs of table V: in the cnn, neurons of the first pooling layer count nothing.

    Its ideals, rounded down, leave room for totals from 1758910 to 1758914 only. One for each neuron and each edge that
    leaves it gives 1762048, which is 3136 more: as many as the first pooling layer has neurons.
    """
    graph = graph_of(net)
    if net == "mlp":
        return graph
    # A cell of the first stage is a window: its sums, and one neuron of the pooling layer.
    pooled = np.arange(len(graph.costs)) < graph.hidden[0].cells
    return replace(graph, costs=graph.costs - pooled)


@functools.cache
def costs_of(net: str, pieces: int, slicer: str) -> Costs:
    """Cut one of the paper's nets."""
    graph = graph_of(net)
    return costs(graph, cut(graph, pieces, slicer, BALANCE[net] if slicer == "in-order" else 1.03))


def _table5(results: Mapping[str, Result]) -> tuple[Row, ...]:
    rows = []
    for net, columns in PUBLISHED.items():
        for pieces, paper in columns.items():
            graph, ours = counted_as_published(net), costs_of(net, pieces, "in-order")
            by_metis = costs(graph, cut(graph, pieces, "metis"))
            name = f"{net}, n = {pieces}"
            rows += [
                statement(name, "ideal", paper.ideal, by_metis.ideal, int(by_metis.ideal) == paper.ideal),
                statement(
                    name, "largest, METIS", paper.largest, by_metis.largest, by_metis.largest - paper.largest <= 5
                ),
                statement(name, "largest, in order", paper.largest, ours.largest, ours.balance <= BALANCE[net]),
            ]
    return tuple(rows)


def _table6(results: Mapping[str, Result]) -> tuple[Row, ...]:
    rows = []
    for net in PUBLISHED:
        graph = graph_of(net)
        edges = graph.all_edges - (int(graph.last.reach.nnz) if net == "cnn" else 0)
        what = "edges but those into the outputs" if net == "cnn" else "edges"
        rows += [
            statement(net, "neurons", NODES[net], graph.all_nodes, graph.all_nodes == NODES[net]),
            statement(net, what, EDGES[net], edges, edges == EDGES[net]),
            statement(net, "the dominator's edges", FIRST_EDGES, graph.first_edges, graph.first_edges == FIRST_EDGES),
        ]
        for pieces in PUBLISHED[net]:
            own = costs_of(net, pieces, "in-order")
            for metric, value in (("neurons", "nodes"), ("edges", "edges")):
                most = max(getattr(piece, value) for piece in own.pieces)
                rows.append(
                    Row(
                        setting=f"{net}, n = {pieces}",
                        metric=f"most {metric} of a piece",
                        paper=None,
                        ours=most,
                        std=0.0,
                        verdict="trend",
                    )
                )
    return tuple(rows)


def _table7(results: Mapping[str, Result]) -> tuple[Row, ...]:
    rows = []
    for net, columns in PUBLISHED.items():
        for pieces, paper in columns.items():
            name = f"{net}, n = {pieces}"
            for slicer, words in (("metis", "METIS"), ("in-order", "in order")):
                own = costs_of(net, pieces, slicer)
                rows.append(statement(name, f"KiB, {words}", paper.kib, own.kib, own.kib <= paper.kib))
            rows.append(
                statement(
                    name,
                    "KiB per device, in order",
                    paper.kib_per_device,
                    own.kib_per_device,
                    own.kib_per_device <= paper.kib_per_device,
                )
            )
    return tuple(rows)


def _draw(results: Mapping[str, Result], path: Path, title: str) -> None:
    """Draw balance and communication against the number of pieces, ours, METIS's and the paper's."""
    import io

    from matplotlib.figure import Figure

    from crowdml.core.validation import write_whole

    figure = Figure(figsize=(9, 4), dpi=150, layout="constrained")
    for axes, (net, columns) in zip(figure.subplots(1, 2), PUBLISHED.items(), strict=True):
        counts = list(columns)
        axes.plot(counts, [paper.kib for paper in columns.values()], ":", marker="s", color="#D55E00", label="paper")
        for slicer, colour, style in (("metis", "#009E73", "--"), ("in-order", "#0072B2", "-")):
            values = [costs_of(net, count, slicer).kib for count in counts]
            axes.plot(counts, values, style, marker="o", color=colour, label=slicer)
        axes.set(title=net, xlabel="pieces", ylabel="KiB per example", ylim=(0, None), xticks=counts)
        axes.grid(alpha=0.25)
        axes.legend(frameon=False)
    figure.suptitle(title)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:])
    write_whole(path, drawn.getvalue())


_COMMON = (
    "computation: 1 for a neuron and 1 for each edge that leaves it, over hidden neurons",
    "a piece of ours costs at most 1.03 (mlp) or 1.05 (cnn) times the ideal; METIS has 1.03",
)
TABLE5 = Study(
    title="computation of a piece",
    task=TASKS / "slicenet-mlp.toml",
    curves=(),
    compare=_table5,
    draw=_draw,
    notes=(
        *_COMMON,
        "cnn: the paper's ideals are those of a cost of 1758912, rounded down: 1762048 less the 3136 neurons of the "
        "first pooling layer; so are the ideals and METIS's pieces here, while ours in order are cut at full cost",
    ),
)
TABLE6 = Study(
    title="storage of the net and of a piece",
    task=TASKS / "slicenet-mlp.toml",
    curves=(),
    compare=_table6,
    draw=_draw,
    notes=(
        "cnn: the paper counts flattening as a layer of 3200 neurons, and leaves the 640 edges into the outputs out",
        "the dominator's edges of the mlp are printed as 31360: a digit is lost",
        "the paper's rows on the largest piece contradict each other, so no figure stands beside ours",
    ),
)
TABLE7 = Study(
    title="communication for one example",
    task=TASKS / "slicenet-mlp.toml",
    curves=(),
    compare=_table7,
    draw=_draw,
    notes=(
        *_COMMON,
        "one number forward for each sum and each device that knows a part of it, one backward, four bytes each; "
        "shared out to n followers and the dominator",
        "which channels a filter of the cnn sees is not said in the paper; here they follow each other",
    ),
)
