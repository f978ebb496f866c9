"""What owners tell each other within an attempt, as sealed frames: checked before it is opened, and counted.

Everything that a frame must be is known before it comes: who has which piece, how many rows its batch has, how long its
numbers are. So a length is compared before anything is decrypted, and whoever a batch waits for can be named.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from crowdml.core.errors import MalformedMessage
from crowdml.slicing.live import slice_frames as frames
from crowdml.slicing.live.member_cards import Channels
from crowdml.slicing.live.slice_frames import Header, plain_header
from crowdml.slicing.live.slice_terms import SliceTerms
from crowdml.slicing.number_formats import NUMBERS, NumberFormat
from crowdml.slicing.piece_messages import Kind, Told
from crowdml.slicing.piece_owner import PieceOwner

KINDS: dict[int, Kind] = {frames.FORWARD: "forward", frames.BACKWARD: "backward", frames.TIED: "tied"}
_CODES = {name: code for code, name in KINDS.items()}


class TurnFrames:
    """Frames of one attempt, as one owner sends and takes them.

    Args:
        terms: What the group has agreed on.
        channels: Keys of the attempt.
        assignment: Who has which piece.
        fence: Group, turn and attempt.
        me: The member's number and its piece.

    Attributes:
        batches: How many batches the turn has; told with `go`.
    """

    def __init__(
        self,
        terms: SliceTerms,
        channels: Channels,
        assignment: tuple[int, ...],
        fence: tuple[int, int, int],
        me: tuple[int, int],
    ) -> None:
        self._terms, self._channels, self._assignment, self._fence = terms, channels, assignment, fence
        self._number, self._piece = me
        self._came: defaultdict[int, Counter[int]] = defaultdict(Counter)
        self._rows_of: dict[int, int] = {}
        self.batches = 0

    def header(self, kind: int, batch: int) -> Header:
        """Return the header of a frame for the server."""
        group, *fence = self._fence
        ends = (self._number, frames.SERVER)
        return plain_header(kind, group, (fence[0], fence[1]), ends, self._piece)._replace(batch=batch)

    def note_rows(self, batch: int, rows: int) -> None:
        """Remember how many rows a batch has, so that all of its frames have as many."""
        self._rows_of[batch] = rows

    def finish(self, batch: int) -> None:
        """Forget a batch."""
        self._came.pop(batch, None)
        self._rows_of.pop(batch, None)

    def read(self, header: Header, frame: bytes, worker: PieceOwner) -> Told:
        """Open what another owner says; raise `MalformedMessage` for what it cannot say."""
        piece, kind = header.piece - 1, KINDS[header.kind]
        if header.receiver != self._number or self._assignment[piece + 1 : piece + 2] != (header.sender,):
            raise MalformedMessage(f"a frame of member {header.sender} that is not for this one, or not of its piece")
        plan, known = self._terms.plan, self._rows_of.get(header.batch, header.rows)
        if header.rows != known or header.rows > self._terms.batch or header.batch >= self.batches:
            raise MalformedMessage(f"a batch {header.batch} of {header.rows} rows")
        expected = plan.body_bytes(kind, header.stage, (piece, worker.owner), header.micro, header.rows)
        if expected is None or len(frame) != frames.HEADER_BYTES + expected + frames.TAG_BYTES:
            raise MalformedMessage(f"{kind} numbers of stage {header.stage} in {len(frame)} bytes")
        body = self._channels.open(header, frame)
        self.note_rows(header.batch, header.rows)
        written = self._written(kind)
        if header.numbers != written.code:
            raise MalformedMessage(f"numbers are written in the way {header.numbers}, not {written.code}")
        shape = worker.shape(kind, header.stage, header.micro, header.rows, piece)
        self._came[header.batch][piece] += 1
        return Told(
            kind=kind,
            stage=header.stage,
            batch=header.batch,
            micro=header.micro,
            rows=header.rows,
            sender=piece,
            receiver=worker.owner,
            numbers=written.decode(body, *shape),
        )

    def receiver(self, told: Told) -> int:
        """Return which member something is for."""
        return self._assignment[told.receiver + 1]

    def write(self, told: Told) -> bytes:
        """Seal what goes to another owner."""
        written = self._written(told.kind)
        header = self.header(_CODES[told.kind], told.batch)._replace(
            numbers=written.code,
            stage=told.stage,
            micro=told.micro,
            micros=len(self._terms.plan.arithmetic.sizes(told.rows)),
            rows=told.rows,
            receiver=self.receiver(told),
        )
        return self._channels.seal(header, written.encode(told.numbers))

    def waits_for(self, worker: PieceOwner) -> tuple[int, ...]:
        """Return the members of whom a batch still lacks something."""
        plan, batch = self._terms.plan, worker.batches
        micros = len(plan.arithmetic.sizes(self._rows_of.get(batch, 1)))
        missing = plan.expected(worker.owner, micros) - self._came[batch]
        return tuple(sorted(self._assignment[piece + 1] for piece in missing))

    def _written(self, kind: Kind) -> NumberFormat:
        """Sums may be short; gradients of filters that several owners share are added up, and stay exact."""
        return NUMBERS["float32"] if kind == "tied" else self._terms.plan.numbers
