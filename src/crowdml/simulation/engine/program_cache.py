"""Compiled programs kept in the user's cache folder, so that the next start need not compile them again.

An entry holds what XLA made, behind a checksum: a file that was cut short by a crash is compiled anew, never run. Its
name says what it was made from and for: the program, versions and flags (JAX's own key), and this kind of processor.
Entries that were not used for the longest time make room for new ones. Running what lies there is running code, so the
folder belongs to the user alone, and a folder of somebody else's is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import time
from pathlib import Path

from crowdml.core import BadInput
from crowdml.core.files import cache_home, write_whole

FOLDER = "CROWDML_PROGRAMS"
"""Names another folder; `off` keeps nothing."""

MOST_BYTES = 512 << 20
SUFFIX = ".program"


LOOKS = 64
"""A process looks at the whole folder again after it has written this part of what may be there. Looking after each
entry took longer than compiling, once thousands of small ones were there."""


class ProgramCache:
    """A bounded folder of entries.

    Processes that write at the same time may pass the bound until one of them looks, by a 64th each.

    Args:
        folder: Where they are.
        most_bytes: How much they may take together.
    """

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder, self.most_bytes = folder, most_bytes
        self._room = 0  # bytes that may be written before the next look

    def get(self, key: str) -> bytes | None:
        """Return an entry that is there and whole."""
        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        if hashlib.sha256(content[32:]).digest() != content[:32]:
            path.unlink(missing_ok=True)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return content[32:]

    def put(self, key: str, value: bytes) -> None:
        """Keep an entry, unless it is larger than all may be together or the disk does not take it."""
        content = hashlib.sha256(value).digest() + value
        if len(content) > self.most_bytes:
            return
        with contextlib.suppress(OSError, BadInput):
            if len(content) > self._room:
                self._make_room(len(content))
            self._room -= len(content)
            # What a crash leaves is known by its checksum: nobody need wait for the disk.
            write_whole(self._path(key), content, lasting=False)

    def entries(self) -> list[tuple[Path, int, float]]:
        """Return files, their sizes and when they were last used, the oldest first."""
        found = []
        for path in self.folder.glob(f"*{SUFFIX}"):
            with contextlib.suppress(OSError):  # another run may have taken it away
                state = path.stat()
                found.append((path, state.st_size, state.st_mtime))
        return sorted(found, key=lambda entry: entry[2])

    def clear(self) -> tuple[int, int]:
        """Take everything away; return how many entries there were, and their bytes."""
        gone = [size for path, size, _ in self.entries() if _removed(path)]
        self._remove_halves(0.0)
        return len(gone), sum(gone)

    def _remove_halves(self, age: float) -> None:
        """Take away what processes that were killed have left half written."""
        for path in self.folder.glob(f".*{SUFFIX}.*"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime <= time.time() - age:
                    path.unlink()

    def _make_room(self, needed: int) -> None:
        self._remove_halves(3600.0)
        entries = self.entries()
        left = sum(size for _, size, _ in entries)
        for path, size, _ in entries:
            if left + needed <= self.most_bytes:
                break
            path.unlink(missing_ok=True)
            left -= size
        self._room = min(self.most_bytes - left, max(needed, self.most_bytes // LOOKS))

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(f"{key} {processor()}".encode()).hexdigest()
        return self.folder / f"{name}{SUFFIX}"


def open_cache() -> ProgramCache | None:
    """Return this user's cache; None where there is to be none, or where the folder is not the user's own."""
    found = find_cache()
    return found if isinstance(found, ProgramCache) else None


def find_cache() -> ProgramCache | str:
    """Return this user's cache, or say why there is none."""
    given = os.environ.get(FOLDER, "")
    if given == "off":
        return "off"
    try:
        folder = Path(given) if given else cache_home() / "programs"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        state = folder.stat()
    except (OSError, RuntimeError) as error:  # a user without a home has no cache
        return f"off: {error}"
    if state.st_uid != os.getuid():
        return f"off: {folder} belongs to somebody else"
    if state.st_mode & 0o022:
        return f"off: others may write to {folder}"
    return ProgramCache(folder=folder)


def _removed(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


def processor() -> str:
    """Return what programs for this processor are made for: XLA uses whatever instructions it has."""
    found = [platform.machine(), platform.system()]
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as table:
        found += sorted({line.strip() for line in table if line.startswith(("flags", "model name", "Features"))})
    return " ".join(found)
