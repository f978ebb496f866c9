"""Refusals, counted for the event log: in memory at once, in the store from time to time.

Strangers can be refused as often as they like, and devices too. So that nobody makes the disk busy, what was counted is
written once a minute at most, when the log is read, and when the server ends.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from crowdml.server.store import Actor, Store

EVERY_S = 60.0

Kind = tuple[Actor, str, int | None]
"""Who was refused, what, and the number of the task where there is one."""


class RefusalCounts:
    """Counts refusals.

    Args:
        store: Has the event log.
        clock: Monotonic seconds.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._counts = Counter[Kind]()
        self._written = clock()

    def add(self, actor: Actor, action: str, task: int | None = None) -> bool:
        """Count a refusal; tell whether it is time to write."""
        with self._lock:
            self._counts[actor, action, task] += 1
            return self._clock() - self._written >= EVERY_S

    def write(self) -> None:
        """Write what was counted into the event log; afterwards all of it is there, whoever has begun to write it."""
        with self._writing:
            with self._lock:
                counts, self._counts, self._written = self._counts, Counter[Kind](), self._clock()
            for (actor, action, task), count in counts.items():
                self._store.note(actor, action, task=task, count=count)
