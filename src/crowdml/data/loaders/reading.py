"""Reading files that someone else wrote: sizes are checked first, and every fault names the file."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import BadInput

DAMAGED = "fetch the file again; `crowdml data verify` compares it with its published checksum"


def damaged(path: Path, what: str) -> BadInput:
    """Say what is wrong with a file or folder, and what to do about it."""
    return BadInput(what, where=str(path), hint=DAMAGED)


def read_plain_or_gz(path: Path, limit: int) -> bytes:
    """Read a file, or the same file with `.gz` behind its name, up to a number of bytes.

    Args:
        path: The plain name; it is preferred if both exist.
        limit: More bytes than this, after decompression, are refused before they fill the memory.
    """
    packed = path.with_name(path.name + ".gz")
    found = path if path.is_file() else packed
    try:
        with _open(found, found == packed) as stream:
            content = stream.read(limit + 1)
    except FileNotFoundError:
        raise BadInput(f"there is neither {path.name} nor {packed.name}", where=str(path.parent)) from None
    except (OSError, EOFError, zlib.error) as fault:
        raise damaged(found, f"cannot be read: {fault}") from None
    if len(content) > limit:
        raise damaged(found, f"holds more than {limit} bytes")
    return content


def _open(path: Path, packed: bool) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if packed else open(path, "rb")


def read_exact(path: Path, size: int) -> bytes:
    """Read a file that must have exactly this many bytes."""
    found = path.stat().st_size if path.is_file() else -1
    if found != size:
        what = "is missing" if found < 0 else f"has {found} bytes instead of {size}"
        raise damaged(path, what)
    try:
        return path.read_bytes()
    except OSError as fault:
        raise damaged(path, f"cannot be read: {fault}") from None


def read_npz(path: Path, axes: Mapping[str, int], limit: int) -> dict[str, npt.NDArray[Any]]:
    """Read named arrays from an `.npz` archive, without ever unpickling.

    Args:
        path: The archive.
        axes: The arrays that are needed and how many axes each must have.
        limit: The archive's arrays together may not take more bytes than this.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > limit:
                raise damaged(path, f"unpacks to more than {limit} bytes")
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in axes}
    except FileNotFoundError:
        raise BadInput("is missing", where=str(path)) from None
    except (OSError, EOFError, KeyError, ValueError, zlib.error, zipfile.BadZipFile) as fault:
        raise damaged(path, f"is not the expected archive: {fault}") from None
    for name, expected in axes.items():
        if found[name].ndim != expected:
            raise BadInput(f'array "{name}" has {found[name].ndim} axes instead of {expected}', where=str(path))
    return found
