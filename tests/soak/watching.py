"""Watching a server that is left alone: what it takes must not grow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

MEMORY_MIB = 16.0
"""Growth of memory that is no reason to worry: caches fill, the allocator keeps what it had."""
FILES = 8
LOG_MIB = 80.0
"""SQLite's log is cut to 64 MiB after it was copied; a transaction that was not copied yet comes on top."""
WARM_UP = 1 / 3


class Watch:
    """Looks at a server's process now and then.

    Args:
        pid: The process.
        folder: Its folder.
    """

    def __init__(self, pid: int, folder: Path) -> None:
        self._pid, self._log = pid, folder / "crowdml.sqlite-wal"
        self._seen: list[tuple[float, int]] = []
        self._most_log = self._served = 0

    def look_on(self, served: Callable[[], int], until: float) -> None:
        """Look until the time is over; the first third of it is not counted."""
        began, before = time.monotonic(), served()
        while time.monotonic() < until:
            time.sleep(0.5)
            if time.monotonic() - began > WARM_UP * (until - began):
                self._seen.append((self._memory_mib(), len(os.listdir(f"/proc/{self._pid}/fd"))))
            if self._log.exists():
                self._most_log = max(self._most_log, self._log.stat().st_size)
        self._served = served() - before

    def _memory_mib(self) -> float:
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        (line,) = (text for text in lines if text.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    @property
    def growth_mib(self) -> float:
        """Memory at the end, less that at the beginning: means over a fifth of the time each."""
        some = max(1, len(self._seen) // 5)
        first, last = ([memory for memory, _ in part] for part in (self._seen[:some], self._seen[-some:]))
        return sum(last) / some - sum(first) / some

    def told(self) -> str:
        """Say what was seen."""
        files = [count for _, count in self._seen]
        return (
            f"left alone, with {self._served} check-ins: memory grew by {self.growth_mib:.1f} MiB, "
            f"open files {min(files)} to {max(files)}, log at most {self._most_log / 2**20:.0f} MiB"
        )

    def require_steady(self) -> None:
        """Fail if anything grew."""
        files = [count for _, count in self._seen]
        assert self._served > 0, "nothing was served in the calm"
        assert self.growth_mib < MEMORY_MIB, "memory grows"
        assert files[-1] - files[0] <= FILES, "open files grow"
        assert self._most_log < LOG_MIB * 2**20, "the log grows"
