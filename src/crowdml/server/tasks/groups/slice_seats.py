"""What the store keeps of groups whose members hold pieces of a net: who sits where, and what groups have uploaded.

Everything here runs in the task's writer. A group begins once its seats are stored, and goes on after a pass once its
upload is: so a restarted server finds the same groups, and no upload counts twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from crowdml.algorithms.server_parts.upload_window import Seat, Upload, WindowState
from crowdml.core import CheckIn, record
from crowdml.server.refusals import Answer
from crowdml.server.store import Store
from crowdml.server.tasks.mutable_task import MutableTask
from crowdml.server.tasks.task_writer import Writer
from crowdml.slicing.live.slice_terms import SharedNumbers

DONE = Answer(status=204)


@record
class Shared:
    """What everybody may know after something was stored.

    Attributes:
        first: All numbers of the net.
        download: Those that a group takes over.
    """

    first: SharedNumbers
    download: SharedNumbers


class SliceSeats:
    """Seats and uploads of one task.

    Args:
        writer: Serialises what changes the task.
        store: Where it is kept.
        tau: A group takes over a number that more than this share of the window contains.

    Attributes:
        incarnation: How often a server has started with this task.
        seats: The seat of every device that has one, by slot.
    """

    def __init__(self, writer: Writer, store: Store, tau: float) -> None:
        self._writer, self._store, self._tau = writer, store, tau
        self.incarnation = 0
        self.seats: dict[int, Seat] = {}

    async def begin(self) -> None:
        """Count this start of the server, before any attempt has a number."""

        def work(task: MutableTask) -> Answer:
            before, state = task.mark(), task.state
            server: WindowState = state.server
            state.server = replace(server, incarnation=np.int64(server.incarnation + 1))
            self._store.apply(task.since(before, []))
            self.incarnation = int(state.server.incarnation)
            self.seats = {slot: row for slot, row in state.rows.items() if int(row.group) >= 0}
            task.settle()
            return DONE

        await self._writer.submit(work)

    async def seat(self, seats: Mapping[int, Seat]) -> None:
        """Store where devices sit from now on; a seat in no group is none."""

        def work(task: MutableTask) -> Answer:
            before = task.mark()
            task.state.rows |= seats
            self._store.apply(task.since(before, [], seats))
            task.settle()
            return DONE

        await self._writer.submit(work)
        self.seats = {slot: seat for slot, seat in {**self.seats, **seats}.items() if int(seat.group) >= 0}

    async def shared(self) -> Shared:
        """Return what everybody may know now."""
        found: list[Shared] = []

        def work(task: MutableTask) -> Answer:
            found.append(self._shared(task))
            return DONE

        await self._writer.submit(work)
        return found[0]

    async def upload(self, upload: SharedNumbers, seats: Mapping[int, Seat]) -> Shared:
        """Fold an upload in, and store it with the seats of its group, which count the pass."""
        found: list[Shared] = []

        def work(task: MutableTask) -> Answer:
            before, state, part = task.mark(), task.state, task.live.server.last.server
            size = len(state.server.parameters)
            values, held = np.zeros(size, np.float32), np.zeros(size, np.int32)
            values[upload.numbers], held[upload.numbers] = upload.values, 1
            if len(upload.numbers):
                check_in = CheckIn(update=Upload(values=values, held=held), weight=np.int32(1))
                state.server, _ = part.absorb(state.server, part.row(), check_in, np.int32(0))
                state.server, _ = part.commit(state.server)
                state.version += 1
                state.check_ins += 1
            state.rows |= seats
            most = task.live.task.stop.max_versions
            if most is not None and state.version >= most:
                state.state, state.reason = "stopped", f"all {most} versions were made"
            self._store.apply(task.since(before, [], seats))
            task.settle()
            found.append(self._shared(task))
            return DONE

        await self._writer.submit(work)
        self.seats |= seats
        return found[0]

    def _shared(self, task: MutableTask) -> Shared:
        server: WindowState = task.state.server
        groups = {int(row.group) for row in task.state.rows.values() if int(row.group) >= 0}
        numbers, values = server.taken_over(self._tau)
        # A group that is alone has nobody to take anything over from.
        download = SharedNumbers(numbers=numbers, values=values) if len(groups) > 1 else SharedNumbers.none()
        return Shared(first=SharedNumbers.every(np.array(server.parameters)), download=download)
