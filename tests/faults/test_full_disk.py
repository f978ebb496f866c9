"""Commands that find their disk full say so in a sentence, wherever the room ends; with room again they go on."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server import Server

PAGES = (0, 1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96)
"""Room on the disk, in pages of 4 KiB: a start needs a few dozen."""

# Everything is imported once, each start is a fork of it on a disk of its own, and none of them serves.
STARTS = """
import os, subprocess, sys
import crowdml.server.setup.application, crowdml.server.setup.framework
import crowdml.server.setup.serving, crowdml.server.setup.serve_options
import sqlalchemy, alembic.command, alembic.config
crowdml.server.setup.serving.serve = lambda *_: None
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


@pytest.mark.parametrize(
    "place",
    [
        "crowdml.server.tasks.operator.operator_token.write_whole",
        "pathlib.Path.mkdir",
        "crowdml.cli.operator.write_whole",
    ],
)
def test_whatever_a_start_cannot_write_ends_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    from crowdml.cli import main

    monkeypatch.setattr("crowdml.server.setup.serving.serve", lambda *_: None)
    monkeypatch.setattr(place, full)
    monkeypatch.setattr(sys, "argv", ["crowdml", "serve", "--home", str(tmp_path / "home"), "--port", "0"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "No space left on device" in capsys.readouterr().err


# A device at work, on a disk of its own that gets full between two releases. Its server is on another.
OWNER = """
import os, subprocess, sys
import crowdml.cli.device_output, crowdml.device, crowdml.server.store.backups, httpx
from crowdml.cli import main
disk, folder, link = sys.argv[1:]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True)
def crowdml(*arguments):
    # Everything is imported once, each command is a fork of it.
    pid = os.fork()
    if pid == 0:
        output = os.open(f"{folder}/said", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.argv = ["crowdml", *arguments]
        main()
        sys.exit(0)
    _, status = os.waitpid(pid, 0)
    with open(f"{folder}/said") as said:
        print(os.waitstatus_to_exitcode(status), said.read().replace(chr(10), " "), flush=True)
release = ("device", "run", "--rows", f"{folder}/rows.csv", "--home", f"{disk}/device", "--releases", "1")
crowdml("device", "join", link, "--home", f"{disk}/device", "--yes", "--quiet")
crowdml(*release)
with open(f"{disk}/filler", "wb", buffering=0) as filler:
    try:
        while True:
            filler.write(bytes(4096))
    except OSError:
        pass
crowdml(*release)
crowdml("device", "join", link, "--home", f"{disk}/another", "--yes", "--quiet")
crowdml("task", "export", "walk-1", "--home", f"{folder}/server", "--output", f"{disk}/walk.safetensors")
crowdml("backup", f"{disk}/walk.backup", "--home", f"{folder}/server")
subprocess.run(["rm", f"{disk}/filler"], check=True)
crowdml(*release)
crowdml("device", "ledger", "--verify", "--home", f"{disk}/device")
"""


def test_what_owners_and_operators_do_on_a_full_disk_ends_with_a_sentence(
    tmp_path: Path, own_mounts: list[str]
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "server").mkdir()
    lines = [f"{number % 2},{number / 40},1,{['standing', 'walking'][number % 2]}\n" for number in range(40)]
    (tmp_path / "rows.csv").write_text("a,b,c,label\n" + "".join(lines))
    server = Server(tmp_path / "server")
    try:
        server.open()
        command = [*own_mounts, sys.executable, "-c", OWNER, str(disk), str(tmp_path), server.invite()]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    finally:
        server.kill()
    joined, first, *refused, again, verified = done.stdout.splitlines()
    assert joined.startswith("0 ") and first.startswith("0 "), done.stdout
    assert [line[:9] for line in refused] == ["2 error: "] * 4, done.stdout
    for line in refused[:3]:
        assert ("disk is full" in line or "No space left" in line) and "run the same command again" in line
    assert f"{disk} has no room for a copy" in refused[3]
    assert again.startswith("0 ") and "used, 0 refused" in again
    assert verified.startswith("0 ") and "each with a charge here" in verified
