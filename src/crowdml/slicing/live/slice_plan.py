"""What every member of a group works out from the signed task: who keeps which numbers, and how long messages are."""

from __future__ import annotations

from collections import Counter
from functools import cached_property

import numpy as np

from crowdml.core import BadInput, record, trees
from crowdml.slicing.cost_graph import DOMINATOR
from crowdml.slicing.number_formats import NUMBERS, NumberFormat
from crowdml.slicing.piece_messages import Kind, Plan
from crowdml.slicing.piece_state import HEADER, Leaf, length, piece_layout, tied_numbers
from crowdml.slicing.sharing import ALWAYS, owners_of_parameters
from crowdml.slicing.stages import Indices


@record
class SlicePlan:
    """Who keeps what of a net in pieces, and who tells whom how much.

    Attributes:
        arithmetic: What owners agree on for their arithmetic.
    """

    arithmetic: Plan

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """All pieces; the dominator's comes first."""
        return (DOMINATOR, *range(self.followers))

    @cached_property
    def followers(self) -> int:
        """How many pieces there are beside the dominator's."""
        return int(self.arithmetic.net.pieces.max()) + 1

    @cached_property
    def size(self) -> int:
        """How many numbers the net has."""
        return trees.size(self.arithmetic.like)

    @cached_property
    def numbers(self) -> NumberFormat:
        """How sums and slopes are written."""
        return NUMBERS[self.arithmetic.net.numbers]

    @cached_property
    def layouts(self) -> dict[int, tuple[Leaf, ...]]:
        """Of every piece, which numbers it has."""
        net, like = self.arithmetic.net, self.arithmetic.like
        return {owner: piece_layout(net, like, owner) for owner in self.owners}

    @cached_property
    def places(self) -> dict[int, Indices]:
        """Of every piece, where its numbers stand among those of the whole net, in the order of its layout."""
        begins, at = {}, 0
        for path, leaf in trees.paths(self.arithmetic.like):
            begins[path] = at
            at += np.size(leaf)
        return {
            owner: np.concatenate([begins[f"{leaf.layer}/{leaf.name}"] + leaf.positions for leaf in layout])
            for owner, layout in self.layouts.items()
        }

    @cached_property
    def uploaded(self) -> dict[int, tuple[Indices, Indices]]:
        """Of every piece the weights of which the most important are uploaded, and what is uploaded in any case.

        Both are places within the piece, in the order of the whole net.
        """
        owners = owners_of_parameters(self.arithmetic.net, self.arithmetic.like)
        made = {}
        for owner, places in self.places.items():
            ascending = np.argsort(places)
            of = owners[places[ascending]]
            made[owner] = ascending[of == owner], ascending[of == ALWAYS]
        return made

    @cached_property
    def weights(self) -> dict[int, Indices]:
        """Of every piece, which of its numbers are weights: places within the piece."""
        made = {}
        for owner, layout in self.layouts.items():
            flags = [np.full(len(leaf.positions), leaf.name == "w") for leaf in layout]
            made[owner] = np.nonzero(np.concatenate(flags))[0]
        return made

    @cached_property
    def tied(self) -> dict[int, dict[int, Indices]]:
        """Of every piece, what it has in common with others."""
        net, like = self.arithmetic.net, self.arithmetic.like
        return {owner: tied_numbers(net, like, owner) for owner in self.owners}

    @cached_property
    def lines(self) -> dict[tuple[Kind, int, int, int], int]:
        """How many lines the message of a kind and a stage has, from one piece to another."""
        made: dict[tuple[Kind, int, int, int], int] = {}
        for stage, crossing in enumerate(self.arithmetic.net.crossing):
            for (sender, receiver), sums in crossing.items():
                if sender != receiver:
                    made["forward", stage, sender, receiver] = len(sums)
                    made["backward", stage, receiver, sender] = len(sums)
        for sender, others in self.tied.items():
            made |= {("tied", 0, sender, receiver): len(both) for receiver, both in others.items()}
        return made

    @cached_property
    def first(self) -> tuple[int, ...]:
        """Pieces whose owners are sent sums of a dominator's rows."""
        return tuple(sorted(to for kind, at, of, to in self.lines if (kind, at, of) == ("forward", 0, DOMINATOR)))

    def expected(self, owner: int, micros: int) -> Counter[int]:
        """Return how many messages of a batch in so many parts a piece gets from each other one."""
        made: Counter[int] = Counter()
        for kind, _, sender, receiver in self.lines:
            if receiver == owner:
                made[sender] += 1 if kind == "tied" else micros
        return made

    @cached_property
    def hops(self) -> int:
        """How many messages follow one another in a batch; each takes two legs, to the relay and from it."""
        crossed = sum(any(sender != receiver for sender, receiver in of) for of in self.arithmetic.net.crossing)
        return 2 * crossed

    def body_bytes(self, kind: Kind, stage: int, ends: tuple[int, int], micro: int, rows: int) -> int | None:
        """Return how long a message is between two pieces, before it is sealed; None where nobody sends such."""
        lines = self.lines.get((kind, stage, *ends))
        sizes = self.arithmetic.sizes(rows) if rows else []
        if lines is None or micro >= len(sizes):
            return None
        return 4 * lines if kind == "tied" else self.numbers.length(lines, sizes[micro])

    def piece_bytes(self, owner: int) -> int:
        """Return how long a piece is, written down."""
        layout = self.layouts[owner]
        return HEADER.size + 4 * (length(layout) + length(leaf for leaf in layout if leaf.name == "w"))

    def batch_bytes(self, rows: int) -> int:
        """Return how many bytes cross in a batch, without headers and seals."""
        return sum(
            self.body_bytes(kind, stage, (sender, receiver), micro, rows) or 0
            for kind, stage, sender, receiver in self.lines
            for micro in range(1 if kind == "tied" else len(self.arithmetic.sizes(rows)))
        )


def slice_plan(arithmetic: Plan) -> SlicePlan:
    """Plan the pieces of a net; refuse a group in which everybody is alone."""
    if not len(arithmetic.net.pieces) or arithmetic.net.pieces.max() < 0:
        raise BadInput(
            "between devices a group has at least one follower", where="algorithm.pieces", hint="such as pieces = 3"
        )
    return SlicePlan(arithmetic=arithmetic)
