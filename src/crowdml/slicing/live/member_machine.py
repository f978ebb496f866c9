"""The machine of a member: it takes what comes through the relay, and returns what goes back. It knows no network.

    idle ── prepare ─► preparing ── piece, download ─► ready ── go ─► running ── prepare ─► …

Dominator, follower and dummy are roles that `prepare` gives. Whatever belongs to another attempt is dropped. Batches
are synchronous: all pieces after batch b are a consistent cut, at which every owner leaves a sealed copy of its piece
with the server. A loss takes everybody back to the last cut, from which the same batches give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crowdml.core import Array
from crowdml.core.errors import MalformedMessage, NotAuthorised
from crowdml.core.keys import SigningKey
from crowdml.core.ops import Tree
from crowdml.slicing.cost_graph import DOMINATOR
from crowdml.slicing.live import controls as say
from crowdml.slicing.live import slice_frames as frames
from crowdml.slicing.live.deposits import open_deposit, seal_deposit
from crowdml.slicing.live.kept_pieces import HandedOver, Kept, KeptPieces
from crowdml.slicing.live.member_cards import Channels, MemberKeys, context_of
from crowdml.slicing.live.member_guard import MemberGuard
from crowdml.slicing.live.slice_frames import Header, read_header
from crowdml.slicing.live.slice_terms import Floats, SharedNumbers, SliceTerms, body_of, clear_frame, most_important
from crowdml.slicing.live.turn_frames import KINDS, TurnFrames
from crowdml.slicing.piece_messages import Told
from crowdml.slicing.piece_owner import PieceOwner
from crowdml.slicing.piece_state import Leaf, PieceState, length
from crowdml.slicing.stages import Indices

IDLE, PREPARING, READY, RUNNING = "idle", "preparing", "ready", "running"
ACCEPTED: dict[str, tuple[str, ...]] = {
    IDLE: ("welcome", "prepare", "cut", "keep", "stop", "ask"),
    PREPARING: ("prepare", "cut", "piece", "download", "keep", "stop", "ask"),
    READY: ("prepare", "cut", "go", "share", "keep", "stop", "ask"),
    RUNNING: ("prepare", "cut", "forward", "backward", "tied", "keep", "stop", "ask"),
}
"""What a member takes in each stage; everything else is dropped."""

Out = list[say.OfMember | bytes]
Order = Callable[[int, int], Indices]
"""`order(turn, rows)`: in which order a dominator's rows go in; the same whenever it is asked."""
Released = Callable[[Callable[[Array], Array]], tuple[Array, Array]]
"""`released(sums)`: what is sent of all rows in place of their sums, a column each, and what stands for their labels.
`sums(rows)` forms a column for each of some rows. The same numbers come back whenever it is asked, charged before."""


class Member:
    """One member of a group.

    Args:
        terms: What the group has agreed on.
        rows: The device's rows, as the net sees them.
        labels: Their labels.
        order: In which order they go in.
        identity: The device's key of this task, where members are named.
        entropy: `entropy(count)`: random bytes, such as `os.urandom`.
        released: What is sent of rows, where noise on the first cut was agreed on.

    Attributes:
        stage: Where in the table this member stands.
        role: Its piece; None for a dummy.
        reason: Why it was stopped; empty before.
        model: The group's model, once the server has handed all pieces over.
        batches: Batches that this member has finished, replays as well.
        guard: What it lets a server do, and who saw sums of its rows.
    """

    def __init__(
        self,
        terms: SliceTerms,
        rows: Array,
        labels: Array,
        order: Order,
        identity: SigningKey | None,
        entropy: Callable[[int], bytes],
        released: Released | None = None,
    ) -> None:
        if (released is None) != (terms.cut is None):
            raise ValueError("noise on the first cut, and what is released with it, belong together")
        self._released, self._sent = released, (np.zeros((0, 0), np.float32), labels)
        self._terms, self._rows, self._labels, self._order, self._entropy = terms, rows, labels, order, entropy
        self._keys = MemberKeys(terms.task_hash, entropy(32), identity if terms.named else None)
        self.stage, self.role, self.reason, self.again = IDLE, None, "", False
        self.model: Tree | None = None
        self.guard = MemberGuard(terms)
        self.batches = 0
        self._group = self._number = 0
        self._now = (0, -1)
        self._prepared: say.Prepare | None = None
        self._worker: PieceOwner | None = None
        self._kept = KeptPieces()
        self._handed_over: HandedOver | None = None

    role: int | None

    def hello(self) -> Out:
        """Introduce oneself, and show the last deposits again: the server may have lost them."""
        shown = self._kept.shown()
        return [say.Hello(card=say.CardText.of(self._keys.card), deposits=len(shown)), *shown]

    def handle(self, message: say.OfServer | bytes) -> Out:
        """Take a message, and return those that follow.

        Raises:
            NotAuthorised: The server shows a group that this device must not speak to.
            MalformedMessage: The server said something that cannot be.
        """
        if isinstance(message, bytes):
            return self._frame(message)
        if message.kind not in ACCEPTED[self.stage]:
            return []
        found: Out = getattr(self, f"_on_{message.kind}")(message)
        return found

    def late(self) -> Out:
        """Tell the server whom this member waits for: a driver's timer has run out."""
        if self.stage != RUNNING or self._worker is None:
            return []
        return self._on_ask(say.Ask(turn=self._now[0], attempt=self._now[1]))

    # Control messages, by their names.

    def _on_welcome(self, message: say.Welcome) -> Out:
        """Enter a group; one that was in another forgets everything of it, but not who saw sums of its rows."""
        if self._group not in (0, message.group):
            self.guard.change_group()
            self._keys.forget_peers()
            self._now, self._kept = (0, -1), KeptPieces()
        self._group, self._number = message.group, message.number
        return []

    def _on_prepare(self, message: say.Prepare) -> Out:
        """Drop what is newer than the cut, meet the group, and get the own piece ready."""
        cards, assignment = self.guard.admit(message, self._group, self._now[1]), message.assignment
        self._keys.meet(cards, self._number)
        self.role = assignment.index(self._number) - 1 if self._number in assignment else None
        self.guard.begin(message, cards, self.role)
        self._kept.go_back(message.cut)
        self._now, self._prepared = (message.turn, message.attempt), message
        self._cards, self._worker = cards, None
        self.stage = IDLE if self.role is None else PREPARING
        self._loaded: PieceState | None = None
        if self.role is None:
            return []
        context = context_of((self._terms.task_hash.encode(), message.context()))
        channels = Channels(self._keys, self._number, cards, context)
        fence, me = (self._group, *self._now), (self._number, self.role)
        self._frames = TurnFrames(self._terms, channels, assignment, fence, me)
        if message.cut is None:
            return self._load(
                PieceState(numbers=np.zeros(length(self._layout), np.float32), importance=self._unmoved())
            )
        kept = self._kept.find(self.role, message.cut.place)
        return [] if kept is None else self._load(PieceState.from_bytes(kept, self._layout))

    def _on_go(self, message: say.Go) -> Out:
        if (message.turn, message.attempt) != self._now or self._worker is None:
            return []
        self.stage, self._turn, self._frames.batches = RUNNING, message, message.batches
        if self.role == DOMINATOR and self._released is not None and message.batches:
            # Before anything of a row is sent: whoever gives them has kept and charged them.
            self._sent = self._released(self._worker.first_sums)
        out: Out = [self._deposit()] if message.at_once else []
        return out + (self._next_batch() if self.role == DOMINATOR else [])

    def _on_cut(self, message: say.CutHolds) -> Out:
        self.guard.note_cut(message.cut)
        self._kept.note_cut(message.cut)
        return []

    def _on_share(self, message: say.Share) -> Out:
        """Upload of the own weights those that matter most, and all that belongs to a neuron."""
        worker, plan = self._worker, self._terms.plan
        if (message.turn, message.attempt) != self._now or worker is None or self.role is None:
            return []
        shared = most_important(plan, self.role, worker.state, self._terms.theta)
        ends = (self._number, frames.SERVER)
        return [clear_frame(frames.UPLOAD, self._group, self._now, ends, self.role, shared.write())]

    def _on_ask(self, message: say.Ask) -> Out:
        if (message.turn, message.attempt) != self._now or self.stage != RUNNING or self._worker is None:
            return []
        waits = self._frames.waits_for(self._worker)
        return [say.Stalled(turn=self._now[0], attempt=self._now[1], waits_for=waits)]

    def _on_keep(self, message: say.Keep) -> Out:
        self._handed_over = HandedOver(message, self._keys, self._kept, self.guard)
        return []

    def _on_stop(self, message: say.Stop) -> Out:
        self.stage, self.reason, self.again, self._worker = IDLE, message.reason, message.again, None
        return []

    # Frames.

    def _frame(self, frame: bytes) -> Out:
        header = read_header(frame)
        if header.kind == frames.DEPOSIT and self._handed_over:
            self._handed_over.take(header, frame)
            return []
        if header.kind == frames.DEPOSIT:
            return self._take_piece(header, frame)
        if header.kind == frames.DOWNLOAD:
            return self._take_download(header, frame)
        kind = KINDS.get(header.kind, "")
        if header.fence != self._now or header.group != self._group or kind not in ACCEPTED[self.stage]:
            return []
        try:
            return self._hear(header, frame)
        except MalformedMessage as error:
            self.stage, self._worker = IDLE, None
            turn, attempt = self._now
            return [say.Complain(turn=turn, attempt=attempt, about=header.sender, why=str(error)[:300])]

    def _hear(self, header: Header, frame: bytes) -> Out:
        """Take numbers of another owner, and go on with the batch."""
        worker = self._worker
        assert worker is not None  # noqa: S101  a member that runs has one
        return self._carry(worker.batches, worker.hear(self._frames.read(header, frame, worker)))

    def _next_batch(self) -> Out:
        """Let the dominator's next batch in."""
        worker, terms = self._worker, self._terms
        assert worker is not None  # noqa: S101  a dominator that runs has one
        if worker.batches >= self._turn.batches:
            return []
        order = self._order(self._now[0], len(self._labels))
        chosen = order[worker.batches * terms.batch : (worker.batches + 1) * terms.batch]
        self._frames.note_rows(worker.batches, len(chosen))
        if self._released is None:
            return self._carry(worker.batches, worker.begin(self._rows[chosen], self._labels[chosen]))
        columns, labels = self._sent
        told = worker.begin(self._rows[chosen], labels[chosen], np.ascontiguousarray(columns[:, chosen]))
        return self._carry(worker.batches, told)

    def _carry(self, before: int, found: list[Told]) -> Out:
        """Seal what goes to others; leave a deposit where a batch was finished, if it is time for one."""
        worker, out = self._worker, list[say.OfMember | bytes]()
        assert worker is not None  # noqa: S101  whoever carries has a piece
        for told in found:
            if self.role == DOMINATOR and (told.kind, told.stage) == ("forward", 0):
                self.guard.note_sent(self._cards[self._frames.receiver(told)])
            out.append(self._frames.write(told))
        if worker.batches == before:
            return out
        self.batches += 1
        self._frames.finish(before)
        if worker.batches % self._turn.every == 0 or worker.batches == self._turn.batches:
            out.append(self._deposit())
        return out + self._next_batch() if self.role == DOMINATOR else out

    def _deposit(self) -> bytes:
        """Leave a sealed copy of the own piece with the server."""
        worker = self._worker
        assert worker is not None and self.role is not None  # noqa: S101  whoever deposits has a piece
        raw = worker.state.to_bytes()
        last = worker.batches == self._turn.batches
        header = self._frames.header(frames.DEPOSIT, worker.batches)._replace(micro=int(last))
        others = [card.fresh for number, card in self._cards.items() if number != self._number]
        frame = seal_deposit(self._keys, header, others, raw, self._entropy(48))
        self._kept.keep(self.role, (self._now[0], worker.batches), Kept(self._now[1], raw, frame))
        return frame

    def _take_piece(self, header: Header, frame: bytes) -> Out:
        """Take a piece over, and keep it as one's own snapshot."""
        prepared = self._prepared
        if self.stage != PREPARING or self._loaded or prepared is None or prepared.cut is None or self.role is None:
            return []
        cut = prepared.cut
        if (header.turn, header.attempt, header.batch, header.piece) != (
            cut.turn,
            cut.attempt,
            cut.batch,
            self.role + 1,
        ):
            return []
        try:
            sealer = self.guard.sealer(cut.attempt, self.role)
            if sealer is None:
                raise MalformedMessage("this device was not told who had the piece")
            raw = open_deposit(self._keys, frame, sealer)
        except (MalformedMessage, NotAuthorised) as error:
            turn, attempt = self._now
            return [say.Complain(turn=turn, attempt=attempt, about=header.sender, why=str(error)[:300])]
        self._kept.keep(self.role, cut.place, Kept(cut.attempt, raw, frame))
        return self._load(PieceState.from_bytes(raw, self._layout))

    def _take_download(self, header: Header, frame: bytes) -> Out:
        """Take over what other groups have found."""
        plan = self._terms.plan
        if self._handed_over:
            everything = SharedNumbers.read(body_of(frame), np.arange(plan.size))
            self.model, self._handed_over = self._handed_over.model(plan, everything), None
            return []
        if header.fence != self._now or self.stage != PREPARING or self._loaded is None or self.role is None:
            return []
        places = plan.places[self.role]
        shared, numbers = SharedNumbers.read(body_of(frame), places), np.array(self._loaded.numbers, np.float32)
        found = np.isin(places, shared.numbers)
        numbers[found] = shared.values[np.searchsorted(shared.numbers, places[found])]
        return self._install(PieceState(numbers=numbers, importance=self._unmoved()))

    def _load(self, snapshot: PieceState) -> Out:
        """Take the piece at the cut; where a pass begins, the download follows."""
        self._loaded = snapshot
        assert self._prepared is not None  # noqa: S101  whoever loads was told what
        return [] if self._prepared.download else self._install(snapshot)

    def _install(self, snapshot: PieceState) -> Out:
        prepared, terms = self._prepared, self._terms
        assert prepared is not None and self.role is not None  # noqa: S101  whoever installs has a role
        rate = terms.rate * terms.decay**prepared.passes
        begun = prepared.cut.batch if prepared.cut and prepared.cut.turn == prepared.turn else 0
        state = PieceState(numbers=snapshot.numbers, importance=snapshot.importance, batches=begun)
        self._worker = PieceOwner(terms.plan.arithmetic, self.role, state, rate)
        self.stage = READY
        batches = terms.batches(len(self._labels)) if self.role == DOMINATOR else 0
        return [say.Ready(turn=self._now[0], attempt=self._now[1], batches=batches)]

    @property
    def _layout(self) -> tuple[Leaf, ...]:
        assert self.role is not None  # noqa: S101  asked for one's own piece
        return self._terms.plan.layouts[self.role]

    def _unmoved(self) -> Floats:
        """Σ|gradient| where a pass begins."""
        return np.zeros(length(leaf for leaf in self._layout if leaf.name == "w"), np.float32)
