"""Virtual time: everything that happens, in one order that follows from the seed; nobody ever waits.

A *process* is a server or a device. What it does is a list of events; a dead one has none, and those of one that is
stopped (SIGSTOP) wait until it goes on.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from pathlib import Path
from typing import Any

EPOCH = 1_700_000_000.0
"""What the wall clock shows when time begins."""


class Killed(BaseException):
    """The process that runs is killed here. No `except Exception` of it may notice."""


class Stuck(AssertionError):
    """Nothing more can happen, or nothing came to an end although there was time."""


class Process:
    """Something that can be killed and stopped.

    Args:
        name: What it is called in reports.

    Attributes:
        alive: Whether it runs.
        lives: How often it was started; what one life has begun does not happen in the next.
        stopped_until: When it goes on.
        wall_s: How far its wall clock is from ours.
        commits_left: Transactions after which it dies; None: it is not going to.
        dies_before: Whether it then dies before the last one is on disk, or after.
        collapsed: Called in the next moment, when it has died of itself.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.collapsed: Callable[[], None] = lambda: None
        self.alive, self.lives, self.stopped_until, self.wall_s = False, 0, 0.0, 0.0
        self.commits_left: int | None = None
        self.dies_before = False

    def live(self) -> None:
        """Begin another life."""
        assert not self.alive
        self.alive, self.stopped_until = True, 0.0
        self.lives += 1

    def die(self) -> None:
        """End at once."""
        self.alive = False


class Event:
    """Something that is going to happen; it can be called off."""

    __slots__ = ("act", "called_off", "life", "process")

    def __init__(self, act: Callable[[], Any], process: Process | None) -> None:
        self.act, self.process, self.called_off = act, process, False
        self.life = process.lives if process else 0


class Timeline:
    """All events in order.

    Args:
        most_events: More than this is an error: no test may run without end.

    Attributes:
        now: Seconds since time began.
        events: How many have happened.
        current: The process that runs.
    """

    def __init__(self, most_events: int = 2_000_000) -> None:
        self.now, self.events, self._most, self._numbers = 0.0, 0, most_events, 0
        self._heap: list[tuple[float, int, Event]] = []
        self.current: Process | None = None

    def at(self, when: float, act: Callable[[], Any], process: Process | None = None) -> Event:
        """Let something happen at a time; of what happens at once, what was asked for first comes first."""
        event = Event(act, process)
        self._numbers += 1
        heapq.heappush(self._heap, (max(when, self.now), self._numbers, event))
        return event

    def after(self, seconds: float, act: Callable[[], Any], process: Process | None = None) -> Event:
        """Let something happen after a while."""
        return self.at(self.now + seconds, act, process)

    def run(self, until: Callable[[], bool], latest: float) -> None:
        """Go on until something is the case; `Stuck` where that does not come in time.

        Args:
            until: Asked after every event.
            latest: By when.
        """
        while not until():
            if not self._heap or self.now > latest:
                raise Stuck(f"at {self.now:.1f} s: " + ("too late" if self._heap else "nothing is left to happen"))
            self._step()

    def run_to(self, when: float) -> None:
        """Go on until a time."""
        while self._heap and self._heap[0][0] <= when:
            self._step()
        self.now = max(self.now, when)

    def wall_clock(self) -> float:
        """Return what the wall clock of the process that runs shows."""
        return EPOCH + self.now + (self.current.wall_s if self.current else 0.0)

    def _step(self) -> None:
        when, number, event = heapq.heappop(self._heap)
        process = event.process
        if event.called_off or (process is not None and not (process.alive and process.lives == event.life)):
            return
        if process is not None and process.stopped_until > when:
            heapq.heappush(self._heap, (process.stopped_until, number, event))
            return
        self.events += 1
        if self.events > self._most:
            raise Stuck(f"{self._most} events, and no end")
        self.now, self.current = when, process
        try:
            event.act()
        finally:
            self.current = None
