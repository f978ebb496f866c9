"""The machine of a group at the server: who has which piece, which cut holds, and what happens after a loss.

Its stages are in `group_records`. It knows no clock and no network, and reads no piece: deposits are sealed. Shuffle,
loss and restart are one operation, `prepare`: everybody goes back to the last cut, and pieces go to new owners.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from crowdml.core.errors import MalformedMessage
from crowdml.slicing.cost_graph import DOMINATOR
from crowdml.slicing.live import controls as say
from crowdml.slicing.live import slice_frames as frames
from crowdml.slicing.live.dealing import NOBODY, Dealer, kept_seats
from crowdml.slicing.live.deposits import require_sealed
from crowdml.slicing.live.group_numbers import GroupNumbers
from crowdml.slicing.live.group_records import (
    ACCEPTED,
    DONE,
    GATHERING,
    MOST_ATTEMPTS,
    OVER,
    PAUSED,
    PREPARING,
    RUNNING,
    SHARING,
    STOPPED,
    USUAL_CUT,
    WAITING,
    Attempts,
    Event,
    GroupStart,
    role_name,
)
from crowdml.slicing.live.group_trust import GroupTrust, Stall
from crowdml.slicing.live.held_cut import HeldCut, Shown
from crowdml.slicing.live.member_cards import Card
from crowdml.slicing.live.slice_frames import Header, read_header
from crowdml.slicing.live.slice_terms import SharedNumbers, SliceTerms, body_of

Out = list[tuple[int, say.OfServer | bytes]]


class Group:
    """One group.

    Args:
        terms: What it has agreed on.
        start: What it begins with.

    Attributes:
        stage: Where in the table the group stands.
        cards: Cards of the members that are there.
        events: What happened, oldest first; a driver takes them out.
        numbers: What it shares with other groups.
        replays: Attempts that went back to a cut.
        trust: Who is out, and who saw sums of whose rows.
        next_every: Batches between two cuts from the next attempt on.
        patient: Whether it gathers for longer, after a restart, because no cut is whole yet.
    """

    def __init__(self, terms: SliceTerms, start: GroupStart) -> None:
        self.terms, self.number, self.size, self.passes = terms, start.number, start.size, start.passes
        self._dealer = Dealer(secret=start.secret, group=start.number)
        self.attempts = Attempts(start.incarnation)
        self.numbers, self._ended = GroupNumbers(terms.plan, start.first, start.download), start.ended
        self.stage, self.turn = GATHERING, self._before_pass
        self.attempt = self.attempts.now
        self.cards: dict[int, Card] = {}
        self.assignment: tuple[int, ...] = ()
        self.events: list[Event] = []
        self.every = self.next_every = terms.cut_every or USUAL_CUT
        self.batches = self.replays = 0
        self._held = HeldCut(terms.plan)
        self._shown: list[Shown] = []
        self._ready, self.trust = set[int](), GroupTrust()
        self._roster: dict[int, Card] = {}
        self._turn_attempts = 0
        self._ending = self._between = self.patient = False
        self._stall: Stall | None = None

    def joined(self, member: int, card: Card, deposits: Iterable[bytes] = ()) -> Out:
        """Welcome a member, which shows its last deposits again."""
        before = self.left(member, "came back") if member in self.cards else []
        self.cards[member] = card
        welcome: Out = [*before, (member, say.Welcome(group=self.number, number=member))]
        if self.stage == GATHERING:
            self._shown = [each for each in self._shown if each.fresh != card.fresh]
            for frame in deposits:
                header = read_header(frame)
                if header.kind == frames.DEPOSIT and header.group == self.number:
                    self._shown.append(Shown(fresh=card.fresh, header=header, frame=frame))
            complete = len(self.cards) == self.size
            return welcome + (self.begin(patient=not complete) if complete or self.patient else [])
        if self.stage == WAITING:
            return welcome + (self._next_turn() if self._between else self._again())
        if self.stage == DONE:
            return welcome + self._hand_over([member])
        return welcome

    def begin(self, patient: bool = False) -> Out:
        """Begin, or go on after a restart, with those who are there.

        Args:
            patient: Go on gathering if what was shown makes no whole cut: whoever comes later may have the rest of it.
        """
        if self.stage != GATHERING:
            return []
        restored = self._held.restore(self._shown, self._counts)
        self.patient = patient and not restored and bool(self._shown)
        if self.patient:
            return []
        shown, self._shown = self._shown, []
        if not restored:
            if (shown or self.passes) and self.passes < self.terms.passes:
                self._note("pass again", why="no cut was complete: this pass begins again with the shared weights")
            return self._next_turn()
        cut = self.cut
        assert cut is not None  # noqa: S101  restored just now
        self.turn = cut.turn
        shared = cut.turn // self.size < self.passes
        self.numbers.due = self.numbers.download if shared else None
        self._note("restored", batch=cut.batch)
        if shared:
            self.turn = self._before_pass
            return self._next_turn()
        dominator = self._dealer.order(self.passes, self.size)[cut.turn % self.size]
        self.assignment = (dominator, *(NOBODY,) * self.terms.plan.followers)
        if cut.last:
            if cut.batch:
                self._note("turn", batch=cut.batch, members=self.assignment)
            return self._next_turn()
        return self._take_turn(self.assignment[0])

    def _counts(self, turn: int, batch: int) -> bool:
        """Tell whether a cut belongs to this pass, or is the one with which the last pass ended."""
        return turn >= self.passes * self.size or (turn, batch) == self._ended

    @property
    def _before_pass(self) -> int:
        """The turn before the first one of the present pass."""
        return self.passes * self.size - 1

    @property
    def cut(self) -> say.Cut | None:
        """The last cut that holds; None: the shared weights."""
        return self._held.cut

    def left(self, member: int, why: str) -> Out:
        """A member is lost."""
        if self.cards.pop(member, None) is None or self.stage in OVER:
            return []
        return self._without(member, why=why)

    def answers_due(self) -> Out:
        """Owners had time to say whom they wait for: those that stayed silent are lost."""
        if self.stage != RUNNING or self._stall is None:
            return []
        (lost, why), self._stall = self._stall.lost(), None
        if not lost:
            self._note("stalled", batch=self._done_batches(), why="everybody waits for somebody: a frame was lost")
            return self._again()
        for member in lost:
            self.cards.pop(member, None)
        # Taken together: each of them alone would be replaced by another that is lost.
        stops: Out = [(member, say.Stop(reason=f"this device {why}", again=True)) for member in lost]
        return stops + self._without(*lost, why="slow")

    def pause(self) -> Out:
        """The task rests: everybody leaves, and shows its deposits again when it goes on."""
        if self.stage in OVER:
            return []
        self.stage = PAUSED
        self._note(PAUSED, batch=self._done_batches())
        return [(member, say.Stop(reason="the task is paused", again=True)) for member in self.cards]

    def stop(self, reason: str) -> Out:
        """The task has ended: every member gets the group's model as it was at the last cut, and hears why."""
        if self.stage in OVER:
            return []
        self.stage = STOPPED
        self._note(STOPPED, batch=self._done_batches(), why=reason)
        return self._hand_over(list(self.cards), reason)

    def dissolve(self) -> Out:
        """There have been too few members for long: those who are there look for another group."""
        self.stage = STOPPED
        return [(member, say.Stop(reason="the group is dissolved", again=True)) for member in self.cards]

    def deal_anew(self) -> Out:
        """Give up waiting for members at a cut: the pass begins again with the shared weights."""
        if self.stage != WAITING:
            return []
        self._note("pass again", why="too few members that can open the last cut")
        self._held.drop()
        self.trust.begin_pass()
        self.numbers.due = self.numbers.first
        self.turn = self._before_pass
        return self._next_turn()

    def shared(self, first: SharedNumbers, download: SharedNumbers) -> Out:
        """What was uploaded is stored; this is what everybody may know now, and what the group takes over."""
        if self.stage != SHARING or self.numbers.upload is None:
            return []
        self.numbers.take_over(first, download, again=self.cut is None)
        self.passes += 1
        self.turn = self._before_pass
        self.trust.begin_pass()
        self._note("shared", why=f"{len(download.numbers)} numbers of other groups were taken over")
        return self._next_turn()

    def handle(self, member: int, message: say.OfMember | bytes) -> Out:
        """Take a message of a member that is of the present attempt; drop any other."""
        if member not in self.cards or isinstance(message, say.Hello):
            return []
        header = read_header(message) if isinstance(message, bytes) else None
        name = message.kind if header is None else frames.KINDS[header.kind]  # type: ignore[union-attr]
        told = message if header is None else header
        fence = told.turn, told.attempt  # type: ignore[union-attr]
        if fence != (self.turn, self.attempt) or member not in self.assignment:
            return []
        if name not in ACCEPTED.get(self.stage, ()):
            return []
        return cast(Out, getattr(self, f"_on_{name}")(member, message, header))

    def _on_ready(self, member: int, message: say.Ready, _: None) -> Out:
        if member == self.assignment[0] and not self._ending:
            if message.batches <= self._done_batches():
                return self._without(member, why="has no rows to begin with")
            self.batches = message.batches
        self._ready.add(member)
        if self._ready < set(self.assignment):
            return []
        for owner, owned in zip(self.terms.plan.owners, self.assignment, strict=True):
            self._held.note_holder(owner, self.cards[owned].fresh)
        if self._ending and not self.numbers.are_due:
            self.stage = SHARING
            return [(owner, say.Share(turn=self.turn, attempt=self.attempt)) for owner in self.assignment]
        self.stage, self._stall = RUNNING, None
        if self._ending:
            self.batches = 0
        else:
            self._note("go", batch=self._done_batches(), members=self.assignment)
            self.trust.note_turn(self.terms.plan, self.assignment, self.cards)
        message_go = say.Go(
            turn=self.turn,
            attempt=self.attempt,
            batches=self.batches,
            every=self.every,
            at_once=self.numbers.are_due,
        )
        return [(each, message_go) for each in self._roster if each in self.cards]

    def _on_deposit(self, member: int, frame: bytes, header: Header) -> Out:
        piece, batch = header.piece - 1, header.batch
        owned = self.assignment[header.piece : header.piece + 1] == (member,)
        due = batch % self.every == 0 or batch == self.batches
        new = self._done_batches() < batch <= self.batches or (batch == 0 and self.numbers.are_due)
        if not (owned and due and new):
            raise MalformedMessage("a deposit that nobody asked for")
        others = {card.fresh for number, card in self._roster.items() if number != member}
        require_sealed(frame, self.terms.plan, piece, self.cards[member].fresh, others)
        last = batch == self.batches
        cut = say.Cut(turn=self.turn, attempt=self.attempt, batch=batch, last=last)
        if not self._held.take(cut, piece, frame):
            return []
        self.numbers.due = None
        out: Out = [(each, say.CutHolds(cut=cut)) for each in self.cards]
        if not last:
            return out
        if batch:
            self._note("turn", batch=batch, members=self.assignment)
        return out + self._next_turn()

    def _on_complain(self, member: int, message: say.Complain, _: None) -> Out:
        """Whoever sent a frame that cannot be is out for the pass: it did it, or the relay."""
        if self.stage == PREPARING:
            # It cannot go on with the deposit that it was given: another one may, or another member.
            self._note("refused", batch=self._done_batches(), members=(member,), why=message.why)
            self._held.refuse(self.assignment.index(member) - 1, self.cards[member].fresh)
            return self._again()
        out = self.trust.complaint(member, message.about if message.about in self.assignment else NOBODY)
        if not out:
            self._note("complaint", batch=self._done_batches(), members=(member,), why=message.why)
            return self._again()
        return self._without(*out, why=f"member {member} complains: {message.why}"[:300])

    def _on_stalled(self, member: int, message: say.Stalled, _: None) -> Out:
        out: Out = []
        if self._stall is None:
            self._stall = Stall(self.assignment)
            ask = say.Ask(turn=self.turn, attempt=self.attempt)
            out = [(owner, ask) for owner in self.assignment if owner != member]
        return self.answers_due() if self._stall.answer(member, message.waits_for) else out

    def _on_upload(self, member: int, frame: bytes, header: Header) -> Out:
        if self.assignment[header.piece : header.piece + 1] != (member,):
            raise MalformedMessage("an upload of another member's piece")
        self.numbers.hand_in(header.piece - 1, body_of(frame))
        return []

    def _next_turn(self) -> Out:
        """Begin the next turn whose dominator is there; at the end of a pass, share."""
        self._turn_attempts, self._ending, self._between = 0, False, False
        if self.passes >= self.terms.passes:
            if self.cut is None or not self.numbers.are_due:
                return self._finish()
            # What was taken over last is put into a cut, so that all members have the same model.
            self.turn, self._ending = self.passes * self.size, True
            return self._take_turn(NOBODY)
        if len(self.present) < len(self.terms.plan.owners):
            self._between = True
            return self._wait()
        while (self.turn + 1) // self.size == self.passes:
            self.turn += 1
            dominator = self._dealer.order(self.passes, self.size)[self.turn % self.size]
            if dominator in self.present and self.able(dominator, DOMINATOR):
                return self._take_turn(dominator)
            self._note("turn lost", members=(dominator,), why="its dominator is not there, or cannot open the cut")
        if self.cut is None:
            # Nobody has trained anything: there is nothing to share, and the pass is over all the same.
            self.stage = SHARING
            self.numbers.hand_in_none()
            return []
        self._ending = True
        return self._take_turn(NOBODY)

    def _take_turn(self, dominator: int) -> Out:
        """Deal the pieces for a turn, and prepare it; at the end of a pass everybody keeps what it has."""
        if self.assignment and (self.terms.shuffle == "least" or self._ending):
            keeps = self.assignment[0] if self._ending else dominator
            self.assignment = kept_seats(self.assignment, self.present, keeps)
        else:
            self.assignment = (dominator, *(NOBODY,) * self.terms.plan.followers)
        return self._again()

    def _again(self) -> Out:
        """Put somebody in every missing member's place, and prepare; without enough members, wait."""
        present = self.present
        seats = [member if member in present else NOBODY for member in self.assignment]
        if not self._ending and not (seats[0] and self.able(seats[0], DOMINATOR)):
            return self._end_turn_early()
        filled = self._dealer.fill(seats, present, self.turn, self.able)
        if filled is None:
            return self._wait()
        self.assignment = filled
        return self._prepare()

    def _finish(self) -> Out:
        """All passes are made."""
        self.stage = DONE
        self._note(DONE)
        return self._hand_over(list(self.cards))

    def _wait(self) -> Out:
        """Wait at the cut for members; after the last pass there is nothing to wait for."""
        if self.passes >= self.terms.passes:
            return self._finish()
        if self.stage != WAITING:
            self._note("waiting", batch=self._done_batches(), why="too few members that can open the cut")
        self.stage = WAITING
        return []

    def _end_turn_early(self) -> Out:
        """The dominator is lost: the turn ends at the cut."""
        self._note("dominator lost", batch=self._done_batches(), members=self.assignment[:1])
        if self._done_batches():
            self._note("turn", batch=self._done_batches(), members=self.assignment)
        return self._next_turn()

    def _prepare(self) -> Out:
        """Everybody goes back to the cut; the new attempt's number fences all that is under way."""
        if self._turn_attempts >= MOST_ATTEMPTS and not self._ending:
            self._note("too many attempts", batch=self._done_batches())
            self._turn_attempts = 0
            return self._end_turn_early()
        self._turn_attempts += 1
        self.replays += self._turn_attempts > 1
        self.attempt = self.attempts.following()
        self._held.begin_attempt()
        self.stage, self._ready, self._stall = PREPARING, set(), None
        self.every = self.next_every
        self.numbers.begin_attempt()
        self._roster = dict(sorted((member, self.cards[member]) for member in self.present))
        message = say.Prepare(
            group=self.number,
            turn=self.turn,
            attempt=self.attempt,
            passes=self.passes,
            cards={str(member): say.CardText.of(card) for member, card in self._roster.items()},
            assignment=self.assignment,
            cut=self.cut,
            download=self.numbers.due is not None,
        )
        out: Out = [(member, message) for member in self._roster]
        for piece, member in zip(self.terms.plan.owners, self.assignment, strict=True):
            given = self._held.give(message, piece, member, self.cards[member].fresh, self.numbers.due)
            out += [(member, frame) for frame in given]
            if self._held.lacks(piece, self.cards[member].fresh):
                self._note("piece", members=(member,), why=str(piece))
        return out

    def _hand_over(self, members: list[int], reason: str = "all passes are made") -> Out:
        """Give members the last deposits, of which each may put its group's model together."""
        out, shared = list[tuple[int, say.OfServer | bytes]](), self.numbers.in_clear()
        for member in members:
            given = self._held.hand_over(self.number, member, self.cards[member].fresh, shared)
            out += [(member, each) for each in given]
            left_out = "" if given else "; this device cannot open the last pieces of its group"
            out.append((member, say.Stop(reason=f"{reason[:200]}{left_out}")))
        return out

    @property
    def asking(self) -> bool:
        """Whether owners were asked whom they wait for."""
        return self._stall is not None

    @property
    def present(self) -> list[int]:
        """Members that are there and may have a piece."""
        return [member for member in sorted(self.cards) if member not in self.trust.banned]

    def able(self, member: int, piece: int) -> bool:
        """Tell whether a member can have a piece at the cut: it has it, or it was sealed for its card."""
        return self._held.can_have(piece, self.cards[member].fresh)

    def _done_batches(self) -> int:
        return self._held.batches(self.turn)

    def _without(self, *members: int, why: str) -> Out:
        for member in members:
            role = role_name(member, self.assignment)
            self._note("lost", batch=self._done_batches(), members=(member,), why=f"{role}: {why}")
        concerned = self.stage in (PREPARING, RUNNING) or (self.stage == SHARING and self.numbers.upload is None)
        if not concerned or not set(members) & set(self.assignment):
            return []
        return self._again()

    def _note(self, what: str, **more: Any) -> None:
        self.events.append(Event(what=what, turn=max(self.turn, 0), **more))
