"""An event loop of a test's own: in a thread, because browsers that other tests drive keep one turning in theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_apart(
    made: Callable[[], Coroutine[Any, Any, Result]], loop: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> Result:
    """Run a coroutine to its end, and return what it found.

    Args:
        made: Makes it, in the thread where it runs.
        loop: Makes the loop; not given: asyncio's usual one.
    """

    def run() -> Result:
        with asyncio.Runner(loop_factory=loop) as runner:
            return runner.run(made())

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()
