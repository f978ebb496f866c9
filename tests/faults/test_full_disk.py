"""A server started on a full disk says so in a sentence, wherever the room ends; with room again it starts."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = (0, 1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96)
"""Room on the disk, in pages of 4 KiB: a start needs a few dozen."""

# Everything is imported once, each start is a fork of it on a disk of its own, and none of them serves.
STARTS = """
import os, subprocess, sys
import crowdml.server.app, crowdml.server.framework, crowdml.server.serving, crowdml.server.reach
import crowdml.server.store.cold, crowdml.server.store.joining, alembic.command, alembic.config
crowdml.server.serving.serve = lambda *_: None
from crowdml.cli import main
folder, results, *pages = sys.argv[1:]
sys.argv = ["crowdml", "serve", "--home", f"{folder}/home", "--port", "0"]
for room in pages:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={4096 * (int(room) + 2)}", "tmpfs", folder], check=True)
    # What is left after this is as much room as was asked for.
    with open(f"{folder}/filler", "wb") as filler:
        filler.write(b"x" * 8192)
    pid = os.fork()
    if pid == 0:
        output = os.open(f"{results}/{room}", os.O_CREAT | os.O_WRONLY)
        os.dup2(output, 1)
        os.dup2(output, 2)
        main()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    with open(f"{results}/{room}", "a") as output:
        output.write(f"\\nexit code {os.waitstatus_to_exitcode(status)}")
    subprocess.run(["umount", folder], check=True)
"""


@pytest.fixture
def own_mounts() -> list[str]:
    """A command that runs another with mounts of its own."""
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    command = [unshare, "--mount", "--propagation", "private"]
    probe = subprocess.run([*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"nothing can be mounted here: {probe.stderr.strip()}")
    return command


def test_a_start_on_a_full_disk_ends_with_a_sentence(tmp_path: Path, own_mounts: list[str]) -> None:
    disk, results = tmp_path / "disk", tmp_path / "results"
    disk.mkdir()
    results.mkdir()
    command = [*own_mounts, sys.executable, "-c", STARTS, str(disk), str(results), *map(str, PAGES)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    said = {room: (results / str(room)).read_text() for room in PAGES}
    assert {room: text for room, text in said.items() if "Traceback" in text} == {}
    ended = [int(said[room].rpartition(" ")[2]) for room in PAGES]
    assert set(ended) == {0, 2} and ended == sorted(ended, reverse=True), "refused until there is room, then served"
    refused = [text for room, text in said.items() if text.endswith(" 2")]
    assert all("error: " in text for text in refused)
    assert all("No space left on device" in text or "disk is full" in text for text in refused), refused
    assert len({text.partition(":")[2].partition(" cannot")[0] for text in refused}) >= 2, "it ended at several places"


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "some file")


@pytest.mark.parametrize("place", ["pathlib.Path.write_text", "pathlib.Path.mkdir", "crowdml.cli.operator.write_whole"])
def test_whatever_a_start_cannot_write_ends_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    from crowdml.cli import main

    monkeypatch.setattr("crowdml.server.serving.serve", lambda *_: None)
    monkeypatch.setattr(place, full)
    monkeypatch.setattr(sys, "argv", ["crowdml", "serve", "--home", str(tmp_path / "home"), "--port", "0"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "No space left on device" in capsys.readouterr().err
