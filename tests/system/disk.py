"""The disk: SQLite's real files, of which a power cut takes back what was not forced to disk.

Under SQLite, what a transaction has stored is in its log. A connection with `synchronous=FULL` forces the log to disk
at every commit; any other leaves that to the next checkpoint. So for every file we note how far its log was certainly
on disk, and a power cut cuts it there. A kill without a power cut loses nothing that was written. Whether SQLite keeps
its side of this is not asked here, but by replaying its system calls (`tests/faults/power`).

The file that says how far a ledger has come is never forced to disk: a power cut may bring back any older one.

A process may be told to die at one of its next transactions, just before or just after that is on disk.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.system.timeline import Killed, Process, Timeline

_connect = sqlite3.connect
WAL_HEADER, FRAME_HEADER = 32, 24
LEDGER = "ledger.sqlite"
_WRITES = ("INSERT", "DELETE", "UPDATE", "REPLACE")

Mark = tuple[bytes, int]
"""Salt of a log, and how many of its frames are on disk."""


class Disk:
    """The folders of all processes.

    Args:
        timeline: Everything that happens.
        owner: Names the process that a path belongs to.
    """

    def __init__(self, timeline: Timeline, owner: Callable[[Path], Process | None]) -> None:
        self._timeline, self._owner = timeline, owner
        self._left: dict[Path, dict[Path, bytes]] = {}
        self.marks: dict[Path, Mark] = {}
        self.heads: dict[Path, list[bytes]] = {}
        self.commits = 0

    def connect(self, path: Any, *args: Any, **more: Any) -> sqlite3.Connection:
        """Open a database as `sqlite3.connect` does; what is committed is noted."""
        made = _connect(path, *args, factory=Noted, **more)
        assert isinstance(made, Noted)
        made.disk, made.path = self, None if str(path).startswith("file:") else Path(path)
        return made

    def before_commit(self, path: Path) -> None:
        """Is told of a commit that begins; the process may die here."""
        process = self._owner(path)
        if process is None or not process.alive:
            return
        if process.commits_left is not None:
            process.commits_left -= 1
            if process.commits_left <= 0 and process.dies_before:
                self._kill(process)

    def after_commit(self, path: Path, forced: bool) -> None:
        """Is told of a commit that is stored; the process may die here, before it knows."""
        self.commits += 1
        if forced:
            mark = _last_frame(path)
            if mark is not None:
                self.marks[path] = mark
        if path.name == LEDGER:
            head = path.with_name(f"{LEDGER}-head")
            if head.exists():
                self.heads.setdefault(head, []).append(head.read_bytes())
        process = self._owner(path)
        if process is not None and process.alive and process.commits_left is not None and process.commits_left <= 0:
            self._kill(process)

    def _kill(self, process: Process) -> None:
        process.commits_left = None
        self._left[process.folder] = _content(process.folder)
        process.die()
        self._timeline.after(0.0, process.collapsed)
        raise Killed

    def end(self, folder: Path, close: Callable[[], None], *, power: bool, older: Callable[[int], int]) -> None:
        """Leave in a folder what a killed process leaves there.

        Args:
            folder: Its folder.
            close: Lets go of its files; whatever that changes is undone.
            power: Whether the power was cut, too.
            older: `older(n)`: chooses one of n states of a file that was never forced to disk.
        """
        now = _content(folder)
        left = self._left.pop(folder, now)
        close()
        for path in _content(folder):
            path.unlink()
        for path, content in left.items():
            if path.name.endswith("-shm"):
                continue
            if power and path.name.endswith("-wal"):
                content = self._forced(path, content)
            if power and path in self.heads:
                states = self.heads[path]
                content = states[-1 - older(min(3, len(states)))]
                self.heads[path] = [content]
            path.write_bytes(content)

    def _forced(self, path: Path, content: bytes) -> bytes:
        """Return what of a log is certainly on disk."""
        salt, frames = self.marks.get(path.with_name(path.name.removesuffix("-wal")), (b"", 0))
        if len(content) < WAL_HEADER:
            return content
        (page,) = struct.unpack_from(">I", content, 8)
        # With another salt it was begun anew after a checkpoint, and nothing of it has been forced since.
        return content[: WAL_HEADER + (frames if content[16:24] == salt else 0) * (FRAME_HEADER + page)]


class Noted(sqlite3.Connection):
    """A connection whose commits are noted."""

    disk: Disk
    path: Path | None
    _forced: bool | None = None

    def commit(self) -> None:
        """Commit what a transaction holds."""
        if self.path is None or not self.in_transaction:
            super().commit()
            return
        self.disk.before_commit(self.path)
        super().commit()
        self.disk.after_commit(self.path, self._forces())

    def execute(self, sql: str, *more: Any) -> sqlite3.Cursor:
        """Execute a statement; COMMIT, and a single statement that writes, are commits."""
        commits = sql == "COMMIT" or (not self.in_transaction and sql.startswith(_WRITES))
        if self.path is None or not commits:
            return super().execute(sql, *more)
        self.disk.before_commit(self.path)
        found = super().execute(sql, *more)
        self.disk.after_commit(self.path, self._forces())
        return found

    def _forces(self) -> bool:
        if self._forced is None:
            self._forced = super().execute("PRAGMA synchronous").fetchone()[0] >= 2
        return self._forced


def _content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _last_frame(path: Path) -> Mark | None:
    """Read from the index of a log how far it goes."""
    try:
        with open(path.with_name(path.name + "-shm"), "rb") as index:
            head = index.read(48)
    except FileNotFoundError:
        return None
    return (head[32:40], int.from_bytes(head[16:20], "little")) if len(head) == 48 else None
