"""An event loop in virtual time: the server's own coroutines run on it, and its threads are events like all others."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from asyncio import events
from collections.abc import Callable, Coroutine
from typing import Any

from tests.system.timeline import Killed, Process, Timeline


class VirtualLoop(asyncio.AbstractEventLoop):
    """The loop of one server process.

    Args:
        timeline: Everything that happens.
        process: Whose loop this is.
        disk_s: Draws how long a thread takes to begin, or to hand over what it has found.

    Attributes:
        errors: What no coroutine has caught.
    """

    def __init__(self, timeline: Timeline, process: Process, disk_s: Callable[[], float]) -> None:
        self._timeline, self._process, self._disk_s = timeline, process, disk_s
        self.errors: list[dict[str, Any]] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    def time(self) -> float:
        return self._timeline.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._timeline.after(0.0, lambda: self._run(handle), self._process)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timeline.at(when, lambda: self._run(handle), self._process)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Is told of timers that were called off; those are passed over when their time comes."""

    def _run(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        events._set_running_loop(self)
        try:
            handle._run()
        finally:
            events._set_running_loop(None)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **more: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        task = asyncio.Task(coro, loop=self, **more)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def tidy_up(self) -> None:
        """End every coroutine that has not come to its end."""
        for task in list(self._tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with contextlib.suppress(RuntimeError):
                task.get_coro().close()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a function as a thread would: it begins after a while, and what it found is known after another."""
        future, timeline, process = self.create_future(), self._timeline, self._process

        def work() -> None:
            try:
                found, error = func(*args), None
            except Killed:
                return
            except BaseException as raised:
                found, error = None, raised
            timeline.after(self._disk_s(), lambda: self._run(asyncio.Handle(hand_over, (found, error), self)), process)

        def hand_over(found: Any, error: BaseException | None) -> None:
            if not future.done():
                if error is None:
                    future.set_result(found)
                else:
                    future.set_exception(error)

        timeline.after(self._disk_s(), work, process)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._process.alive:
            self.errors.append(context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False


def make_loop(timeline: Timeline, process: Process, disk_s: Callable[[], float]) -> VirtualLoop:
    """Make the loop of a process; of what loops can do beyond this, a server without sockets needs nothing."""
    kind: Any = VirtualLoop
    made: VirtualLoop = kind(timeline, process, disk_s)
    return made
