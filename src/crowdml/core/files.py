"""Files and folders: checked before hours are spent, written whole or not at all, secrets for their owner alone."""

from __future__ import annotations

import io
import os
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crowdml.core import portable
from crowdml.core.errors import BadInput


def cache_home() -> Path:
    """Return the folder where this user's programs keep what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crowdml"


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
    try:
        tempfile.TemporaryFile(dir=folder).close()  # rights alone do not tell of file systems that take nothing
    except OSError as error:
        raise BadInput(
            f"{path} cannot be written: {error.strerror or error}", hint="choose a place where you may write"
        ) from None


def read_text(path: Path, hint: str) -> str:
    """Read a file of text, or say what is in its place.

    Args:
        path: The file.
        hint: What should be given.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")  # some editors mark their files so
    except FileNotFoundError:
        if path.is_symlink():
            raise BadInput(
                f"{path} is a link to {os.readlink(path)}, which is not there", hint="copy the file itself: cp -L"
            ) from None
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


def write_whole(path: Path, content: bytes, *, secret: bool = False, lasting: bool = True) -> None:
    """Write a file entirely or not at all; a secret one can be read by its owner alone.

    Args:
        path: The file.
        content: Everything in it.
        secret: Whether others may not read it.
        lasting: Whether to wait until it would outlast a power cut. Without, one may leave any part of it.
    """
    writable(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            if lasting:
                os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o600 if secret else 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def require_private(folder: Path, where: str) -> bool:
    """Close an existing folder to others, or refuse it; return whether it was open to them before.

    Args:
        folder: The folder.
        where: The option that names it.
    """
    if portable.WINDOWS:
        # Rights are no bits of a mode there: a folder in the user's profile is closed to others, and none is changed.
        return False
    try:
        found = folder.stat()
        if not found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            return False
        if found.st_mode & stat.S_IWOTH:
            # Others may have put something there already, and it is surely not meant for one program alone.
            raise BadInput(
                f"everybody may write in {folder}", where=where, hint="give a folder of its own, such as one below it"
            )
        if found.st_uid != os.geteuid():
            raise BadInput(
                f"{folder} is open to others, and belongs to another user",
                where=where,
                hint=f"chown it to the user that runs this, and chmod 700 {folder}",
            )
        folder.chmod(0o700)
    except OSError as error:
        raise BadInput(f"{folder} cannot be closed to others: {error.strerror}", where=where) from None
    return True


def save_figure(figure: Any, path: Path) -> None:
    """Write a matplotlib figure in the format that the file's name asks for."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix.removeprefix("."))
    write_whole(path, drawn.getvalue())


@contextmanager
def sqlite_errors() -> Iterator[None]:
    """Let what SQLite says of a damaged file be an error of SQLite's, even where its own words are no text.

    It names what it cannot read. Where a name was damaged, Python fails to decode the sentence, and raises that.
    """
    try:
        yield
    except UnicodeDecodeError:
        raise sqlite3.DatabaseError("a name in it is damaged") from None
