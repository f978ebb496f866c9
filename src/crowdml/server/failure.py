"""What happens when the store fails: the process ends, and only a new start can tell what is on disk."""

from __future__ import annotations

import asyncio
import logging
import os

log = logging.getLogger("crowdml.server")
FAILED_EXIT = 70
_FLUSH_S = 0.2


def end_process(error: BaseException) -> None:
    """End the process, after pending requests were given their refusals."""
    log.critical("the store failed, so this server ends: %s", type(error).__name__, exc_info=error)
    asyncio.get_running_loop().call_later(_FLUSH_S, os._exit, FAILED_EXIT)
