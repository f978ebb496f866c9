"""Check-ins on their way from a front end to the aggregator, and their answers on the way back.

What comes while a batch is under way gathers to the next, so that a busy front end sends few large ones. The bytes
are kept until the answer is here: when another front end takes over, they are sent to it again, and whichever of them
is stored already is answered with the receipt it has.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from crowdml.core import record
from crowdml.server.fronts.letters import read_answers, write_batch
from crowdml.server.fronts.post import CHECK_INS
from crowdml.server.http.direct import Answered
from crowdml.server.refusals import Answer, Refusal
from crowdml.server.tasks.waiting_room import LARGEST_ROOM, WaitingRoom, too_many

CAPACITY = 4096
LARGEST_BATCH = 256
LARGEST_BATCH_BYTES = 64 << 20
"""A batch ends before it has more bytes than that, unless a single check-in has: whoever takes it holds all of it."""
MOST_UNDER_WAY = 1
BUSY = 4
"""After a batch of so many, whoever comes first waits a moment for the others who were answered with it: they come
together again, and would else wait until that first one alone is stored."""
LINGER_S = 0.005
PATIENCE_S = 20.0
"""After so long without an answer a device is asked to try again."""

Waiting = tuple[int, str, bytes | memoryview, Answered]
"""Slot, key and body of a check-in, and whom to tell its answer."""


@record
class Batch:
    """A batch that is under way: its task, its check-ins, and when it was sent."""

    task: int
    check_ins: list[Waiting]
    sent: float


class Outbox:
    """Sends check-ins of one front end.

    Args:
        send: Carries them: kind, number and content of a letter, and its task.
        clock: Monotonic seconds.
        room: Bytes of check-ins that may wait for their answers.
    """

    def __init__(
        self,
        send: Callable[[int, int, bytes, int], object],
        clock: Callable[[], float] = time.monotonic,
        room: int = LARGEST_ROOM,
    ) -> None:
        self._carry, self._clock, self._room = send, clock, WaitingRoom(room)
        self._waiting: dict[int, deque[Waiting]] = {}
        self._under_way: dict[int, Batch] = {}
        self._busy: set[int] = set()
        self._sent = 0
        self._count = 0

    def __len__(self) -> int:
        """Return how many check-ins are not answered."""
        return self._count

    def enqueue(self, task: int, slot: int, key: str, body: bytes | memoryview, answered: Answered) -> None:
        """Take a check-in, whose answer is given to a function; refuse it where too many wait."""
        if self._count >= CAPACITY:
            raise too_many()
        self._room.enter(len(body))
        self._count += 1
        waiting = self._waiting.setdefault(task, deque())
        waiting.append((slot, key, body, answered))
        if len(waiting) == 1:
            # Not at once: what is read from the network in this turn of the event loop goes together.
            asyncio.get_running_loop().call_later(LINGER_S if task in self._busy else 0.0, self._send, task)

    def _send(self, task: int) -> None:
        waiting = self._waiting.get(task)
        busy = sum(batch.task == task for batch in self._under_way.values())
        if not waiting or busy >= MOST_UNDER_WAY:
            return
        check_ins, size = [waiting.popleft()], 0
        while waiting and len(check_ins) < LARGEST_BATCH:
            size += len(check_ins[-1][2])
            if size + len(waiting[0][2]) > LARGEST_BATCH_BYTES:
                break
            check_ins.append(waiting.popleft())
        (self._busy.add if len(check_ins) >= BUSY else self._busy.discard)(task)
        self._sent += 1
        self._under_way[self._sent] = Batch(task=task, check_ins=check_ins, sent=self._clock())
        self._carry(CHECK_INS, self._sent, write_batch([each[:3] for each in check_ins]), task)

    def take(self, notice: str) -> None:
        """Hand out answers that came; those to a batch that nobody waits for any more are left."""
        number, first, answers = read_answers(notice)
        batch = self._under_way.get(number)
        if batch is None:
            return
        left = batch.check_ins
        for at, answer in enumerate(answers, first):
            body, answered = left[at][2:]
            left[at] = (*left[at][:3], _nobody)
            if answered is not _nobody:
                self._leave(body)
                answered(answer)
        if all(each[3] is _nobody for each in left):
            del self._under_way[number]
            self._send(batch.task)

    def send_again(self) -> None:
        """Send everything again that was not answered: somebody else aggregates now."""
        for number, batch in self._under_way.items():
            self._carry(CHECK_INS, number, write_batch([each[:3] for each in batch.check_ins]), batch.task)

    def give_up_late(self) -> None:
        """Ask devices to try again that have waited too long."""
        now = self._clock()
        for number, batch in list(self._under_way.items()):
            if now - batch.sent > PATIENCE_S:
                del self._under_way[number]
                late = Refusal(503, "busy", "nobody could store this yet", retry_after_s=1).answer()
                for _, _, body, answered in batch.check_ins:
                    if answered is not _nobody:
                        self._leave(body)
                        answered(late)
                self._send(batch.task)

    def _leave(self, body: bytes | memoryview) -> None:
        """Take note that a check-in is answered."""
        self._count -= 1
        self._room.leave(len(body))


def _nobody(answer: Answer) -> None:
    """Stands where an answer was given already."""
