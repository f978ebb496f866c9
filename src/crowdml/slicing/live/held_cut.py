"""The cut that a group goes back to: one deposit of every piece, and who has which piece already.

The server holds ciphertext alone. A member can have a piece at the cut if it has it, or if it was in the group when the
piece was sealed: a process that was started again has a new card, and can take over from later cuts only.
"""

from __future__ import annotations

from collections.abc import Callable

from crowdml.core import record
from crowdml.slicing.cost_graph import DOMINATOR
from crowdml.slicing.live.controls import Cut, Keep, Prepare
from crowdml.slicing.live.deposits import is_deposit, owner_of, sealed_for
from crowdml.slicing.live.slice_frames import DOWNLOAD, SERVER, Header, read_header
from crowdml.slicing.live.slice_plan import SlicePlan
from crowdml.slicing.live.slice_terms import SharedNumbers, clear_frame


@record
class Shown:
    """A deposit that a member shows again after a restart.

    Attributes:
        fresh: Key of the member's card.
        header: Of the deposit.
        frame: The deposit.
    """

    fresh: bytes
    header: Header
    frame: bytes


class HeldCut:
    """What a server holds of a group.

    Args:
        plan: Who keeps what.

    Attributes:
        cut: The cut; None: everybody begins with the shared weights.
        pieces: The deposit of every piece.
    """

    def __init__(self, plan: SlicePlan) -> None:
        self._plan = plan
        self.drop()

    def drop(self) -> None:
        """Begin with the shared weights."""
        self.cut: Cut | None = None
        self.pieces: dict[int, bytes] = {}
        self._holders: dict[int, set[bytes]] = {owner: set() for owner in self._plan.owners}
        self._others: dict[int, list[bytes]] = {}
        self._refused: set[tuple[int, bytes]] = set()
        self.begin_attempt()

    def begin_attempt(self) -> None:
        """Forget deposits of cuts that do not hold."""
        self._coming: dict[int, dict[int, bytes]] = {}

    def take(self, cut: Cut, piece: int, frame: bytes) -> bool:
        """Take a deposit for a cut of this attempt; tell whether it was the last one, so that the cut holds now."""
        got = self._coming.setdefault(cut.batch, {})
        got[piece] = frame
        if len(got) < len(self._plan.owners):
            return False
        self.cut, self.pieces = cut, got
        self._holders = {owner: {owner_of(deposit)} for owner, deposit in got.items()}
        self._others, self._refused = {}, set()
        self._coming = {batch: kept for batch, kept in self._coming.items() if batch > cut.batch}
        return True

    def note_holder(self, piece: int, fresh: bytes) -> None:
        """Somebody has a piece now."""
        self._holders[piece].add(fresh)

    def lacks(self, piece: int, fresh: bytes) -> bool:
        """Tell whether a member must be given a piece."""
        return self.cut is not None and fresh not in self._holders[piece]

    def can_have(self, piece: int, fresh: bytes) -> bool:
        """Tell whether a member can have a piece at this cut."""
        if self.cut is None or fresh in self._holders[piece]:
            return True
        return (piece, fresh) not in self._refused and fresh in sealed_for(self.pieces[piece])

    def refuse(self, piece: int, fresh: bytes) -> None:
        """A member cannot go on with a deposit: the next one that was shown of this piece takes its place."""
        self._refused.add((piece, fresh))
        if self._others.get(piece):
            self.pieces[piece] = self._others[piece].pop(0)
            self._refused = {each for each in self._refused if each[0] != piece}

    def give(
        self, message: Prepare, piece: int, member: int, fresh: bytes, pending: SharedNumbers | None
    ) -> list[bytes]:
        """Return what a piece's new owner must be given: the piece, and what is taken over on top of it."""
        given = [self.pieces[piece]] if self.lacks(piece, fresh) else []
        if pending is not None:
            part, fence = pending.within(self._plan.places[piece]).write(), (message.turn, message.attempt)
            given.append(clear_frame(DOWNLOAD, message.group, fence, (SERVER, member), piece, part))
        return given

    def hand_over(self, group: int, member: int, fresh: bytes, shared: bytes) -> list[Keep | bytes]:
        """Return all deposits for a member that can open them, and what is taken over on top of them."""
        if self.cut is None or not all(self.can_have(piece, fresh) for piece in self.pieces):
            return []
        download = clear_frame(DOWNLOAD, group, (0, 0), (SERVER, member), DOMINATOR, shared)
        return [Keep(cut=self.cut, deposits=len(self.pieces)), *self.pieces.values(), download]

    def batches(self, turn: int) -> int:
        """Return how many batches of a turn are in the cut."""
        return self.cut.batch if self.cut is not None and self.cut.turn == turn else 0

    def restore(self, shown: list[Shown], allowed: Callable[[int, int], bool]) -> bool:
        """Take the newest cut that is complete within one attempt, of those whose turn and batch are allowed."""
        found: dict[tuple[int, int, int], list[Shown]] = {}
        for each in shown:
            header = each.header
            if is_deposit(each.frame, self._plan):
                found.setdefault((header.turn, header.batch, header.attempt), []).append(each)
        owners = set(self._plan.owners)
        whole = [
            at for at, of in found.items() if {each.header.piece - 1 for each in of} == owners and allowed(at[0], at[1])
        ]
        if not whole:
            return False
        turn, batch, attempt = max(whole)
        self.drop()
        # Who sealed a deposit shows it before anybody else does: others may have altered it.
        chosen = sorted(found[turn, batch, attempt], key=lambda each: each.fresh != owner_of(each.frame))
        for each in chosen:
            piece = each.header.piece - 1
            kept = self._others.setdefault(piece, [])
            if each.frame not in kept:
                kept.append(each.frame)
        self.pieces = {piece: kept.pop(0) for piece, kept in self._others.items()}
        for each in chosen:
            if each.frame == self.pieces[each.header.piece - 1]:
                self._holders[each.header.piece - 1].add(each.fresh)
        last = any(read_header(frame).micro for frame in self.pieces.values())
        self.cut = Cut(turn=turn, attempt=attempt, batch=batch, last=last)
        return True
