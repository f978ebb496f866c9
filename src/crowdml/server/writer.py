"""The writer: one thread per task that folds in check-ins, stores them, and only then acknowledges.

Whatever waits is taken as one batch and stored in one transaction: while the disk is busy the next batch gathers. A
failure of the store or of a kernel is not survived: whether the last transaction is on disk is then unknown, so pending
requests fail, and the process ends. A restart continues from what is stored.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence

from crowdml.core import CrowdError, record
from crowdml.server.answers import Answer, Refusal, refusal_of
from crowdml.server.folding import CheckIn, fold
from crowdml.server.metrics import Metrics
from crowdml.server.running import RunningTask
from crowdml.server.store import Applied, Point, Store, StoreFailed

LARGEST_BATCH = 256
Reply = Callable[[Answer], None]
Deliver = Callable[[Sequence[tuple[Reply, Answer]]], None]
Work = Callable[[], Answer]


@record
class Waiting:
    """A check-in, or another piece of work that changes the task, and where its answer goes."""

    work: CheckIn | Work
    reply: Reply


class Writer:
    """Serialises everything that changes one task.

    Args:
        running: The task.
        store: Where it is kept.
        deliver: Hands answers back, from this thread to whoever waits.
        failed: Called once if the writer cannot go on.
        metrics: Counters of the server.
        capacity: Check-ins that may wait.
        largest_batch: Check-ins stored in one transaction at most.
    """

    def __init__(
        self,
        running: RunningTask,
        store: Store,
        deliver: Deliver,
        failed: Callable[[BaseException], None],
        metrics: Metrics,
        capacity: int = 4096,
        largest_batch: int = LARGEST_BATCH,
    ) -> None:
        """Start the thread."""
        self._largest_batch = largest_batch
        self.running, self._store, self._deliver, self._failed = running, store, deliver, failed
        self._metrics = metrics
        self._queue: queue.Queue[Waiting | None] = queue.Queue(capacity)
        self._thread = threading.Thread(target=self._run, name=f"writer-{running.name}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread works."""
        return self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """How many check-ins wait, roughly."""
        return self._queue.qsize()

    def submit(self, work: CheckIn | Work, reply: Reply) -> None:
        """Put a check-in, or other work, in the queue; a full queue refuses."""
        try:
            self._queue.put_nowait(Waiting(work=work, reply=reply))
        except queue.Full:
            raise Refusal(503, "busy", "too many check-ins are waiting", retry_after_s=1) from None

    def close(self) -> None:
        """Finish what waits, then end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        batch: list[Waiting] = []
        try:
            while (first := self._queue.get()) is not None:
                batch = self._gather(first)
                self._deliver(self._handle(batch))
        except BaseException as error:
            failure = Refusal(503, "failed", "the server could not store this", retry_after_s=5).answer()
            self._deliver([(own.reply, failure) for own in batch])
            self._failed(error)

    def _gather(self, first: Waiting) -> list[Waiting]:
        """Take whatever else waits; other work than check-ins is done alone."""
        batch = [first]
        while len(batch) < self._largest_batch and isinstance(batch[-1].work, CheckIn):
            try:
                more = self._queue.get_nowait()
            except queue.Empty:
                break
            if more is None:
                self._queue.put(None)
                break
            batch.append(more)
        return batch

    def _handle(self, batch: list[Waiting]) -> list[tuple[Reply, Answer]]:
        check_ins = [own.work for own in batch if isinstance(own.work, CheckIn)]
        answers = self._fold(check_ins) if check_ins else []
        for own in batch[len(check_ins) :]:
            assert not isinstance(own.work, CheckIn)  # noqa: S101  other work comes last
            answers.append(_perform(own.work))
        return [(own.reply, answer) for own, answer in zip(batch, answers, strict=True)]

    def _fold(self, check_ins: list[CheckIn]) -> list[Answer]:
        running, state = self.running, self.running.state
        before, count, status = state.version, state.check_ins, state.state
        known = self._store.receipts_for(running.id, [(own.device.slot, own.key) for own in check_ins])
        folded = fold(running.live, running.sheet_hash, state, check_ins, known)
        if folded.receipts:
            began = time.perf_counter()
            self._store.apply(
                Applied(
                    task=running.id,
                    expected_version=before,
                    expected_check_ins=count,
                    version=state.version,
                    check_ins=state.check_ins,
                    received=state.received,
                    server_state=running.encode_state(),
                    rows={slot: running.encode_row(slot) for slot in folded.touched} if running.keeps_rows else {},
                    receipts=folded.receipts,
                    state=state.state if state.state != status else None,
                    reason=state.reason,
                    point=self._point(),
                )
            )
            self._metrics.stored(running.name, len(folded.receipts), time.perf_counter() - began)
        if state.version != before or state.state != status:
            running.publish()
        return folded.answers

    def _point(self) -> Point | None:
        """Return a point of the curve, now and then: after every version at first, later after each further 1 %."""
        running, state = self.running, self.running.state
        if state.version <= running.last_point * 1.01 + 1e-9:
            return None
        running.last_point = state.version
        return Point(
            version=state.version,
            check_ins=state.check_ins,
            rows=running.rows,
            estimated_error=running.estimated_error,
            time=time.time(),
        )


def _perform(work: Work) -> Answer:
    """Do other work; what it refuses is an answer, what the store cannot do is not."""
    try:
        return work()
    except StoreFailed:
        raise
    except CrowdError as error:
        return refusal_of(error).answer()
