"""The writer: one per task; it folds in check-ins, stores them, and only then acknowledges.

Whatever waits is taken as one batch and stored in one transaction: while the disk is busy the next batch gathers.
Arithmetic runs in the event loop and the database in a thread of its own, because the two would otherwise wrangle over
the interpreter's lock at every statement. A failure of the store or of a kernel is not survived: whether the last
transaction is on disk is then unknown, so pending requests fail, and the process ends. A restart continues from what is
stored.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from crowdml.core import CrowdError
from crowdml.core.errors import MalformedMessage
from crowdml.server.refusals import Answer, Refusal, refusal_of
from crowdml.server.store import Store, StoreFailed
from crowdml.server.tasks.folding import CheckIn, Folded, fold
from crowdml.server.tasks.mutable_task import MutableTask
from crowdml.server.tasks.running_task import RunningTask
from crowdml.server.tasks.waiting_room import WaitingRoom, too_many

log = logging.getLogger("crowdml.server")

LARGEST_BATCH = 256
BUSY = 4
"""A batch of so many is followed by a short wait."""
LINGER_S = 0.002
LINGER_SHARED_S = 0.040
"""So long at most where other front ends are about to send batches of their own: to store them together saves more than
it delays."""

Work = Callable[[MutableTask], Answer]
"""Something else that changes the task, between two batches; it may use the store. It is lent the state for that."""

Answered = Callable[[Answer], None]
"""Called once with the answer; it must not raise."""

Waiting = tuple[CheckIn | Work, Answered]


class Writer:
    """Serialises everything that changes one task.

    Args:
        task: The task; its state is changed here and nowhere else.
        store: Where it is kept.
        failed: Called once if the writer cannot go on.
        capacity: Check-ins that may wait.
        largest_batch: Check-ins stored in one transaction at most.
        room: Room for check-ins of all tasks.
        size: Bytes that a check-in of this task takes there.

    Attributes:
        stored: Check-ins stored since the server started.
        transactions: Transactions that took.
        seconds: Time spent in those.
    """

    def __init__(
        self,
        task: MutableTask,
        store: Store,
        failed: Callable[[BaseException], None],
        capacity: int = 4096,
        largest_batch: int = LARGEST_BATCH,
        room: WaitingRoom | None = None,
        size: int = 0,
    ) -> None:
        """Begin to work; an event loop must be running."""
        self._mutable, self._store, self._failed = task, store, failed
        self._capacity, self._largest_batch = capacity, largest_batch
        self._room, self._size = room or WaitingRoom(), size
        self.stored, self.transactions, self.seconds = 0, 0, 0.0
        self._waiting: deque[Waiting] = deque()
        self._news = asyncio.Event()
        self._expected: set[Hashable] = set()
        self._complete: asyncio.Future[None] | None = None
        self._closing = False
        self._storing: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, f"store-{task.running.name}")
        self._task = self._loop.create_task(self._run(), name=f"writer-{task.running.name}")

    @property
    def alive(self) -> bool:
        """Whether it still takes check-ins: it has neither failed nor been closed."""
        return not self._task.done()

    @property
    def waiting(self) -> int:
        """How many check-ins wait."""
        return len(self._waiting)

    @property
    def storing(self) -> bool:
        """Whether something may be in the database that is not shown here yet."""
        return self._storing is not None and not self._storing.done()

    def expect(self, front: Hashable) -> None:
        """Take note that another front end is about to send a batch: it was busy, and is answered."""
        self._expected.add(front)

    def came(self, front: Hashable) -> None:
        """Take note that the batch of another front end is here."""
        self._expected.discard(front)
        if not self._expected and self._complete is not None and not self._complete.done():
            self._complete.set_result(None)

    async def submit(self, work: CheckIn | Work) -> Answer:
        """Wait in the queue and return the answer; a full queue refuses."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        self.enqueue(work, lambda answer: None if future.done() else future.set_result(answer))
        return await future

    def enqueue(self, work: CheckIn | Work, answered: Answered) -> None:
        """Put something into the queue, whose answer is given to a function; a full queue refuses."""
        if len(self._waiting) >= self._capacity or self._closing or self._task.done():
            raise too_many()
        if isinstance(work, CheckIn):
            self._room.enter(self._size)
        self._waiting.append((work, answered))
        self._news.set()

    async def settled(self) -> None:
        """Wait until everything that others may find in the database is shown here too."""
        if self._storing is not None and self.storing:
            await asyncio.shield(self._storing)

    def when_settled(self, call: Callable[[], None]) -> None:
        """Call something as soon as that is so: now, or when what is being stored is shown."""
        if self._storing is not None and self.storing:
            self._storing.add_done_callback(lambda _: call())
        else:
            call()

    async def close(self) -> None:
        """Finish what waits, then end."""
        self._closing = True
        self._news.set()
        await self._task
        self._thread.shutdown()

    async def _run(self) -> None:
        batch: list[Waiting] = []
        busy = False
        try:
            while self._waiting or not self._closing:
                if not self._waiting:
                    self._news.clear()
                    await self._news.wait()
                    continue
                if busy:
                    # Where many speak, the others are about to: one transaction then serves them all.
                    await asyncio.sleep(LINGER_S)
                    await self._wait_for_others()
                batch = self._gather()
                busy, answers = len(batch) >= BUSY, await self._handle(batch)
                self._room.leave(self._size * sum(isinstance(work, CheckIn) for work, _ in batch))
                done, batch = zip(batch, answers, strict=True), []
                for (_, answered), answer in done:
                    answered(answer)
        except BaseException as error:
            failure = Refusal(503, "failed", "the server could not store this", retry_after_s=5).answer()
            for _, answered in (*batch, *self._waiting):
                answered(failure)
            self._failed(error)

    async def _wait_for_others(self) -> None:
        """Wait for front ends that were answered just now and are about to send again, but not for long.

        Where a whole batch waits already, nothing of theirs would go with it.
        """
        if self._expected and len(self._waiting) < self._largest_batch:
            self._complete = self._loop.create_future()
            await asyncio.wait((self._complete,), timeout=LINGER_SHARED_S)
            self._expected.clear()

    def _gather(self) -> list[Waiting]:
        """Take whatever waits; other work than check-ins is done alone."""
        batch = [self._waiting.popleft()]
        while self._waiting and len(batch) < self._largest_batch:
            if not (isinstance(batch[-1][0], CheckIn) and isinstance(self._waiting[0][0], CheckIn)):
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _handle(self, batch: list[Waiting]) -> list[Answer]:
        first = batch[0][0]
        if not isinstance(first, CheckIn):
            return [await self._in_thread(_perform, first, self._mutable)]
        check_ins = [work for work, _ in batch if isinstance(work, CheckIn)]
        if not self._mutable.running.looks_together:
            return await self._fold(check_ins)
        refusals = _look_at(self._mutable.running, check_ins)
        honest = [check_in for check_in, refusal in zip(check_ins, refusals, strict=True) if refusal is None]
        answers = iter(await self._fold(honest) if honest else ())
        return [next(answers) if refusal is None else refusal for refusal in refusals]

    async def _fold(self, check_ins: list[CheckIn]) -> list[Answer]:
        task = self._mutable
        running, state = task.running, task.state
        keys = [(check_in.device.slot, check_in.key) for check_in in check_ins]
        known = await self._in_thread(self._store.receipts_for, running.id, keys)
        before = task.mark()
        if running.live.server.last.server.takes == "individuals":
            # Comparing check-ins takes a while; others see the snapshot alone, so they need not wait.
            folded: Folded = await self._in_thread(fold, running.live, running.task_hash, state, check_ins, known)
        else:
            folded = fold(running.live, running.task_hash, state, check_ins, known)
        if folded.receipts:
            began = time.perf_counter()
            applied = task.since(before, folded.receipts, folded.touched)
            self._storing = self._loop.create_future()
            await self._in_thread(self._store.apply, applied)
            self.stored += len(folded.receipts)
            self.transactions += 1
            self.seconds += time.perf_counter() - began
            task.settle()
            self._storing.set_result(None)
        if folded.refused:
            await self._in_thread(self._store.keep_refused, running.id, folded.refused)
        return folded.answers

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._loop.run_in_executor(self._thread, function, *arguments)


def _look_at(running: RunningTask, check_ins: list[CheckIn]) -> list[Answer | None]:
    """Refuse what no honest device sends; None for the others.

    This changes nothing, so a mistake of ours costs the one check-in that it is about, and not the server: it would end
    again whenever that check-in is sent again.
    """
    try:
        problems = running.problems([check_in.content for check_in in check_ins])
    except Exception as error:
        log.error("%d check-ins could not be looked at", len(check_ins), exc_info=error)
        if len(check_ins) > 1:
            return [answer for check_in in check_ins for answer in _look_at(running, [check_in])]
        return [Refusal(500, "internal", "a mistake in this server").answer()]
    return [
        None if problem is None else _refuse(check_in, problem)
        for check_in, problem in zip(check_ins, problems, strict=True)
    ]


def _refuse(check_in: CheckIn, problem: str) -> Answer:
    """Refuse what no honest device sends, and count it."""
    check_in.device.refused += 1
    return refusal_of(MalformedMessage(problem)).answer()


def _perform(work: Work, task: MutableTask) -> Answer:
    """Do other work; what it refuses is an answer and changes nothing, what the store cannot do is no answer."""
    before = task.state.copy()
    try:
        return work(task)
    except StoreFailed:
        raise
    except CrowdError as error:
        task.state = before
        task.activity.forget()
        return refusal_of(error).answer()
