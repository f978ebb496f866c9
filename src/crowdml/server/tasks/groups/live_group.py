"""A group as the server runs it: its machine, its members' queues, and what can be told of it."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from crowdml.server.tasks.device_tokens import DeviceState
from crowdml.slicing.live.deposits import ChunkGatherer
from crowdml.slicing.live.group_machine import Group
from crowdml.slicing.live.group_records import DONE, Event, role_name
from crowdml.slicing.live.slice_terms import SliceTerms

MOST_EVENTS = 100


class Line:
    """The connection of one member, as its group sees it: a queue that somebody empties.

    Args:
        device: Whose it is.
        most_bytes: Bytes that may wait.
        rtt_s: Seconds to the member and back, as last measured; 0 or not given where nobody has.
        send_now: Sends a message without waiting, and tells whether that was possible; not given: it never is.
    """

    def __init__(
        self,
        device: DeviceState,
        most_bytes: int,
        rtt_s: Callable[[], float] | None = None,
        send_now: Callable[[str | bytes], bool] | None = None,
    ) -> None:
        self.device, self.most_bytes, self.rtt_s = device, most_bytes, rtt_s or (lambda: 0.0)
        self._send_now = send_now or (lambda message: False)
        self.group: LiveGroup | None = None
        self.chunks: ChunkGatherer | None = None
        self.number = self.bytes = 0
        self.waiting: deque[str | bytes] = deque()
        self.news = asyncio.Event()
        self.closed = ""

    def put(self, message: str | bytes) -> None:
        """Send a message, or queue it behind others; a member that does not drain its queue is closed."""
        if self.closed or (not self.waiting and self._send_now(message)):
            return
        self.bytes += len(message)
        if self.bytes > self.most_bytes:
            self.close("this device does not take what is sent to it")
        self.waiting.append(message)
        self.news.set()

    def close(self, why: str) -> None:
        """Let whoever empties the queue end."""
        self.closed = self.closed or why
        self.news.set()


class LiveGroup:
    """A group's machine, the lines of its members, and figures about it."""

    def __init__(self, machine: Group, slots: dict[int, int]) -> None:
        self.machine, self.slots = machine, slots
        self.lines: dict[int, Line] = {}
        self.events: deque[tuple[float, Event]] = deque(maxlen=MOST_EVENTS)
        self.counted: Counter[str] = Counter()
        self.batches = self.bytes = self.frames = self.rows = 0
        self.exact_since = time.time()
        self.last_batch = (-1, -1, -1)
        self.lengths: dict[tuple[int, ...], int] = {}
        self.lengths_of = -1
        self.paces: deque[float] = deque(maxlen=200)
        self.timer: asyncio.TimerHandle | None = None
        self.timer_for = ""


def figures_of(group: LiveGroup, terms: SliceTerms, pseudonym: Callable[[int], str]) -> dict[str, Any]:
    """Say how a group stands; nothing in it is private."""
    machine = group.machine
    rtts = [line.rtt_s() for line in group.lines.values() if line.rtt_s()]
    floor = 1 / (terms.plan.hops * statistics.median(rtts)) if rtts and terms.plan.hops else None
    recent = [at for at in group.paces if at > time.monotonic() - 60]
    pace = (len(recent) - 1) / (recent[-1] - recent[0]) if len(recent) > 1 and recent[-1] > recent[0] else None
    names = {number: pseudonym(slot) for number, slot in group.slots.items()}
    planned = terms.plan.batch_bytes(terms.batch) / terms.batch
    return {
        "group": machine.number,
        "stage": machine.stage,
        "pass": machine.passes,
        "passes": terms.passes,
        "turn": max(machine.turn, 0),
        "batch": group.last_batch[2] if group.last_batch[:2] == (machine.turn, machine.attempt) else 0,
        "attempt": machine.attempt,
        "members": [
            {
                "member": names[number],
                "there": number in machine.cards,
                "role": role_name(number, machine.assignment) if machine.stage != DONE else "",
                "observers": len(machine.trust.observers.get(number, ())),
            }
            for number in sorted(group.slots)
        ],
        "batches": group.batches,
        "batches_per_s": None if pace is None else round(pace, 2),
        "floor_batches_per_s": None if floor is None else round(floor, 2),
        "frames": group.frames,
        "bytes": group.bytes,
        "bytes_per_row": round(group.bytes / group.rows, 1) if group.rows else None,
        "planned_bytes_per_row": round(planned, 1),
        "lost": group.counted["lost"],
        "turns_lost": group.counted["turn lost"],
        "replays": machine.replays,
        "passes_again": group.counted["pass again"],
        "exact_since": group.exact_since,
        "events": [
            {
                "time": at,
                "what": event.what,
                "turn": event.turn,
                "batch": event.batch,
                "members": [names.get(number, "") for number in event.members],
                "why": event.why,
            }
            for at, event in group.events
        ],
    }
