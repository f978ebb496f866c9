"""Folders that hold secrets: their owner alone may enter."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from crowdml.core.errors import BadInput


def require_private(folder: Path, where: str) -> bool:
    """Close an existing folder to others, or refuse it; return whether it was open to them before.

    Args:
        folder: The folder.
        where: The option that names it.
    """
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
