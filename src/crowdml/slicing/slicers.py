"""Slicers by name: ways to cut a cost graph into pieces. A new one is a function and a line in `SLICERS`.

`in-order` is ours: pieces that are contiguous in an order of the neurons, with the fewest partial sums across cuts.
Once a sum crosses a cut instead of its single terms, neurons of one layer want to be together, which METIS cannot see:
it counts edges. In a fixed order the sums that a run of neurons sends depend on that run alone, so the best borders
follow from dynamic programming. Orders tried: layer by layer, and with every channel of a sparse convolution beside the
channels that it sees.

`metis` is the paper's: METIS cuts into pieces of equal cost with as few cut edges as it can.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import sparse

from crowdml.core import BadInput, Registry
from crowdml.slicing.cost_graph import CostGraph
from crowdml.slicing.costs import crossings
from crowdml.slicing.stages import Indices, Stage

Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.float64]
SPLIT = 0.05
"""A channel that costs more than this share of a piece may be split between rows of its picture."""


def in_order(graph: CostGraph, pieces: int, balance: float) -> Indices:
    """Cut into contiguous pieces, none of which costs more than `balance` times the ideal."""
    unit_of_cell, after = _units(graph, pieces)
    found = []
    for order in (np.arange(len(after)), np.argsort(after, kind="stable")):
        ends = _borders(graph, unit_of_cell, order, pieces, balance)
        if ends is not None:
            piece_of_unit = np.empty(len(order), np.int64)
            piece_of_unit[order] = np.searchsorted(ends, np.arange(len(order)), side="right")
            found.append(piece_of_unit[unit_of_cell])
    if not found:
        raise BadInput(
            f"no {pieces} contiguous pieces stay within {balance:g} times the ideal cost",
            where="balance",
            hint="a larger balance, or fewer pieces",
        )
    return min(found, key=lambda pieces_of_cells: int(crossings(graph, pieces_of_cells).sum()))


def _units(graph: CostGraph, pieces: int) -> tuple[Indices, Places]:
    """Return the unit of every cell (a neuron, a channel, or a row of a channel), and where each unit wants to be."""
    ideal, count = graph.costs.sum() / pieces, 0
    units, wishes, channel_of_output, place = [], [], np.zeros(0, np.int64), np.zeros(0)
    for at, stage in enumerate(graph.hidden):
        channel, row = _channels_and_rows(stage)
        cost = np.bincount(channel, weights=graph.of_stage(graph.costs, at))
        row = np.where(cost[channel] > SPLIT * ideal, row, 0)
        names, unit = np.unique(channel * (row.max() + 1) + row, return_inverse=True)
        channel_of_unit = names // (row.max() + 1)
        wish = count + np.arange(len(names), dtype=float)
        if at and stage.reach.nnz < math.prod(stage.reach.shape):
            wish = _beside(stage, channel, channel_of_output, place)[channel_of_unit]
        units.append(unit + count)
        wishes.append(wish)
        count += len(names)
        channel_of_output = channel[stage.cell_of_output]
        place = np.array([wish[channel_of_unit == number].max() for number in range(channel.max() + 1)])
    return np.concatenate(units), np.concatenate(wishes)


def _channels_and_rows(stage: Stage) -> tuple[Indices, Indices]:
    """Return the channel of each cell, and the row of the picture it begins in; a flat stage has a channel per cell."""
    first = np.empty(stage.cells, np.int64)
    first[stage.cell_of_sum[::-1]] = np.arange(len(stage.cell_of_sum))[::-1]
    place, channel = np.divmod(first, stage.sums[2]) if len(stage.sums) > 1 else (np.zeros_like(first), first)
    row = place // stage.sums[1] if len(stage.sums) > 1 else place
    # What is normalised together is one: number those that are left.
    return np.unique(channel, return_inverse=True)[1], row


def _beside(stage: Stage, channel: Indices, channel_of_input: Indices, place: Places) -> Places:
    """Place each channel just behind the middle one of the channels it sees."""
    reach = stage.reach.tocoo()
    seen = np.zeros((channel.max() + 1, len(place)))
    np.add.at(seen, (channel[stage.cell_of_sum[reach.col]], channel_of_input[reach.row]), 1.0)
    order = np.argsort(place, kind="stable")
    share = np.cumsum(seen[:, order], axis=1) / seen.sum(axis=1, keepdims=True)
    # The lower of two middle ones: a mean could lie far from all that is seen.
    middle: Places = place[order][np.argmax(share >= 0.5 - 1e-9, axis=1)]
    return middle + 0.5


def _borders(graph: CostGraph, unit_of_cell: Indices, order: Indices, pieces: int, balance: float) -> Indices | None:
    """Find the ends of the pieces with the fewest sums across cuts; None where the balance cannot be met."""
    cost = np.bincount(unit_of_cell, weights=graph.costs)[order]
    limit = balance * cost.sum() / pieces + 1e-9
    sends, owns = (mask[order] for mask in _masks(graph, unit_of_cell, len(order)))
    rest = np.concatenate([[0.0], np.cumsum(cost)])
    count = len(order)
    best = np.full((pieces + 1, count + 1), np.inf)
    came = np.zeros((pieces + 1, count + 1), np.int64)
    best[0, 0] = 0
    for begin in range(count):
        here = np.nonzero(np.isfinite(best[:pieces, begin]))[0]
        # What is left must fit into the pieces that are left.
        here = here[rest[-1] - rest[begin] <= (pieces - here) * limit]
        if not len(here):
            continue
        sent, mine, used = sends[begin].copy(), owns[begin].copy(), 0.0
        for end in range(begin + 1, count + 1):
            used += cost[end - 1]
            if used > limit:
                break
            sent |= sends[end - 1]
            mine |= owns[end - 1]
            if rest[-1] - rest[end] > (pieces - here.min() - 1) * limit:
                continue
            total = best[here, begin] + int(np.count_nonzero(sent & ~mine))
            better = here[total < best[here + 1, end]]
            best[better + 1, end] = total[total < best[here + 1, end]]
            came[better + 1, end] = begin
    if not math.isfinite(best[pieces, count]):
        return None
    ends, at = [], count
    for number in range(pieces, 0, -1):
        ends.append(at)
        at = int(came[number, at])
    return np.array(ends[::-1])


def _masks(graph: CostGraph, unit_of_cell: Indices, units: int) -> tuple[Mask, Mask]:
    """Return for every unit which sums it sends a part of, and which are its own; sums of all stages in a row."""
    width = sum(int(np.prod(stage.sums)) for stage in graph.stages)
    sends, owns = np.zeros((units, width), bool), np.zeros((units, width), bool)
    begin = 0
    for source, target, stage in zip(
        graph.owners_of_inputs(unit_of_cell), graph.owners_of_sums(unit_of_cell), graph.stages, strict=True
    ):
        count = int(np.prod(stage.sums))
        if begin:
            reach = stage.reach.tocoo()
            sends[source[reach.row], begin + reach.col] = True
        if stage is not graph.last:
            owns[target, begin + np.arange(count)] = True
        begin += count
    return sends, owns


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


def metis(graph: CostGraph, pieces: int, balance: float) -> Indices:
    """Cut by METIS's k-way method (Karypis and Kumar 1998), whose own default balance is 1.03."""
    return k_way(graph.costs, adjacency(graph), pieces, balance=balance)


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


Slicer = Callable[[CostGraph, int, float], Indices]
"""`slicer(graph, pieces, balance)` returns the piece of every cell."""

SLICERS: Registry[Slicer] = Registry("slicer", {"in-order": in_order, "metis": metis})


def cut(graph: CostGraph, pieces: int, slicer: str = "in-order", balance: float = 1.03) -> Indices:
    """Cut a cost graph into pieces; 0 leaves everything with the dominator."""
    if pieces > len(graph.costs):
        raise BadInput(
            f"{pieces} pieces of {len(graph.costs)} parts that can be told apart", where="pieces", hint="fewer pieces"
        )
    if pieces == 0:
        return np.full(len(graph.costs), -1, np.int64)
    return SLICERS[slicer](graph, pieces, balance)
