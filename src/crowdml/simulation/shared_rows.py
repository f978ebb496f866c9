"""Rows in memory that processes share: written once, mapped by every worker, gone with the last of them.

Large tables are laid there as soon as they are made (`make_room`), with room at their end, so that a run need not copy
them: it names the files in which they lie.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

ALIGNED = 4096
"""XLA takes an array as it lies there if it begins at a multiple of 64; a page is one."""

LARGE = 16 << 20
"""Bytes of a table from which on it is not copied for a run."""

Allocate = Callable[[tuple[int, ...], Any], npt.NDArray[Any]]
"""Makes an array of zeros by shape and type."""

Lay = Callable[[npt.NDArray[Any], int], npt.NDArray[Any]]
"""Lays out a table with room for so many entries."""

Place = tuple[int, int, str, tuple[int, ...]]
"""Which file, where it begins, its type and shape."""


def roomy(count: int, bits: int = 4) -> int:
    """Round a length up to so many significant bits, so that lengths which differ little become the same.

    >>> [roomy(count) for count in (1, 15, 17, 100, 101, 104, 60_000)]
    [1, 15, 18, 104, 104, 104, 61440]
    """
    step = 1 << max(0, count.bit_length() - bits)
    return -(-count // step) * step


def lay_here(table: npt.NDArray[Any], count: int, allocate: Allocate = np.zeros) -> npt.NDArray[Any]:
    """Return a table with room for so many entries; a list ends with its last again: no number is out of bounds."""
    if allocate is np.zeros and count == len(table):
        return table
    laid = allocate((count, *table.shape[1:]), table.dtype)
    laid[: len(table)] = table
    if table.ndim == 1 and len(table):
        laid[len(table) :] = table[-1]
    return laid


class MemoryFile:
    """An unnamed file in memory, closed with the last that uses it."""

    def __init__(self) -> None:
        self._number = -1
        if hasattr(os, "memfd_create"):
            self._number = os.memfd_create("rows")
        else:
            # Where there are no files in memory, one on the disk does as well: what is mapped stays in memory anyway.
            with tempfile.TemporaryFile() as file:
                self._number = os.dup(file.fileno())

    def fileno(self) -> int:
        """Return the number of the open file."""
        return self._number

    def close(self) -> None:
        """Let the file go; what is mapped stays as long as somebody has it mapped."""
        if self._number >= 0:
            os.close(self._number)
        self._number = -1

    __del__ = close


class _Mapped(mmap.mmap):
    """Mapped memory that knows the file it is of, and where in it it begins."""

    file: MemoryFile
    begin: int


class SharedRows:
    """The tables of a run: those laid into a file of its own, and large ones that lie in memory files already."""

    def __init__(self) -> None:
        """Begin with nothing in it."""
        self.file = MemoryFile()
        self.files = [self.file]
        self.size = 0
        self.layout: list[Place] = []

    def close(self) -> None:
        """Let the run's own file go."""
        self.file.close()

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
        """Make an array of zeros. What is never written takes no memory."""
        kind = np.dtype(dtype)
        length = max(1, kind.itemsize * math.prod(shape))
        begin, self.size = self.size, self.size + -(-length // ALIGNED) * ALIGNED
        os.ftruncate(self.file.fileno(), self.size)
        self.layout.append((0, begin, kind.str, shape))
        memory = _Mapped(self.file.fileno(), length, flags=mmap.MAP_SHARED, offset=begin)
        memory.file, memory.begin = self.file, begin
        return np.frombuffer(memory, kind, math.prod(shape)).reshape(shape)

    def lay(self, table: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
        """Lay out a table with room for so many entries: where it lies already, or as a copy."""
        roomier = _with_room(table, count)
        if roomier is None:
            return lay_here(table, count, self.allocate)
        memory = _memory_of(table)
        assert memory is not None  # noqa: S101  it has room
        if memory.file not in self.files:
            self.files.append(memory.file)
        self.layout.append((self.files.index(memory.file), memory.begin, table.dtype.str, roomier.shape))
        return roomier


def make_room(shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
    """Return an array to write rows into; a large one lies in a memory file, with room behind it."""
    if math.prod(shape) * np.dtype(dtype).itemsize < LARGE:
        return np.empty(shape, dtype)
    return SharedRows().allocate((roomy(shape[0]), *shape[1:]), dtype)[: shape[0]]


def lay_in_place(table: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """Lay out a table in this process: a large one stays where it is."""
    roomier = _with_room(table, count)
    return lay_here(table, count) if roomier is None else roomier


def _memory_of(table: npt.NDArray[Any]) -> _Mapped | None:
    """Return the mapped memory at whose beginning a table lies, if there is one."""
    whole = table
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    memory = whole.base.obj if isinstance(whole.base, memoryview) else whole.base
    begins = table.flags.c_contiguous and table.ctypes.data == whole.ctypes.data and table.dtype == whole.dtype
    return memory if isinstance(memory, _Mapped) and begins else None


def _with_room(table: npt.NDArray[Any], count: int) -> npt.NDArray[Any] | None:
    """Return a table with the zeros that lie behind it in its memory; None where there are not as many."""
    memory = _memory_of(table) if table.ndim > 1 else None
    length = count * math.prod(table.shape[1:])
    if memory is None or count < len(table) or length * table.itemsize > len(memory):
        return None
    return np.frombuffer(memory, table.dtype, length).reshape(count, *table.shape[1:])


def map_rows(files: Sequence[int], layout: Sequence[Sequence[Any]]) -> list[npt.NDArray[Any]]:
    """Map the arrays of another process, in the order they were laid, to be read."""
    sizes = [os.fstat(file).st_size for file in files]
    found = []
    for file, begin, kind, shape in layout:
        length = np.dtype(kind).itemsize * math.prod(shape)
        if begin + length > sizes[file]:
            raise ValueError(f"an array of {shape} at {begin} is outside")
        memory = mmap.mmap(files[file], max(1, length), mmap.MAP_SHARED, mmap.PROT_READ, offset=begin)
        found.append(np.frombuffer(memory, kind, math.prod(shape)).reshape(tuple(shape)))
    return found
