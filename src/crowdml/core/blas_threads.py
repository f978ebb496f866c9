"""Linear algebra with one thread for a while, also in a process that has loaded NumPy long before.

To fold in a check-in is a few products of vectors. OpenBLAS shares each of them out to all cores, and its threads go on
turning for a while after they are done. `crowdml serve` asks for one thread before NumPy is loaded; a server inside
another program, and a simulation in NumPy, ask the library that is loaded, and let go at their end.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_NAMES = tuple(f"{begin}openblas_{{}}_num_threads{end}" for begin in ("scipy_", "") for end in ("64_", ""))
"""How builds of OpenBLAS call the two functions; NumPy and SciPy bring one each."""


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let every OpenBLAS that is loaded use one thread; leave it as it was found.

    Whoever has said how many threads there shall be, by OPENBLAS_NUM_THREADS, is obeyed.
    """
    if "OPENBLAS_NUM_THREADS" in os.environ:
        yield
        return
    found = [(library, name, _call(library, name, "get")) for library, name in _loaded()]
    for library, name, _ in found:
        _call(library, name, "set", 1)
    try:
        yield
    finally:
        for library, name, before in found:
            _call(library, name, "set", before)


def _loaded() -> list[tuple[ctypes.CDLL, str]]:
    """List the libraries by the names of their functions; none where the system does not tell what is loaded."""
    if not _MAPS.exists():
        return []
    paths = sorted({line.split(maxsplit=5)[5] for line in _MAPS.read_text().splitlines() if "openblas" in line})
    libraries = [ctypes.CDLL(path) for path in paths]
    return [(library, name) for library in libraries for name in _NAMES if hasattr(library, name.format("set"))]


def _call(library: ctypes.CDLL, name: str, what: str, *given: int) -> int:
    return int(getattr(library, name.format(what))(*given))
