"""Who else is there: front ends that say now and then that they live, and the one among them that aggregates.

A front end that is killed is noticed by PostgreSQL, which gives its lock to whoever waits for it. One that is merely
stopped, or hangs, keeps the lock; its neighbours notice its silence, and have PostgreSQL end its connection.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import closing

from crowdml.server.fronts.post import ALL, NO_WAIT_FOR_DISK, connect
from crowdml.server.store.postgres import HOLDS_LOCK

TICK_S = 0.5
SILENT_TICKS = 6
"""An aggregator that was silent for so many ticks is taken for stopped."""
LEASE_S = 2.0
"""So long after its last sign of life an aggregator may still answer: less than its neighbours wait."""
GONE_S = 3.0
DEAF_TICKS = 30
"""A front end whose question the database left unanswered for so many ticks of its own ends: something between the two
takes what is sent and passes nothing on. Connections that are lost, or that no packet gets through, end sooner."""

_BEAT = f"SELECT pg_notify('{ALL}', 'beat') FROM pg_locks WHERE {HOLDS_LOCK} AND pid = %s"  # noqa: S608


class Neighbours:
    """Keeps who was heard.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._heard = clock, dict[int, float]()

    @property
    def fronts(self) -> list[int]:
        """Front ends that live, as far as is known; this one not among them."""
        return list(self._heard)

    def hear(self, front: int) -> bool:
        """Take note of a sign of life; tell whether it is the first one."""
        first = front not in self._heard
        self._heard[front] = self._clock()
        return first

    def leave(self, front: int) -> None:
        """Take note that one has ended."""
        self._heard.pop(front, None)

    def expire(self) -> list[int]:
        """Forget who was not heard for long; return those."""
        gone = [front for front, heard in self._heard.items() if self._clock() - heard > GONE_S]
        for front in gone:
            del self._heard[front]
        return gone


class Silence:
    """Counts ticks of our own in which an aggregator gave no sign of life.

    Ticks, not seconds: if it is we who were stopped, we have heard nothing because we did not listen.
    """

    def __init__(self) -> None:
        self._ticks = 0
        self._holder: int | None = None

    @property
    def begun(self) -> bool:
        """Whether it has been silent for a while, so that somebody should look who it is."""
        return self._ticks >= 2

    def beat(self) -> None:
        """Take note of a sign of life."""
        self._ticks, self._holder = 0, None

    def tick(self) -> None:
        """Count."""
        self._ticks += 1

    def too_long(self, holder: int | None) -> bool:
        """Tell whether whoever holds the lock was silent for too long; another holder begins anew."""
        if holder != self._holder:
            self._ticks, self._holder = 2, holder
        return holder is not None and self._ticks >= SILENT_TICKS


class Heart(threading.Thread):
    """Gives the aggregator's signs of life, in a thread of its own, as the event loop may be busy for a while.

    A sign of life is no data, so its transaction does not wait for the disk: a database whose disk is slow costs no
    aggregator its time.

    Args:
        url: Address of the database.
        process: Number of the process in PostgreSQL that holds the lock for us.
        failed: Called, in this thread, when we do not hold it any more.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        url: str,
        process: int,
        failed: Callable[[BaseException], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name="heart", daemon=True)
        self._url, self._process, self._failed, self._clock = url, process, failed, clock
        self._beat = clock()
        self._doubted = -math.inf
        self._ending = threading.Event()

    @property
    def lasts(self) -> bool:
        """Whether nobody else can aggregate yet: the last sign of life is not long ago, and nobody doubts it since."""
        return self._beat > self._doubted and self._clock() - self._beat < LEASE_S

    def doubt(self) -> None:
        """Take the lease for over until another sign of life has shown that the lock is ours."""
        self._doubted = self._clock()

    def end(self) -> None:
        """Beat no more."""
        self._ending.set()

    def run(self) -> None:
        """Beat."""
        try:
            with closing(connect(self._url)) as connection:
                connection.execute(NO_WAIT_FOR_DISK)
                while not self._ending.is_set():
                    began = self._clock()
                    if connection.execute(_BEAT, (self._process,)).fetchone() is None:
                        raise ConnectionError("another front end aggregates now")
                    self._beat = began
                    self._ending.wait(TICK_S)
        except Exception as error:
            self._doubted = math.inf
            if not self._ending.is_set():
                self._failed(error)
