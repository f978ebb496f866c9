"""What a slicing costs: computation, storage and communication, per piece and in all, as numbers and as a figure.

Along a cut the owner of the earlier layer sends, for each sum of the later one, the part that it knows: one number
forward. The slope of that sum comes back: one number backward. Numbers take four bytes unless they are rounded.

Messages of one stage follow those of the stage before, so a batch takes a hop for every stage that is cut, forward and
again backward; each hop is two legs, to the server and from it. No choice of micro-batches makes a batch quicker than
that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from crowdml.core import BadInput, record
from crowdml.core.files import save_figure
from crowdml.slicing.cost_graph import DOMINATOR, CostGraph
from crowdml.slicing.number_formats import NUMBERS
from crowdml.slicing.stages import Indices

BYTES, KIB = 4, 1024


@record
class Piece:
    """What one device does, stores and sends.

    Attributes:
        computation: Its cost in the cost graph; 0 for the dominator, who is not part of it.
        nodes: Its neurons.
        edges: Weights that it keeps.
        sends: Partial sums that it sends for one example; as many slopes come back.
        receives: Partial sums that it receives; it sends as many slopes back.
    """

    computation: int
    nodes: int
    edges: int
    sends: int
    receives: int

    @property
    def kib(self) -> float:
        """KiB that pass through the device for one example, both ways."""
        return 2 * BYTES * (self.sends + self.receives) / KIB


@record
class Cuts:
    """What crosses between owners for one example.

    Attributes:
        stages: For each stage that is cut, what owners send each other: entry (p, q) as in `crossings`.
    """

    stages: tuple[Indices, ...]

    @property
    def crossing(self) -> int:
        """Partial sums that cross a cut."""
        return sum(int(between.sum()) for between in self.stages)

    @property
    def hops(self) -> int:
        """How many messages follow one another in a batch."""
        return 2 * len(self.stages)

    @property
    def messages(self) -> int:
        """Messages of a batch that goes as a whole."""
        return 2 * sum(int(np.count_nonzero(between)) for between in self.stages)

    def floor(self, leg_seconds: float) -> float:
        """Seconds that a batch takes at least, where a message travels so long to the server, and as long from it."""
        return self.hops * 2 * leg_seconds

    def kib(self, numbers: str) -> float:
        """KiB of sums and slopes in a format of numbers; scales of rows are not counted."""
        return 2 * NUMBERS[numbers].size * self.crossing / KIB

    def scales(self, numbers: str) -> int:
        """Bytes of scales: one scale for each message that an example is part of."""
        return self.messages * NUMBERS[numbers].scale_size


def cuts(graph: CostGraph, pieces: Indices) -> Cuts:
    """Count what crosses, stage by stage."""
    return Cuts(stages=tuple(between for between in stage_crossings(graph, pieces) if between.any()))


@record
class Costs:
    """A slicing and what it costs.

    Attributes:
        pieces: The followers' pieces.
        dominator: What stays with the dominator.
        total: Cost of the whole graph.
        cuts: What crosses between owners.
    """

    pieces: tuple[Piece, ...]
    dominator: Piece
    total: int
    cuts: Cuts

    @property
    def ideal(self) -> float:
        """Cost of a piece if all were equal."""
        return self.total / len(self.pieces)

    @property
    def largest(self) -> int:
        """Cost of the largest piece."""
        return max(piece.computation for piece in self.pieces)

    @property
    def balance(self) -> float:
        """The largest piece against the ideal."""
        return self.largest / self.ideal

    @property
    def crossing(self) -> int:
        """Partial sums that cross a cut for one example."""
        return self.cuts.crossing

    @property
    def kib(self) -> float:
        """KiB that the server relays for one example."""
        return self.cuts.kib("float32")

    @property
    def kib_per_device(self) -> float:
        """The same, shared out to followers and dominator."""
        return self.kib / (len(self.pieces) + 1)

    def to_json(self) -> dict[str, Any]:
        """Return everything, for scripts."""
        return {
            "pieces": [vars(piece) | {"kib": piece.kib} for piece in self.pieces],
            "dominator": vars(self.dominator) | {"kib": self.dominator.kib},
            "computation": {"largest": self.largest, "ideal": self.ideal, "balance": self.balance},
            "communication": {
                "kib": self.kib,
                "kib_per_device": self.kib_per_device,
                "sums": self.crossing,
                "hops": self.cuts.hops,
                "messages": self.cuts.messages,
                "formats": {
                    name: {"kib": self.cuts.kib(name), "scales_bytes": self.cuts.scales(name)} for name in NUMBERS
                },
            },
        }


def crossings(graph: CostGraph, pieces: Indices) -> Indices:
    """Count partial sums between owners: entry (p, q) is what p sends to q; the dominator is last."""
    found: Indices = np.sum(stage_crossings(graph, pieces), axis=0)
    return found


def stage_crossings(graph: CostGraph, pieces: Indices) -> list[Indices]:
    """Count them stage by stage."""
    count, made = int(pieces.max()) + 2, []
    for stage, source, target in zip(
        graph.stages, graph.owners_of_inputs(pieces), graph.owners_of_sums(pieces), strict=True
    ):
        owns = sparse.csr_array(
            (np.ones(len(source), np.int32), (source % count, np.arange(len(source)))), shape=(count, len(source))
        )
        sender, sum_number = (owns @ stage.reach).nonzero()
        found = np.zeros((count, count), np.int64)
        np.add.at(found, (sender, target[sum_number] % count), 1)
        np.fill_diagonal(found, 0)
        made.append(found)
    return made


def costs(graph: CostGraph, pieces: Indices) -> Costs:
    """Add up what each piece costs. `pieces` names the piece of every cell, from 0."""
    count = int(pieces.max()) + 1
    between = crossings(graph, pieces)
    sends, receives = between.sum(axis=1), between.sum(axis=0)
    summed = [
        np.bincount(pieces, weights=values, minlength=count).astype(int)
        for values in (graph.costs, graph.nodes, graph.edges)
    ]
    if (summed[1] == 0).any():
        raise BadInput(f"one of {count} pieces would be empty", where="pieces", hint="fewer pieces")
    made = [
        Piece(computation=int(c), nodes=int(n), edges=int(e), sends=int(sends[at]), receives=int(receives[at]))
        for at, (c, n, e) in enumerate(zip(*summed, strict=True))
    ]
    dominator = Piece(
        computation=0,
        nodes=graph.inputs + graph.outputs,
        edges=graph.first_edges,
        sends=int(sends[DOMINATOR]),
        receives=int(receives[DOMINATOR]),
    )
    return Costs(
        pieces=tuple(made),
        dominator=dominator,
        total=int(graph.costs.sum()),
        cuts=cuts(graph, pieces),
    )


def cost_figure(found: Costs, path: Path, title: str) -> None:
    """Draw three bars for each piece, one below the other, and save the figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 6.4), dpi=150, layout="constrained")
    names = [*(str(number + 1) for number in range(len(found.pieces))), "dominator"]
    pieces = [*found.pieces, found.dominator]
    rows = (
        ("computation", [float(piece.computation) for piece in pieces], found.ideal),
        ("weights kept", [float(piece.edges) for piece in pieces], None),
        ("KiB per example", [piece.kib for piece in pieces], None),
    )
    for axes, (label, values, level) in zip(figure.subplots(3, 1, sharex=True), rows, strict=True):
        axes.bar(names, values, color="#0072B2")
        if level is not None:
            axes.axhline(level, color="#D55E00", linestyle="--", label="ideal")
            axes.legend(frameon=False)
        axes.set_ylabel(label)
        axes.grid(axis="y", alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("piece")
    axes.tick_params(axis="x", labelrotation=90 if len(names) > 12 else 0)
    figure.suptitle(title)
    save_figure(figure, path)
