"""The bridge from writers' threads to the event loop."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence

from crowdml.server.answers import Answer
from crowdml.server.writer import Reply

log = logging.getLogger("crowdml.server")
FAILED_EXIT = 70
_FLUSH_S = 0.2


class Bridge:
    """Hands answers over, one call per batch, and ends the process when a writer cannot go on.

    Args:
        leave: Ends the process; a test gives something milder.
    """

    def __init__(self, leave: Callable[[int], object] = os._exit) -> None:
        """Begin without a loop: nothing can have been asked yet."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self._leave = leave

    def deliver(self, answers: Sequence[tuple[Reply, Answer]]) -> None:
        """Give every answer to whoever waits for it."""
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(_give, answers)

    def failed(self, error: BaseException) -> None:
        """End the process: what is on disk is not known, and only a new start can find out."""
        log.critical("the store failed, so this server ends: %s", type(error).__name__, exc_info=error)
        if self.loop is None:
            self._leave(FAILED_EXIT)
        else:
            # Pending requests get their refusals first.
            self.loop.call_soon_threadsafe(self.loop.call_later, _FLUSH_S, self._leave, FAILED_EXIT)


def _give(answers: Sequence[tuple[Reply, Answer]]) -> None:
    for reply, answer in answers:
        reply(answer)
