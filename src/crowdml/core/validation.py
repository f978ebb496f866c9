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


def read_text(path: Path, hint: str) -> str:
    """Read a file of text, or say what is in its place.

    Args:
        path: The file.
        hint: What should be given.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")  # some editors mark their files so
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}", hint=hint) from None
    except IsADirectoryError:
        raise BadInput(f"{path} is a folder", hint=hint) from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not a file of text", hint=hint) from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None


def make_folder(path: Path, where: str) -> None:
    """Make a folder for its owner alone, if it is not there, or say why that cannot be.

    Args:
        path: The folder.
        where: The option that named it.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise BadInput(f"{path} is a file", where=where, hint="give a folder") from None
    except OSError as error:
        raise BadInput(
            f"{path} cannot be made: {error.strerror}", where=where, hint="choose a place where you may write"
        ) from None


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
