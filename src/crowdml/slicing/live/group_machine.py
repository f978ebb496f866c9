"""The machine of a group at the server: who has which piece, which cut holds, and what happens after a loss.

    gathering ─► preparing ─► running ─► preparing …            a cut at the end of a turn begins the next one
                     │           └─ loss, complaint, stall ─► preparing, back to the cut
                     ├─ at the end of a pass ─► sharing ─► preparing
                     └─ too few members ─► waiting            all passes made ─► done

It knows no clock and no network, and reads no piece: deposits are sealed. Shuffle, loss and restart are one operation,
`prepare`: everybody goes back to the last cut, and pieces go to whoever has them from now on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from crowdml.core import record
from crowdml.core.errors import MalformedMessage
from crowdml.slicing.live import controls as say
from crowdml.slicing.live import frames
from crowdml.slicing.live.deposits import deposit_bytes, owner_of, sealed_for
from crowdml.slicing.live.frames import Header, attempt_number, read_header
from crowdml.slicing.live.member_cards import Card
from crowdml.slicing.live.slice_terms import SharedNumbers, SliceTerms, body_of, clear_frame

GATHERING, PREPARING, RUNNING, SHARING, WAITING, DONE = (
    "gathering", "preparing", "running", "sharing", "waiting", "done",
)
ACCEPTED: dict[str, tuple[str, ...]] = {
    GATHERING: (),
    PREPARING: ("ready",),
    RUNNING: ("deposit", "complain", "stalled"),
    SHARING: ("upload",),
    WAITING: (),
    DONE: (),
}
"""What the machine takes from members in each stage, if it is of the present attempt; everything else is dropped."""
MOST_ATTEMPTS = 200
"""Attempts at one turn: each that moves a piece shows rows to another member, so a turn ends before there are many."""
USUAL_CUT = 50

Out = list[tuple[int, say.OfServer | bytes]]


@record
class Event:
    """Something that happened to a group, for its page and its log.

    Attributes:
        what: What happened.
        turn: In which turn.
        batch: After how many of its batches.
        members: Numbers of the members it concerns.
        why: More about it.
    """

    what: str
    turn: int
    batch: int = 0
    members: tuple[int, ...] = ()
    why: str = ""


class Group:
    """One group.

    Args:
        terms: What it has agreed on.
        number: Its number in the task.
        size: Members; they are numbered from 1.
        secret: Orders turns and pieces, so that a restarted server orders them alike.
        incarnation: How often the server has started.
        passes: Passes whose uploads are stored.
        ended: Turn and batch of the cut with which the last of them ended.
        first: All numbers of the net, as everybody may know them.
        download: What a group takes over at the beginning of this pass.

    Attributes:
        stage: Where in the table the group stands.
        cards: Cards of the members that are there.
        cut: The last cut that holds; None: the shared weights.
        events: What happened, oldest first; a driver takes them out.
        upload: What is to be stored and shared, while the group waits for that.
        replays: Attempts that went back to a cut.
        next_every: Batches between two cuts from the next attempt on.
    """

    def __init__(
        self,
        terms: SliceTerms,
        number: int,
        size: int,
        secret: bytes,
        incarnation: int,
        passes: int,
        first: SharedNumbers,
        download: SharedNumbers,
        ended: tuple[int, int] | None = None,
    ) -> None:
        self.terms, self.number, self.size, self.passes = terms, number, size, passes
        self._secret, self._incarnation, self._attempts = secret, incarnation, 0
        self._first, self.download, self._ended = first, download, ended
        self.stage, self.turn, self.attempt = GATHERING, passes * size - 1, attempt_number(incarnation, 0)
        self.cards: dict[int, Card] = {}
        self.cut: say.Cut | None = None
        self.assignment: tuple[int, ...] = ()
        self.events: list[Event] = []
        self.upload: SharedNumbers | None = None
        self.every = self.next_every = terms.cut_every or USUAL_CUT
        self.batches = self.replays = 0
        self._pending: SharedNumbers | None = first
        self._kept: dict[int, bytes] = {}
        self._holders: dict[int, set[bytes]] = {}
        self._deposits: dict[int, dict[int, bytes]] = {}
        self._shown: list[tuple[int, Header, bytes]] = []
        self._ready = set[int]()
        self._uploads: dict[int, SharedNumbers] = {}
        self._banned = set[int]()
        self._roster: dict[int, Card] = {}
        self._turn_attempts = 0
        self._ending = False
        self._answers: dict[int, tuple[int, ...]] | None = None

    # What a driver tells.

    def joined(self, member: int, card: Card, deposits: Iterable[bytes] = ()) -> Out:
        """Welcome a member, which shows its last deposits again."""
        before = self.left(member, "came back") if member in self.cards else []
        self.cards[member] = card
        welcome: Out = [*before, (member, say.Welcome(group=self.number, number=member))]
        if self.stage == GATHERING:
            for frame in deposits:
                header = read_header(frame)
                if header.kind == frames.DEPOSIT and header.group == self.number and owner_of(frame):
                    self._shown.append((member, header, frame))
            return welcome + (self.begin() if len(self.cards) == self.size else [])
        if self.stage == WAITING:
            return welcome + self._again()
        if self.stage == DONE:
            return welcome + self._hand_over([member])
        return welcome

    def begin(self) -> Out:
        """Begin, or go on after a restart, with those who are there."""
        if self.stage != GATHERING:
            return []
        found: dict[tuple[int, int, int], dict[int, tuple[int, Header, bytes]]] = {}
        for member, header, frame in self._shown:
            found.setdefault((header.turn, header.batch, header.attempt), {})[header.piece - 1] = member, header, frame
        whole = [
            at
            for at, got in found.items()
            if set(got) == set(self.terms.plan.owners) and (at[0] >= self.passes * self.size or at[:2] == self._ended)
        ]
        self._holders = {owner: set() for owner in self.terms.plan.owners}
        if not whole:
            if found:
                self._note("pass again", why="no cut was complete: this pass begins again with the shared weights")
            self._shown = []
            return self._next_turn()
        turn, batch, attempt = max(whole)
        got = found[turn, batch, attempt]
        self._kept = {piece: frame for piece, (_, _, frame) in got.items()}
        for member, header, frame in self._shown:
            if (header.turn, header.batch, header.attempt) == (turn, batch, attempt):
                self._holders[header.piece - 1].add(self.cards[member].fresh)
        last = any(header.micro for _, header, _ in got.values())
        self.cut, self.turn, self._shown = say.Cut(turn=turn, attempt=attempt, batch=batch, last=last), turn, []
        shared = turn // self.size < self.passes
        self._pending = self.download if shared else None
        self._note("restored", batch=batch)
        if shared:
            self.turn = self.passes * self.size - 1
            return self._next_turn()
        self.assignment = (self._order()[turn % self.size], *(0 for _ in range(self.terms.plan.followers)))
        if last:
            self._note("turn", batch=batch, members=self.assignment)
            return self._next_turn()
        return self._take_turn(self.assignment[0])

    def left(self, member: int, why: str) -> Out:
        """A member is lost."""
        if self.cards.pop(member, None) is None or self.stage == DONE:
            return []
        return self._without(member, why)

    def answers_due(self) -> Out:
        """Owners had time to say whom they wait for: those that stayed silent are lost."""
        if self.stage != RUNNING or self._answers is None:
            return []
        silent = [member for member in self.assignment if member not in self._answers]
        self._answers = None
        if not silent:
            self._note("stalled", batch=self._done_batches(), why="everybody waits for somebody: a frame was lost")
            return self._again()
        out: Out = []
        for member in silent:
            self.cards.pop(member, None)
            out.append((member, say.Stop(reason="this device did not answer in time", again=True)))
        # Taken together: each of them alone would be replaced by another that is lost.
        return out + self._without_all(silent, "slow")

    def deal_anew(self) -> Out:
        """Give up waiting for members at a cut: the pass begins again with the shared weights."""
        if self.stage != WAITING:
            return []
        self._note("pass again", why="too few members that can open the last cut")
        self.cut, self._kept, self._pending = None, {}, self._first
        self._holders = {owner: set() for owner in self.terms.plan.owners}
        self.turn = self.passes * self.size - 1
        return self._next_turn()

    def shared(self, first: SharedNumbers, download: SharedNumbers) -> Out:
        """What was uploaded is stored; this is what everybody may know now, and what the group takes over."""
        if self.stage != SHARING or self.upload is None:
            return []
        self.upload, self._uploads = None, {}
        self._first, self.download, self._pending = first, download, download
        self.passes += 1
        self.turn = self.passes * self.size - 1
        self._banned.clear()
        self._note("shared", why=f"{len(download.numbers)} numbers of other groups were taken over")
        return self._next_turn()

    # What members say.

    def handle(self, member: int, message: say.OfMember | bytes) -> Out:
        """Take a message of a member that is of the present attempt; drop any other."""
        if member not in self.cards:
            return []
        if isinstance(message, bytes):
            header = read_header(message)
            name, fence = frames.KINDS[header.kind], header.fence
        elif isinstance(message, say.Hello):
            return []
        else:
            header, name, fence = None, message.kind, (message.turn, message.attempt)
        if fence != (self.turn, self.attempt) or member not in self.assignment or name not in ACCEPTED[self.stage]:
            return []
        found: Out = getattr(self, f"_on_{name}")(member, message, header)
        return found

    def _on_ready(self, member: int, message: say.Ready, _: None) -> Out:
        if member == self.assignment[0] and not self._ending:
            least = self.cut.batch if self.cut and self.cut.turn == self.turn else 0
            if message.batches <= least:
                return self._without(member, "has no rows to begin with")
            self.batches = message.batches
        self._ready.add(member)
        if self._ready < set(self.assignment):
            return []
        for owner, owned in zip(self.terms.plan.owners, self.assignment, strict=True):
            self._holders[owner].add(self.cards[owned].fresh)
        if self._ending:
            self.stage = SHARING
            return [(owner, say.Share(turn=self.turn, attempt=self.attempt)) for owner in self.assignment]
        self.stage, self._answers = RUNNING, None
        self._note("go", batch=self._done_batches(), members=self.assignment)
        message_go = say.Go(turn=self.turn, attempt=self.attempt, batches=self.batches, every=self.every)
        return [(each, message_go) for each in self._roster if each in self.cards]

    def _on_deposit(self, member: int, frame: bytes, header: Header) -> Out:
        piece, batch = header.piece - 1, header.batch
        expected = batch % self.every == 0 or batch == self.batches
        if self._owned_by(member) != piece or not expected or not self._done_batches() < batch <= self.batches:
            raise MalformedMessage("a deposit that nobody asked for")
        if len(frame) != deposit_bytes(self.terms.plan, piece, len(self._roster)):
            raise MalformedMessage(f"a deposit of {len(frame)} bytes, which is not its length")
        others = {card.fresh for number, card in self._roster.items() if number != member}
        if owner_of(frame) != self.cards[member].fresh or sealed_for(frame) != others:
            raise MalformedMessage("a deposit that is not sealed by this member for all others")
        got = self._deposits.setdefault(batch, {})
        got[piece] = frame
        if len(got) < len(self.assignment):
            return []
        last = batch == self.batches
        self.cut = say.Cut(turn=self.turn, attempt=self.attempt, batch=batch, last=last)
        self._kept, self._pending = got, None
        self._deposits = {later: kept for later, kept in self._deposits.items() if later > batch}
        self._holders = {
            owner: {self.cards[owned].fresh} for owner, owned in zip(self.terms.plan.owners, self.assignment, strict=True)
        }
        out: Out = [(each, say.CutHolds(cut=self.cut)) for each in self.cards]
        if not last:
            return out
        self._note("turn", batch=batch, members=self.assignment)
        return out + self._next_turn()

    def _on_complain(self, member: int, message: say.Complain, _: None) -> Out:
        """Whoever sent a frame that cannot be is out for the pass: it did it, or the relay."""
        about = message.about
        if about == member or about not in self.assignment:
            self._note("complaint", batch=self._done_batches(), members=(member,), why=message.why)
            return self._again()
        self._banned.add(about)
        return self._without(about, f"member {member} complains: {message.why}"[:300])

    def _on_stalled(self, member: int, message: say.Stalled, _: None) -> Out:
        out: Out = []
        if self._answers is None:
            self._answers = {}
            ask = say.Ask(turn=self.turn, attempt=self.attempt)
            out = [(owner, ask) for owner in self.assignment if owner != member]
        self._answers[member] = message.waits_for
        return out if len(self._answers) < len(self.assignment) else self.answers_due()

    def _on_upload(self, member: int, frame: bytes, header: Header) -> Out:
        piece = header.piece - 1
        if self._owned_by(member) != piece:
            raise MalformedMessage("an upload of another member's piece")
        self._uploads[piece] = SharedNumbers.read(body_of(frame), self.terms.plan.places[piece])
        if len(self._uploads) == len(self.assignment) and self.upload is None:
            self.upload = SharedNumbers.together(list(self._uploads.values()))
        return []

    # Turns.

    def _order(self) -> list[int]:
        """In which order members are dominators in this pass."""
        return self._ranked(f"pass/{self.passes}", range(1, self.size + 1))

    def _ranked(self, what: str, members: Iterable[int]) -> list[int]:
        def rank(member: int) -> bytes:
            told = f"{self.number}/{what}/{member}".encode()
            return hashlib.blake2b(told, key=self._secret, digest_size=8).digest()

        return sorted(members, key=rank)

    def _next_turn(self) -> Out:
        """Begin the next turn whose dominator is there; at the end of a pass, share."""
        self._turn_attempts, self._ending = 0, False
        if self.passes >= self.terms.passes:
            self.stage = DONE
            self._note("done")
            return self._hand_over(list(self.cards))
        while (self.turn + 1) // self.size == self.passes:
            self.turn += 1
            dominator = self._order()[self.turn % self.size]
            if dominator in self.cards and dominator not in self._banned and self.able(dominator, -1):
                return self._take_turn(dominator)
            self._note("turn lost", members=(dominator,), why="its dominator is not there, or cannot open the cut")
        if self.cut is None:
            # Nobody has trained anything: there is nothing to share, and the pass is over all the same.
            self.stage, self.upload = SHARING, SharedNumbers.none()
            return []
        self._ending = True
        return self._take_turn(next(iter(self._ranked(f"end/{self.passes}", self.present)), 0))

    def _take_turn(self, dominator: int) -> Out:
        """Deal the pieces for a turn, and prepare it."""
        kept = self.assignment if self.terms.shuffle == "least" or self._ending else ()
        kept = tuple(member if member in self.present else 0 for member in kept)
        if self._ending and kept and 0 not in kept:
            dominator = kept[0]
        if kept and dominator != kept[0]:
            # As few pieces as possible move: who had the new dominator's gets what the old one is free to take.
            kept = (dominator, *(kept[0] if member == dominator else member for member in kept[1:]))
        self.assignment = kept or (dominator, *(0 for _ in range(self.terms.plan.followers)))
        return self._again()

    def _again(self) -> Out:
        """Put somebody in every missing member's place, and prepare; without enough members, wait."""
        present = self.present
        seats = [member if member in present else 0 for member in self.assignment]
        if not self._ending and not seats[0]:
            return self._end_turn_early()
        free = self._ranked(f"turn/{self.turn}", [member for member in present if member not in seats])
        for at, piece in enumerate(self.terms.plan.owners):
            if seats[at] and self.able(seats[at], piece):
                continue
            if at == 0 and seats[at] and not self._ending:
                return self._end_turn_early()
            found = next((member for member in free if self.able(member, piece)), None)
            if found is None:
                if self.stage != WAITING:
                    self._note("waiting", batch=self._done_batches(), why="too few members that can open the cut")
                self.stage = WAITING
                return []
            seats[at] = found
            free.remove(found)
        self.assignment = tuple(seats)
        return self._prepare()

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
        self._attempts += 1
        self.replays += self._turn_attempts > 1
        self.attempt = attempt_number(self._incarnation, self._attempts)
        self.stage, self._ready, self._deposits, self._answers = PREPARING, set(), {}, None
        self.every = self.next_every
        self._uploads, self.upload = {}, None
        self._roster = dict(sorted((member, self.cards[member]) for member in self.present))
        message = say.Prepare(
            group=self.number,
            turn=self.turn,
            attempt=self.attempt,
            passes=self.passes,
            cards={str(member): say.CardText.of(card) for member, card in self._roster.items()},
            assignment=self.assignment,
            cut=self.cut,
            download=self._pending is not None,
        )
        out: Out = [(member, message) for member in self._roster]
        for piece, member in zip(self.terms.plan.owners, self.assignment, strict=True):
            if self.cut is not None and self.cards[member].fresh not in self._holders[piece]:
                out.append((member, self._kept[piece]))
                self._note("piece", members=(member,), why=str(piece))
            if self._pending is not None:
                part = self._pending.within(self.terms.plan.places[piece])
                ends, fence = (frames.SERVER, member), (self.turn, self.attempt)
                out.append((member, clear_frame(frames.DOWNLOAD, self.number, fence, ends, piece, part.write())))
        return out

    def _hand_over(self, members: list[int]) -> Out:
        """Give members the last deposits, of which each may put its group's model together."""
        out: Out = []
        for member in members:
            fresh = self.cards[member].fresh
            pieces = self._kept.items()
            able = self.cut is not None and all(fresh in self._holders[piece] or fresh in sealed_for(each) for piece, each in pieces)
            if able and self.cut is not None:
                out.append((member, say.Keep(cut=self.cut, deposits=len(self._kept))))
                out += [(member, frame) for _, frame in pieces]
                shared = (self._pending or SharedNumbers.none()).write()
                out.append((member, clear_frame(frames.DOWNLOAD, self.number, (0, 0), (0, member), -1, shared)))
            out.append((member, say.Stop(reason="all passes are made")))
        return out

    # Who is there.

    @property
    def asking(self) -> bool:
        """Whether owners were asked whom they wait for."""
        return self._answers is not None

    @property
    def present(self) -> list[int]:
        """Members that are there and may have a piece."""
        return [member for member in sorted(self.cards) if member not in self._banned]

    def able(self, member: int, piece: int) -> bool:
        """Tell whether a member can have a piece at the cut: it has it, or it was sealed for its card."""
        if self.cut is None:
            return True
        fresh = self.cards[member].fresh
        return fresh in self._holders[piece] or fresh in sealed_for(self._kept[piece])

    def _owned_by(self, member: int) -> int:
        return self.assignment.index(member) - 1

    def _done_batches(self) -> int:
        return self.cut.batch if self.cut is not None and self.cut.turn == self.turn else 0

    def _without(self, member: int, why: str) -> Out:
        return self._without_all([member], why)

    def _without_all(self, members: list[int], why: str) -> Out:
        for member in members:
            role = self._role_name(member)
            self._note("lost", batch=self._done_batches(), members=(member,), why=f"{role}: {why}")
        concerned = self.stage in (PREPARING, RUNNING) or (self.stage == SHARING and self.upload is None)
        if not concerned or not set(members) & set(self.assignment):
            return []
        return self._again()

    def _role_name(self, member: int) -> str:
        if member not in self.assignment:
            return "dummy"
        return "dominator" if member == self.assignment[0] else f"follower {self.assignment.index(member)}"

    def _note(self, what: str, **more: Any) -> None:
        self.events.append(Event(what=what, turn=max(self.turn, 0), **more))
