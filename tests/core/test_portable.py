"""Files on other systems: the ways of Windows, as far as they can be tried elsewhere."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from crowdml.core import portable
from crowdml.core.files import require_private


def stand_in() -> types.ModuleType:
    """A `msvcrt` whose lock is this system's; it has the function and the constant that are used."""
    made = types.ModuleType("msvcrt")

    def locking(handle: int, mode: int, size: int) -> None:
        assert (mode, size, os.lseek(handle, 0, os.SEEK_CUR)) == (2, 1, 0)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    made.LK_NBLCK = 2  # type: ignore[attr-defined]
    made.locking = locking  # type: ignore[attr-defined]
    return made


@pytest.fixture(params=[False, True], ids=["here", "windows"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param:
        monkeypatch.setattr(portable, "WINDOWS", True)
        monkeypatch.setitem(sys.modules, "msvcrt", stand_in())
    return bool(request.param)


def test_a_file_is_locked_once_and_free_when_closed(system: bool, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with open(path, "rb") as first, open(path, "rb") as second:
        portable.lock_alone(first.fileno())
        with pytest.raises(OSError):
            portable.lock_alone(second.fileno())
        first.close()
        portable.lock_alone(second.fileno())


def test_places_of_a_file_are_written_and_read(system: bool, tmp_path: Path) -> None:
    handle = os.open(tmp_path / "head", os.O_RDWR | os.O_CREAT | portable.PLAIN_FLAGS, 0o600)
    assert portable.write_at(handle, b"second", 8) == 6 and portable.write_at(handle, b"first", 0) == 5
    assert (portable.read_at(handle, 6, 8), portable.read_at(handle, 5, 0)) == (b"second", b"first")
    assert portable.read_at(handle, 5, 100) == b""
    os.close(handle)


def test_folders(system: bool, tmp_path: Path) -> None:
    portable.sync_folder(tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o755)
    # Where rights are no bits of a mode, none is changed.
    assert require_private(tmp_path / "home", "--home") is not system
    assert (tmp_path / "home").stat().st_mode & 0o777 == (0o755 if system else 0o700)


def test_the_device_needs_nothing_that_windows_lacks() -> None:
    """Without fcntl, geteuid and pread the device can be imported, and a ledger kept."""
    program = (
        "import os, sys\n"
        "sys.modules['fcntl'] = None\n"
        "for name in ('geteuid', 'getuid', 'pread', 'pwrite', 'O_CLOEXEC'): delattr(os, name)\n"
        "from crowdml.core import portable\n"
        "portable.WINDOWS = True\n"
        "import crowdml.cli.device\n"
        "from crowdml.device import Device, Ledger\n"
        "with Ledger(sys.argv[1]) as ledger: assert ledger.entries() is not None\n"
        "with Ledger(sys.argv[1]) as ledger: pass\n"
    )
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", program, f"{folder}/ledger.sqlite"]
        ran = subprocess.run(command, text=True, capture_output=True)
    assert ran.returncode == 0, ran.stderr
