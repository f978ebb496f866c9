"""Checks that read alike everywhere: `positive(batch=0)` says what is wrong and what would be right."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path

from crowdml.core.errors import BadInput


def positive(**values: float) -> None:
    """Require finite values above zero.

    >>> positive(batch=20)
    """
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise BadInput(f"{name} must be above zero, not {value}")


def writable(path: Path) -> None:
    """Require that a file can be written here, before hours are spent on what goes into it."""
    if path.is_dir():
        raise BadInput(f"{path} is a folder", hint="give the name of a file")
    if path.exists() and not path.is_file():
        raise BadInput(f"{path} is a pipe or a device", hint="give the name of a file, or - for standard output")
    folder = path.parent
    if not folder.is_dir():
        raise BadInput(f"the folder {folder} does not exist", hint="make it first, or choose another place")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise BadInput(f"{path} cannot be written", hint="choose a place where you may write")


def write_whole(path: Path, content: bytes, *, secret: bool = False) -> None:
    """Write a file entirely or not at all; a secret one can be read by its owner alone."""
    writable(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o600 if secret else 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
