"""upload-window: the server of groups that share weights. It keeps the last ω uploads and averages what they hold.

After a pass a group uploads some of its numbers; `Upload` is that check-in. A group takes over the numbers of which the
window has more than ω·τ values. What nobody has uploaded stays at its first value. The table beside it (`Seat`) says of
every device in which group it is, and how many passes of that group are stored.

The numbers are those of `slicing.sharing`, here as a state that a store can keep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from crowdml.algorithms.contract import DevicePart, ServerPart
from crowdml.core import Batch, Broadcast, CheckIn, Coins, Release, Report, record, tree_record
from crowdml.core.trees import Array, Float, Integer, Tree


@tree_record
class Upload:
    """Some numbers of a net, as one vector over all of them.

    Attributes:
        values: What was uploaded; zero elsewhere.
        held: 1 where something was.
    """

    values: Float[Array, " size"]
    held: Integer[Array, " size"]


@tree_record
class Seat:
    """Where a device sits; -1 where it has no seat.

    Attributes:
        group: Number of its group.
        number: Its number there, from 1.
        passes: Passes of the group whose uploads are stored.
        turn: Turn in which the last of them ended.
        batch: After so many batches of that turn.
    """

    group: Integer[Array, ""]
    number: Integer[Array, ""]
    passes: Integer[Array, ""]
    turn: Integer[Array, ""]
    batch: Integer[Array, ""]

    @staticmethod
    def of(group: int = -1, number: int = -1, passes: int = 0, turn: int = -1, batch: int = -1) -> Seat:
        """Make a seat of plain numbers."""
        return Seat(
            group=np.int64(group),
            number=np.int64(number),
            passes=np.int64(passes),
            turn=np.int64(turn),
            batch=np.int64(batch),
        )


@tree_record
class WindowState:
    """What the server keeps.

    Attributes:
        parameters: What everybody may know of the net: averages of the window, first values elsewhere.
        values: The last ω values of each number.
        held: Which of them there are.
        following: Where the next value of each number goes.
        incarnation: How often a server has started with this task: no attempt's number comes twice.
    """

    parameters: Float[Array, " size"]
    values: Float[Array, "omega size"]
    held: Integer[Array, "omega size"]
    following: Integer[Array, " size"]
    incarnation: Integer[Array, ""]

    def taken_over(self, tau: float) -> tuple[Integer[Array, " some"], Float[Array, " some"]]:
        """Return the numbers of which the window has more than ω·τ values, and their averages."""
        count = self.held.sum(axis=0)
        numbers = np.nonzero(count > len(self.held) * tau)[0]
        return numbers, self._averages(numbers, count)

    def _averages(self, numbers: Integer[Array, " some"], count: Integer[Array, " size"]) -> Float[Array, " some"]:
        sums = self.values[:, numbers].sum(axis=0, dtype=np.float64)
        made: Float[Array, " some"] = (sums / count[numbers]).astype(np.float32)
        return made


@record
class UploadWindow(ServerPart):
    """Averages the uploads of groups.

    Attributes:
        first: `first(coins)`: first parameters as one vector.
        size: How many numbers there are.
        omega: Size of the window.
        window: Whether it holds the last uploads, or the last values of each number.
    """

    first: Callable[[Coins], Array]
    size: int
    omega: int
    window: Literal["uploads", "weights"]

    def init(self, coins: Coins) -> WindowState:
        """Begin with first parameters and an empty window."""
        return WindowState(
            parameters=np.asarray(self.first(coins), np.float32),
            values=np.zeros((self.omega, self.size), np.float32),
            held=np.zeros((self.omega, self.size), np.int32),
            following=np.zeros(self.size, np.int32),
            incarnation=np.int64(0),
        )

    def row(self) -> Seat:
        """Begin without a seat."""
        return Seat.of()

    def check_out(self, server: WindowState) -> Broadcast:
        """Show what everybody may know."""
        return Broadcast(parameters=server.parameters)

    def absorb(
        self, server: WindowState, row: Tree, check_in: CheckIn, staleness: Integer[Array, "*members"]
    ) -> tuple[WindowState, Tree]:
        """Take an upload; the oldest values leave the window where it is full."""
        upload = check_in.update
        held = np.asarray(upload.held) > 0
        written = np.nonzero(held | (self.window == "uploads"))[0]
        slot = server.following[written]
        values, kept, following = np.array(server.values), np.array(server.held), np.array(server.following)
        values[slot, written] = np.where(held, upload.values, 0)[written]
        kept[slot, written] = held[written]
        following[written] = (slot + 1) % self.omega
        made = WindowState(
            parameters=server.parameters,
            values=values,
            held=kept,
            following=following,
            incarnation=server.incarnation,
        )
        return made, row

    def commit(self, server: WindowState) -> tuple[WindowState, dict[str, Array]]:
        """Work the averages out."""
        numbers, averages = server.taken_over(0.0)
        parameters = np.array(server.parameters)
        parameters[numbers] = averages
        made = WindowState(
            parameters=parameters,
            values=server.values,
            held=server.held,
            following=server.following,
            incarnation=server.incarnation,
        )
        return made, {}

    def report(self, server: WindowState) -> Report:
        """Show the averages."""
        return Report(parameters=server.parameters)


@record
class NoUpload(DevicePart):
    """What a device would upload if it had nothing to upload: devices of a group share through the relay.

    Attributes:
        size: How many numbers the net has.
    """

    size: int

    def step(self, broadcast: Broadcast, work: Tree, batch: Batch, coins: Coins) -> tuple[Release, Tree]:
        """Upload nothing: drivers learn the shape of an upload from it."""
        return Release(update=self.nothing(), rows=np.int32(0)), work

    def nothing(self) -> Upload:
        """Return an upload without numbers."""
        return Upload(values=np.zeros(self.size, np.float32), held=np.zeros(self.size, np.int32))
