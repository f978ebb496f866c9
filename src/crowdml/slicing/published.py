"""What SliceNet's tables V to VII say, and which of its two nets a cost graph is."""

from __future__ import annotations

from crowdml.core import record
from crowdml.slicing.cost_graph import CostGraph


@record
class Published:
    """One column of the tables: a net cut into so many pieces.

    Attributes:
        largest: Table V, cost of the largest piece.
        ideal: Table V, cost of a piece if all were equal.
        kib: Table VII, KiB for one example.
        kib_per_device: Table VII, the same for one device.
    """

    largest: int
    ideal: int
    kib: float
    kib_per_device: float


NODES = {"mlp": 1494, "cnn": 38154}
EDGES = {"mlp": 414600, "cnn": 2039936}
"""Table VI. The convolutional net is counted without the edges into its outputs."""

FIRST_EDGES = 313600
"""Table VI, edges of the dominator in both nets; the table on the first net lacks a digit."""

PUBLISHED = {
    "mlp": {
        5: Published(largest=20948, ideal=20340, kib=19.12, kib_per_device=3.18),
        10: Published(largest=10471, ideal=10170, kib=33.57, kib_per_device=3.05),
        15: Published(largest=6977, ideal=6780, kib=46.46, kib_per_device=2.90),
        20: Published(largest=5229, ideal=5085, kib=57.79, kib_per_device=2.75),
    },
    "cnn": {
        5: Published(largest=362353, ideal=351782, kib=214.87, kib_per_device=35.81),
        10: Published(largest=181176, ideal=175891, kib=331.45, kib_per_device=30.13),
        15: Published(largest=120779, ideal=117260, kib=818.11, kib_per_device=51.13),
        20: Published(largest=90587, ideal=87945, kib=1034.29, kib_per_device=49.25),
    },
}


def recognise(graph: CostGraph) -> str | None:
    """Tell which of the paper's nets this is: "mlp", "cnn", or None."""
    edges = {"mlp": graph.all_edges, "cnn": graph.all_edges - int(graph.last.reach.nnz)}
    for name in PUBLISHED:
        if (graph.all_nodes, edges[name]) == (NODES[name], EDGES[name]):
            return name
    return None
