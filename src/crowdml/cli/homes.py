"""Where the command line keeps things of the server, and how it speaks to one."""

from __future__ import annotations

import os
from pathlib import Path


def data_home() -> Path:
    """Return the user's data folder."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "crowdml"


def server_home(given: Path | None, make: bool = False) -> Path:
    """Return the server's folder."""
    folder = given or data_home() / "server"
    if make:
        from crowdml.cli.output import say
        from crowdml.core.private_folders import require_private
        from crowdml.core.validation import make_folder

        make_folder(folder, "--home")
        if require_private(folder, "--home"):
            say(f"note: others could look into {folder}; it is closed to them now (mode 0700)")
    return folder


def database_url(home: Path | None, db: str | None, make: bool = False) -> str:
    """Return the address of the server's database."""
    return db or f"sqlite:///{server_home(home, make) / 'crowdml.sqlite'}"
