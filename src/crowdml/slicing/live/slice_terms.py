"""What both machines of a group read from the signed task, and the numbers that go to the server in clear."""

from __future__ import annotations

import struct
from typing import Literal

import numpy as np
import numpy.typing as npt

from crowdml.core import record
from crowdml.core.errors import MalformedMessage
from crowdml.privacy.sanitisers.first_sums import FirstCut
from crowdml.slicing.live.slice_frames import HEADER_BYTES, plain_header
from crowdml.slicing.live.slice_plan import SlicePlan
from crowdml.slicing.piece_state import PieceState
from crowdml.slicing.stages import Indices

Floats = npt.NDArray[np.float32]
_COUNT = struct.Struct("<I")


@record
class SliceTerms:
    """What a group has agreed on.

    Attributes:
        task_hash: Hash of the signed task.
        plan: Who keeps what.
        batch: Rows in a step.
        rate: Learning rate of the first pass.
        decay: Factor on the rate from each pass to the next.
        theta: Share of its weights that each owner uploads after a pass.
        tau: A group takes over a number that more than this share of the window's uploads contains.
        passes: Passes of a group.
        dummies: Members that stand by.
        named: Whether peers see signed cards, and pin identities.
        shuffle: Whether all pieces are dealt anew in every turn, or as few as possible.
        cut_every: Batches between two cuts of a turn; 0: as the server finds from the group's pace.
        cut: Bound and noise of what crosses the first cut; None where sums are sent as they are.
    """

    task_hash: str
    plan: SlicePlan
    batch: int
    rate: float
    decay: float = 1.0
    theta: float = 0.5
    tau: float = 0.5
    passes: int
    dummies: int = 0
    named: bool = True
    shuffle: Literal["all", "least"] = "all"
    cut_every: int = 0
    cut: FirstCut | None = None

    @property
    def size(self) -> int:
        """Members of a group."""
        return 1 + self.plan.followers + self.dummies

    def batches(self, rows: int) -> int:
        """Return how many batches so many rows make."""
        return -(-rows // self.batch)


@record
class SharedNumbers:
    """Some numbers of the net, by their places among all.

    Attributes:
        numbers: Places, ascending.
        values: What stands there.
    """

    numbers: Indices
    values: Floats

    @staticmethod
    def every(values: Floats) -> SharedNumbers:
        """Take all numbers of a net."""
        return SharedNumbers(numbers=np.arange(len(values)), values=values)

    @staticmethod
    def none() -> SharedNumbers:
        """Take none."""
        return SharedNumbers(numbers=np.zeros(0, np.int64), values=np.zeros(0, np.float32))

    @staticmethod
    def together(parts: list[SharedNumbers]) -> SharedNumbers:
        """Put the numbers of several owners together."""
        # A number with several owners has the same value with each of them.
        numbers, first = np.unique(np.concatenate([part.numbers for part in parts]), return_index=True)
        return SharedNumbers(numbers=numbers, values=np.concatenate([part.values for part in parts])[first])

    def within(self, places: Indices) -> SharedNumbers:
        """Take those among some places."""
        kept = np.isin(self.numbers, places)
        return SharedNumbers(numbers=self.numbers[kept], values=self.values[kept])

    def write(self) -> bytes:
        """Write count, places and values."""
        return (
            _COUNT.pack(len(self.numbers)) + self.numbers.astype("<u4").tobytes() + self.values.astype("<f4").tobytes()
        )

    @staticmethod
    def read(body: bytes | memoryview, allowed: Indices) -> SharedNumbers:
        """Read numbers whose places are among those allowed; each once, ascending, finite."""
        if len(body) < _COUNT.size or len(body) != _COUNT.size + 8 * _COUNT.unpack_from(body)[0]:
            raise MalformedMessage(f"{len(body)} bytes are not the numbers that they say they are")
        (count,) = _COUNT.unpack_from(body)
        numbers = np.frombuffer(body, "<u4", count, _COUNT.size).astype(np.int64)
        values = np.frombuffer(body, "<f4", count, _COUNT.size + 4 * count).astype(np.float32)
        if not np.isin(numbers, allowed).all() or not (np.diff(numbers) > 0).all():
            raise MalformedMessage("numbers of another piece, or twice the same")
        if not np.isfinite(values).all():
            raise MalformedMessage("numbers that are not finite")
        return SharedNumbers(numbers=numbers, values=values)


def most_important(plan: SlicePlan, owner: int, state: PieceState, theta: float) -> SharedNumbers:
    """Choose what an owner uploads: the share θ of its weights that matters most, and all that belongs to a neuron."""
    weights, always = plan.uploaded[owner]
    importance = state.importance[np.searchsorted(plan.weights[owner], weights)]
    count = round(theta * len(weights))
    first = len(weights) - count
    most = weights[np.argpartition(importance, first)[first:]] if count else weights[:0]
    chosen = np.concatenate([always, most])
    chosen = chosen[np.argsort(plan.places[owner][chosen])]
    return SharedNumbers(numbers=plan.places[owner][chosen], values=state.numbers[chosen].astype(np.float32))


def clear_frame(
    kind: int, group: int, fence: tuple[int, int], members: tuple[int, int], owner: int, body: bytes
) -> bytes:
    """Write a frame between a member and the server; its body is in clear."""
    return plain_header(kind, group, fence, members, owner).pack() + body


def body_of(frame: bytes) -> memoryview:
    """Return what follows a frame's header."""
    return memoryview(frame)[HEADER_BYTES:]
