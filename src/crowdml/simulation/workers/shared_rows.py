"""Rows in memory that processes share: written once, mapped by every worker, gone with the last of them."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

ALIGNED = 4096
"""XLA takes an array as it lies there if it begins at a multiple of 64; a page is one."""


class SharedRows:
    """An unnamed file in memory, and the arrays that were laid into it."""

    def __init__(self) -> None:
        """Begin with nothing in it."""
        # Where there are no files in memory, one on the disk does as well: what is mapped stays in memory anyway.
        self.file = (
            os.fdopen(os.memfd_create("rows"), "r+b") if hasattr(os, "memfd_create") else tempfile.TemporaryFile()
        )
        self.size = 0
        self.layout: list[tuple[int, str, tuple[int, ...]]] = []

    def close(self) -> None:
        """Let the file go; what is mapped stays as long as somebody has it mapped."""
        self.file.close()

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
        """Make an array of zeros in it. What is never written takes no memory."""
        kind = np.dtype(dtype)
        length = max(1, kind.itemsize * math.prod(shape))
        begin, self.size = self.size, self.size + -(-length // ALIGNED) * ALIGNED
        os.ftruncate(self.file.fileno(), self.size)
        self.layout.append((begin, kind.str, shape))
        return _mapped(self.file.fileno(), begin, kind.str, shape, mmap.PROT_READ | mmap.PROT_WRITE)


def map_rows(file: int, layout: Sequence[Sequence[Any]]) -> list[npt.NDArray[Any]]:
    """Map the arrays of another process, in the order they were made, to be read."""
    size = os.fstat(file).st_size
    found = []
    for begin, kind, shape in layout:
        if begin + np.dtype(kind).itemsize * math.prod(shape) > size:
            raise ValueError(f"an array of {shape} at {begin} is outside")
        found.append(_mapped(file, begin, kind, tuple(shape), mmap.PROT_READ))
    return found


def _mapped(file: int, begin: int, kind: str, shape: tuple[int, ...], access: int) -> npt.NDArray[Any]:
    length = max(1, np.dtype(kind).itemsize * math.prod(shape))
    memory = mmap.mmap(file, length, flags=mmap.MAP_SHARED, prot=access, offset=begin)
    return np.frombuffer(memory, kind, math.prod(shape)).reshape(shape)
