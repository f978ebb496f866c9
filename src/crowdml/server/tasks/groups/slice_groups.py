"""Groups of one task whose members hold pieces of a net: the driver of their machines, without any socket.

Devices that connect wait until there are enough for a group. From then on the group's machine says what happens; here
are its clock, its members' queues and the way to the store. Frames between members pass unread: sender, fence and
length are looked at.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from crowdml.algorithms.server_parts.upload_window import Seat
from crowdml.core import CrowdError
from crowdml.core.errors import MalformedMessage
from crowdml.server.refusals import Refusal
from crowdml.server.store import Store
from crowdml.server.tasks.folding import require_open
from crowdml.server.tasks.groups.live_group import Line, LiveGroup, figures_of
from crowdml.server.tasks.groups.slice_seats import SliceSeats
from crowdml.server.tasks.running_task import RunningTask
from crowdml.server.tasks.task_writer import Writer
from crowdml.slicing.live import controls as say
from crowdml.slicing.live import slice_frames as frames
from crowdml.slicing.live.deposits import ChunkGatherer, deposit_bytes
from crowdml.slicing.live.group_machine import Group, Out
from crowdml.slicing.live.group_records import GATHERING, PAUSED, RUNNING, SHARING, WAITING, GroupStart
from crowdml.slicing.live.member_cards import Card
from crowdml.slicing.live.slice_frames import HEADER_BYTES, TAG_BYTES, read_header
from crowdml.slicing.live.slice_terms import SliceTerms

log = logging.getLogger("crowdml.server")
GRACE_S = 5.0
"""After a restart a group waits so long for its members to come back."""
LONG_GRACE_S = 60.0
"""And so long where those who came back have no whole cut: a member may be the only one that has its piece."""
ANSWER_S = 2.0
"""So long has an owner to say whom it waits for."""
WAIT_S = 3600.0
"""After so long at a cut without enough members, a pass begins again."""
MOST_LENGTHS = 10_000
"""So many kinds of frames are remembered: a member cannot fill the memory with others."""
REPLAY_S = 10.0
"""A cut is made after as many batches as take so long."""


class SliceGroups:
    """All groups of one task.

    Args:
        running: The task.
        writer: Serialises what changes it.
        store: Where it is kept.
        secret: Orders turns, and names members on pages.
    """

    def __init__(self, running: RunningTask, writer: Writer, store: Store, secret: bytes) -> None:
        assert running.live.sliced is not None  # noqa: S101  asked before
        self.running = running
        self.terms: SliceTerms = running.sliced_terms
        self._seats = SliceSeats(writer, store, self.terms.tau)
        self._secret = hashlib.sha256(b"crowdml groups\0" + secret + running.name.encode()).digest()
        self._groups: dict[int, LiveGroup] = {}
        self._room: dict[int, tuple[Line, Card]] = {}
        self._begun: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self._forming = asyncio.Lock()
        self._follows = False
        plan, terms = self.terms.plan, self.terms
        self._pieces = [deposit_bytes(plan, owner, terms.size) for owner in plan.owners]
        batch = plan.batch_bytes(terms.batch) + 60 * (len(plan.lines) + 1) * max(1, plan.arithmetic.micro_batches)
        # One batch is under way, and between turns all pieces and numbers may be.
        self.most_bytes = 2 * batch + sum(self._pieces) + 16 * plan.size + (1 << 20)
        self.largest = max(max(self._pieces), 8 * plan.size + 64, say.LARGEST_OF_MEMBER)

    async def join(self, line: Line, hello: say.Hello, deposits: list[bytes]) -> None:
        """Let a member in: to its group, or to those who wait for one."""
        card = hello.card.card()
        card.require(self.terms.task_hash, self.terms.named)
        if self.terms.named and card.identity != line.device.public_key:
            raise Refusal(422, "card", "the card shows another identity than this device joined with")
        for frame in deposits:
            if len(frame) not in self._pieces or read_header(frame).kind != frames.DEPOSIT:
                raise MalformedMessage(f"{len(frame)} bytes are no deposit of this task")
        loop = asyncio.get_running_loop()
        if not self._follows:
            self._follows = True
            self.running.when_moved(lambda: loop.call_soon_threadsafe(self.follow))
        if self._begun is None:
            self._begun = loop.create_task(self._seats.begin())
        await asyncio.shield(self._begun)
        slot = line.device.slot
        seat = self._seats.seats.get(slot)
        group = await self._group(int(seat.group)) if seat is not None else None
        # The task may have moved while the store was at work.
        require_open(self.running.snapshot.state, self.running.snapshot.reason)
        if seat is not None and group is not None:
            self._enter(group, int(seat.number), line, card, deposits)
            return
        before = self._room.pop(slot, None)
        if before is not None:
            before[0].close("the device has connected again")
        self._room[slot] = line, card
        async with self._forming:
            await self._form()

    def leave(self, line: Line, why: str) -> None:
        """A connection has ended."""
        slot = line.device.slot
        if self._room.get(slot, (None,))[0] is line:
            del self._room[slot]
        seat = self._seats.seats.get(slot)
        group = self._groups.get(int(seat.group)) if seat is not None else None
        if seat is None or group is None or group.lines.get(int(seat.number)) is not line:
            return
        del group.lines[int(seat.number)]
        self._deliver(group, group.machine.left(int(seat.number), why))

    def follow(self) -> None:
        """Do as the task does: groups rest while it is paused, and end with it."""
        now = self.running.snapshot
        if now.state == "open":
            return
        over, reason = now.state == "stopped", now.reason or f"the task is {now.state}"
        for line, _ in self._room.values():
            line.put(say.write_control(say.Stop(reason=reason[:300], again=not over)))
            line.close(reason)
        self._room.clear()
        for group in self._groups.values():
            self._deliver(group, group.machine.stop(reason) if over else group.machine.pause())
        # Whoever comes after a pause meets another machine, whose attempts have numbers of their own.
        self._begun = None

    def take(self, line: Line, message: str | bytes) -> None:
        """Take a message of a member; raise for what it must not send."""
        group, number = line.group, line.number
        if group is None or group.lines.get(number) is not line:
            raise MalformedMessage("this member has no group yet")
        machine = group.machine
        if isinstance(message, str):
            self._deliver(group, machine.handle(number, say.read_of_member(message)))
            return
        header = read_header(message)
        if header.sender != number or header.group != machine.number:
            raise MalformedMessage(f"a frame of member {header.sender} of group {header.group}, sent by another")
        if header.turn != machine.turn or header.attempt != machine.attempt:
            group.counted["frames of another attempt"] += 1
            return
        if header.kind == frames.CHUNK:
            line.chunks = line.chunks or ChunkGatherer(max(self._pieces))
            whole = line.chunks.take(header, message)
            self._deliver(group, machine.handle(number, whole) if whole is not None else [])
            return
        if header.kind not in frames.BETWEEN_MEMBERS:
            self._deliver(group, machine.handle(number, message))
            return
        receiver = group.lines.get(header.receiver)
        if machine.stage != RUNNING or receiver is None:
            return
        self._require_length(group, header, len(message))
        group.frames += 1
        group.bytes += len(message)
        if header.piece == 0 and (*header.fence, header.batch) != group.last_batch:
            self._note_batch(group, header)
        receiver.put(message)

    def figures(self) -> list[dict[str, Any]]:
        """Say of every group how it stands; nothing in it is private."""
        return [figures_of(group, self.terms, self.pseudonym) for _, group in sorted(self._groups.items())]

    @property
    def waiting_room(self) -> int:
        """Devices that wait for a group."""
        return len(self._room)

    def close(self) -> None:
        """Let go of timers."""
        for group in self._groups.values():
            if group.timer is not None:
                group.timer.cancel()

    # Groups.

    async def _form(self) -> None:
        """Make a group of those who wait, as soon as they are enough; it begins once its seats are stored."""
        size = self.terms.size
        while len(self._room) >= size:
            slots = sorted(self._room, key=self._rank)[:size]
            number = max((int(seat.group) for seat in self._seats.seats.values()), default=0) + 1
            members = {slot: at for at, slot in enumerate(slots, start=1)}
            await self._seats.seat({slot: Seat.of(group=number, number=at) for slot, at in members.items()})
            group = await self._group(number)
            for slot, at in members.items():
                found = self._room.pop(slot, None)
                if found is not None:
                    self._enter(group, at, *found, [])

    async def _group(self, number: int) -> LiveGroup:
        """Return a group; after a restart or a pause its machine begins anew, from what its members show."""
        if self._awake(number) is None:
            shared = await self._seats.shared()
        found = self._awake(number)
        if found is not None:
            return found
        members = {slot: seat for slot, seat in self._seats.seats.items() if int(seat.group) == number}
        any_seat = next(iter(members.values()))
        ended = (int(any_seat.turn), int(any_seat.batch)) if int(any_seat.turn) >= 0 else None
        start = GroupStart(
            number=number,
            size=self.terms.size,
            secret=self._secret,
            incarnation=self._seats.incarnation,
            passes=int(any_seat.passes),
            first=shared.first,
            download=shared.download,
            ended=ended,
        )
        machine, known = Group(self.terms, start), self._groups.get(number)
        if known is not None:
            known.machine = machine
            return known
        made = LiveGroup(machine, {int(seat.number): slot for slot, seat in members.items()})
        self._groups[number] = made
        return made

    def _awake(self, number: int) -> LiveGroup | None:
        found = self._groups.get(number)
        return None if found is None or found.machine.stage == PAUSED else found

    def _enter(self, group: LiveGroup, number: int, line: Line, card: Card, deposits: list[bytes]) -> None:
        before = group.lines.pop(number, None)
        if before is not None:
            before.close("the device has connected again")
        group.lines[number] = line
        line.group, line.number = group, number
        self._deliver(group, group.machine.joined(number, card, deposits))

    def _deliver(self, group: LiveGroup, out: Out) -> None:
        """Queue what the machine says, all of it before anything else happens; then look at clock and store."""
        machine = group.machine
        for number, message in out:
            line = group.lines.get(number)
            if line is None:
                continue
            line.put(message if isinstance(message, bytes) else say.write_control(message))
            if isinstance(message, say.Stop):
                line.close(message.reason)
        for event in machine.events:
            group.counted[event.what] += 1
            if event.what != "piece":
                group.events.append((time.time(), event))
            if event.what == "pass again":
                group.exact_since = time.time()
        machine.events = []
        if machine.numbers.upload is not None and machine.stage == SHARING:
            self._begin(self._store_upload(group))
        if machine.attempts.exhausted and not group.counted["renewing"]:
            group.counted["renewing"] = 1
            self._begin(self._renew(group))
        self._set_timer(group)

    async def _renew(self, group: LiveGroup) -> None:
        """Take new numbers for attempts, before the old ones are used up."""
        await self._seats.begin()
        group.machine.attempts.renew(self._seats.incarnation)
        group.counted["renewing"] = 0

    async def _store_upload(self, group: LiveGroup) -> None:
        """Store what a group uploads; only then it goes on."""
        machine = group.machine
        upload = machine.numbers.upload
        if upload is None or group.counted["storing"]:
            return
        group.counted["storing"] += 1
        try:
            place = machine.cut.place if machine.cut is not None else (-1, -1)
            seats = {
                slot: Seat.of(machine.number, number, machine.passes + 1, *place)
                for number, slot in group.slots.items()
                if slot in self.running.devices
            }
            shared = await self._seats.upload(upload, seats)
        finally:
            group.counted["storing"] = 0
        self._deliver(group, machine.shared(shared.first, shared.download))

    def _set_timer(self, group: LiveGroup) -> None:
        """Let the machine know when time has passed, in the stages that wait for it."""
        machine = group.machine
        waits = {GATHERING: GRACE_S, WAITING: WAIT_S}.get(machine.stage, 0.0)
        name = machine.stage if waits else ""
        if machine.stage == GATHERING and machine.patient:
            name, waits = f"{GATHERING} on", LONG_GRACE_S
        if machine.stage == RUNNING and machine.asking:
            name, waits = f"asking {machine.attempt}", ANSWER_S
        if name == group.timer_for:
            return
        if group.timer is not None:
            group.timer.cancel()
        group.timer, group.timer_for = None, name
        if name:
            group.timer = asyncio.get_running_loop().call_later(waits, self._time_is_up, group, name)

    async def _dissolve(self, group: LiveGroup) -> None:
        """Give a group up that has had too few members for long: those who are there are dealt into other groups."""
        machine = group.machine
        await self._seats.seat({slot: Seat.of() for slot in group.slots.values() if slot in self.running.devices})
        if self._groups.get(machine.number) is group:
            del self._groups[machine.number]
            log.info("group %d of %s is dissolved: too few of its members are there", machine.number, self.running.name)
            self._deliver(group, machine.dissolve())

    def _time_is_up(self, group: LiveGroup, name: str) -> None:
        group.timer, group.timer_for = None, ""
        machine = group.machine
        if name == WAITING and len(machine.present) < len(self.terms.plan.owners):
            self._begin(self._dissolve(group))
            return
        act: dict[str, Callable[[], Out]] = {
            GATHERING: lambda: machine.begin(patient=True),
            f"{GATHERING} on": machine.begin,
            WAITING: machine.deal_anew,
        }
        self._deliver(group, act.get(name, machine.answers_due)())

    def _note_batch(self, group: LiveGroup, header: frames.Header) -> None:
        """Count the dominator's batches, and find from their pace how often a cut is worth it."""
        now = time.monotonic()
        group.last_batch = *header.fence, header.batch
        group.batches += 1
        group.rows += header.rows
        group.paces.append(now)
        if not self.terms.cut_every and len(group.paces) > 20:
            pace = (len(group.paces) - 1) / max(group.paces[-1] - group.paces[0], 1e-6)
            group.machine.next_every = max(1, int(REPLAY_S * pace))

    def _require_length(self, group: LiveGroup, header: frames.Header, size: int) -> None:
        """Refuse a frame of another length than the signed task gives it; what was found once holds for the attempt."""
        machine = group.machine
        if group.lengths_of != machine.attempt:
            group.lengths, group.lengths_of = {}, machine.attempt
        asked = (*header[1:4], *header[8:14])
        if group.lengths.get(asked) == size:
            return
        try:
            ends = header.piece - 1, machine.assignment.index(header.receiver) - 1
        except ValueError:
            raise MalformedMessage(f"member {header.receiver} has no piece") from None
        if machine.assignment[header.piece : header.piece + 1] != (header.sender,) or header.rows > self.terms.batch:
            raise MalformedMessage(f"member {header.sender} has not piece {header.piece}")
        kind: Any = frames.KINDS[header.kind]
        body = self.terms.plan.body_bytes(kind, header.stage, ends, header.micro, header.rows)
        if body is None or size != HEADER_BYTES + body + TAG_BYTES:
            raise MalformedMessage(f"{kind} numbers of stage {header.stage} in {size} bytes")
        if len(group.lengths) < MOST_LENGTHS:
            group.lengths[asked] = size

    def _rank(self, slot: int) -> bytes:
        return hashlib.blake2b(f"seat/{slot}".encode(), key=self._secret, digest_size=8).digest()

    def pseudonym(self, slot: int) -> str:
        """Name a member on pages and in logs."""
        return hashlib.blake2b(f"name/{slot}".encode(), key=self._secret, digest_size=3).hexdigest()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the connections; the loop itself would forget it."""
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, CrowdError):
            log.error("a group could not go on", exc_info=error)
