"""A log that strangers cannot fill: of each kind of message only so many are written in a while.

What a message is about is the place in the code that wrote it, and the kind of its error. Those that were left out are
counted, and the next one that is written says how many there were.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from crowdml.server.limits import Limiter, Pace

PACE = Pace(per_second=1 / 60, burst=10)
"""Ten of a kind at once, then one a minute: with a traceback of 2 kB, 3 MB a day of each kind."""


class LogLimit(logging.Filter):
    """Lets a message pass, or counts it.

    Args:
        pace: How many of each kind may pass.
        clock: Monotonic seconds.
    """

    def __init__(self, pace: Pace = PACE, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing left out."""
        super().__init__()
        self._limiter = Limiter(pace, clock)
        self._left_out: dict[tuple[object, ...], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a message is written."""
        kind = (record.name, record.pathname, record.lineno, record.exc_info and record.exc_info[0])
        if self._limiter.wait(kind):
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return False
        if left_out := self._left_out.pop(kind, 0):
            record.msg, record.args = f"{record.getMessage()} (and {left_out} more like this)", ()
        return True
