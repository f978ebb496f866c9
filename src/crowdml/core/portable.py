"""What systems do differently with files, each behind one function: locks, writing at a place, names that survive.

Linux and macOS are what every change is tested on. The ways of Windows are tested as far as they can be elsewhere: with
a stand-in for its locking function, and with reading and writing that any system can do.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path

WINDOWS = os.name == "nt"

PLAIN_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""Flags for `os.open`: not handed to other programs, and bytes as they are."""


def lock_alone(handle: int) -> None:
    """Take the lock of an open file for this process; it is given up when the file is closed, or the process ends.

    Raises:
        OSError: Another process has it.
    """
    if WINDOWS:
        msvcrt = importlib.import_module("msvcrt")
        os.lseek(handle, 0, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        return
    import fcntl

    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def read_at(handle: int, size: int, place: int) -> bytes:
    """Read bytes from a place of a file that this process alone uses."""
    if not WINDOWS:
        return os.pread(handle, size, place)
    os.lseek(handle, place, os.SEEK_SET)
    return os.read(handle, size)


def write_at(handle: int, content: bytes, place: int) -> int:
    """Write bytes at a place of a file that this process alone uses; return how many were written."""
    if not WINDOWS:
        return os.pwrite(handle, content, place)
    os.lseek(handle, place, os.SEEK_SET)
    return os.write(handle, content)


def sync_folder(folder: Path) -> None:
    """Make names of new files survive a power cut. Windows has no such call; its file system keeps a journal."""
    if WINDOWS:
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
