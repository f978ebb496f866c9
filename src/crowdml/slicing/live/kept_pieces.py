"""Pieces that a member has kept, each as it was at a cut: to go back to, and to show a server that lost its own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from crowdml.core import trees
from crowdml.core.errors import MalformedMessage
from crowdml.core.ops import Tree
from crowdml.slicing.live.controls import Cut, Keep
from crowdml.slicing.live.deposits import open_deposit
from crowdml.slicing.live.member_cards import MemberKeys
from crowdml.slicing.live.member_guard import MemberGuard
from crowdml.slicing.live.slice_frames import Header
from crowdml.slicing.live.slice_plan import SlicePlan
from crowdml.slicing.live.slice_terms import SharedNumbers
from crowdml.slicing.piece_state import PieceState


class Kept(NamedTuple):
    """A piece at a cut: the attempt that made it, its bytes, and the deposit in which others have it."""

    attempt: int
    raw: bytes
    frame: bytes


class KeptPieces:
    """What a member has kept since its group began, back to the cut before the last one that held."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int, int], Kept] = {}
        self._held: tuple[int, int] = (-1, -1)

    def shown(self) -> list[bytes]:
        """Return the deposits, for a server that may have lost them."""
        return [kept.frame for kept in self._kept.values()]

    def keep(self, piece: int, place: tuple[int, int], kept: Kept) -> None:
        """Keep a piece as it is after a turn's batch."""
        self._kept[piece, *place] = kept

    def find(self, piece: int, place: tuple[int, int]) -> bytes | None:
        """Return a piece's bytes at a cut."""
        kept = self._kept.get((piece, *place))
        return kept.raw if kept else None

    def note_cut(self, cut: Cut) -> None:
        """A cut holds: what is older than the one before it is needed no more."""
        before, self._held = self._held, cut.place
        self._kept = {place: kept for place, kept in self._kept.items() if place[1:] >= before}

    def go_back(self, cut: Cut | None) -> None:
        """Forget what is newer than a cut, and what another attempt made there."""
        top = cut.place if cut else (-1, -1)
        self._kept = {
            place: kept
            for place, kept in self._kept.items()
            if place[1:] < top or (place[1:] == top and cut and kept.attempt == cut.attempt)
        }
        self._held = min(self._held, top)


class HandedOver:
    """The pieces of a group's model, while the server hands them over.

    Args:
        message: What the server said before them.
        keys: The member's.
        kept: What it has itself.
        guard: Who had which piece.
    """

    def __init__(self, message: Keep, keys: MemberKeys, kept: KeptPieces, guard: MemberGuard) -> None:
        self._cut, self._keys, self._kept, self._guard = message.cut, keys, kept, guard
        self._pieces: dict[int, bytes] = {}

    def take(self, header: Header, frame: bytes) -> None:
        """Open a piece; the own one is known."""
        piece = header.piece - 1
        known = self._kept.find(piece, self._cut.place)
        sealer = self._guard.sealer(self._cut.attempt, piece)
        self._pieces[piece] = known if known is not None else open_deposit(self._keys, frame, sealer)

    def model(self, plan: SlicePlan, shared: SharedNumbers) -> Tree:
        """Put the model together, with what the group has taken over since the cut."""
        if set(self._pieces) != set(plan.owners):
            raise MalformedMessage(f"{len(self._pieces)} pieces of {len(plan.owners)}")
        flat = np.zeros(plan.size, np.float32)
        for owner, raw in self._pieces.items():
            flat[plan.places[owner]] = PieceState.from_bytes(raw, plan.layouts[owner]).numbers
        flat[shared.numbers] = shared.values
        return trees.cut(flat, plan.arithmetic.like)
