"""Validation: how well the published model does on the operator's own public rows, where a task has some.

This touches no private row and no privacy budget, and shows an error where devices count none. It happens beside the
writer, in a thread, and only now and then: after a version that is further on by one percent, and never for more than a
twentieth of the time. What is measured is the settled model that anybody may check out, so nobody sees it too early.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import numpy as np

from crowdml.core import NUMPY
from crowdml.models import Own
from crowdml.server.store import Store, StoredError, StoreFailed
from crowdml.server.tasks.running_task import RunningTask
from crowdml.task.averaging_terms import MOST_VALIDATED, PublicSet

PAUSE_S = 1.0
"""Between two looks at whether there is a new version."""
SHARE = 20
"""One part in so many of the time is spent at most."""


class Validation:
    """Measures the models of one task, and keeps what it found.

    Args:
        running: The task.
        public: Labelled public rows as the model sees them.
        store: Where errors are kept.
        failed: Called if the store fails.
    """

    def __init__(
        self, running: RunningTask, public: PublicSet, store: Store, failed: Callable[[BaseException], None]
    ) -> None:
        self._running, self._store, self._failed = running, store, failed
        every = max(1, -(-len(public["labels"]) // MOST_VALIDATED))
        self._rows = np.ascontiguousarray(public["rows"][::every], np.float32)
        self._targets = public["labels"][::every].astype(running.live.task.target.dtype)
        self._model = running.live.task.model_for(NUMPY)
        self._task: asyncio.Task[None] | None = None
        running.show_validated(store.validations(running.id), len(self._rows))

    @staticmethod
    def can_measure(running: RunningTask) -> bool:
        """Tell whether the server knows the model: one of the user's own is a vector to it."""
        return not isinstance(running.live.task.model, Own)

    def begin(self) -> None:
        """Measure from now on; an event loop must be running."""
        self._task = asyncio.get_running_loop().create_task(self._go_on(), name=f"validation-{self._running.name}")

    async def close(self) -> None:
        """Measure no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def measure(self) -> bool:
        """Measure the published model, unless one was that is nearly as new; say whether it was measured."""
        published = self._running.snapshot.published
        known = self._running.validated
        stopped = self._running.snapshot.state == "stopped"
        due = (known[-1].version if stopped else known[-1].version * 1.01) if known else -1
        if published.version <= due:
            return False
        parameters = self._running.parameters(published)
        predicted = self._model.predict(parameters, self._rows)
        measures = self._running.live.task.target.measures(predicted, self._targets, NUMPY, "validation")
        error = float(measures["validation_error"])
        # A model may have gone astray; what is not a number is as wrong as can be.
        error = error if np.isfinite(error) else 1.0
        found = StoredError(version=published.version, error=error, time=time.time())
        self._store.add_validation(self._running.id, found)
        self._running.show_validated((*known, found), len(self._rows))
        return True

    async def _go_on(self) -> None:
        while True:
            began = time.perf_counter()
            try:
                await asyncio.to_thread(self.measure)
            except StoreFailed as error:
                self._failed(error)
                return
            await asyncio.sleep(max(PAUSE_S, SHARE * (time.perf_counter() - began)))
