"""Power cuts: what a disk may hold at any moment, replayed from a log of all writes and syncs of a real run.

A file's writes up to its last sync are on disk. Of later ones any may be missing, and any may be torn between sectors
of 512 bytes. A file's removal is on disk once anything was synced after it. The ledger opened from such an image must
know every release that was sent before the cut. With `synchronous=NORMAL` it would not: that is the control.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crowdml.core import record
from crowdml.core.errors import TermsViolated
from crowdml.device import Ledger

Traced = Callable[..., "subprocess.CompletedProcess[str]"]

IMAGES = int(os.environ.get("CROWDML_POWER_CUTS", "200"))
"""`make soak-short` asks for 10,000."""
RELEASES = 8
SECTOR = 512
CALLS = "pwrite64,write,fdatasync,fsync,ftruncate,unlink"
LINE = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)")
TOUCHED = re.compile(r'^(?:\d+<([^>]*)>|"([^"]*)")')


@record
class Call:
    """One call on one file: a write, a sync, a cut to a length, a removal; or a release that was sent."""

    kind: str
    name: str
    place: int = 0
    data: bytes = b""


def recorded(traced: Traced, folder: Path, level: str) -> list[Call]:
    """Run the device twice, the second time on the ledger that the first has closed, and read the log."""
    calls: list[Call] = []
    for run in (1, 2):
        log = folder / f"log-{run}"
        options = ["-y", "-xx", "-s", "100000", "-o", log, "-e", f"trace={CALLS}"]
        ran = traced(options, folder / "ledger.sqlite", folder / "sent", RELEASES, level)
        assert ran.returncode == 0, ran.stderr
        calls += [call for line in log.read_text().splitlines() for call in parsed(line, folder)]
    return calls


def parsed(line: str, folder: Path) -> list[Call]:
    """Read one line of the log; other files do not matter, nor does SQLite's shared memory, which is never trusted."""
    found = LINE.match(line)
    touched = found and TOUCHED.match(found[2])
    if not found or not touched or int(found[3]) < 0:
        return []
    path = Path(unquoted(touched[1] or touched[2]).decode())
    if path.parent != folder or path.name.endswith("-shm"):
        return []
    kind, rest = found[1], found[2][touched.end() :]
    if path.name == "sent":
        return [Call(kind="sent", name=text_of(rest).decode().split()[0])]
    if kind == "pwrite64":
        return [Call(kind="write", name=path.name, place=int(rest.rsplit(", ", 1)[1]), data=text_of(rest))]
    if kind == "ftruncate":
        return [Call(kind="cut", name=path.name, place=int(rest.rsplit(", ", 1)[1]))]
    return [Call(kind="removed" if kind == "unlink" else "synced", name=path.name)]


def text_of(rest: str) -> bytes:
    return unquoted(rest.split('"')[1])


def unquoted(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def image(calls: list[Call], chance: random.Random) -> dict[str, bytes]:
    """Return what a disk may hold after these calls."""
    last_sync = max((at for at, call in enumerate(calls) if call.kind == "synced"), default=-1)
    files: dict[str, bytearray] = {}
    for name in {call.name for call in calls if call.kind not in ("sent", "removed")}:
        of_file = [(at, call) for at, call in enumerate(calls) if call.name == name]
        certain = max((at for at, call in of_file if call.kind == "synced"), default=-1)
        content: bytearray | None = bytearray()
        for at, call in of_file:
            if call.kind == "removed":
                content = None if at < last_sync or chance.random() < 0.5 else content
            elif call.kind != "synced":
                content = applied(bytearray() if content is None else content, call, at <= certain, chance)
        if content is not None:
            files[name] = content
    return {name: bytes(content) for name, content in files.items()}


def applied(content: bytearray, call: Call, certain: bool, chance: random.Random) -> bytearray:
    """Apply a write or a cut to a length: surely, or by chance in whole or in part."""
    if not certain and chance.random() < 0.5:
        return content
    if call.kind == "cut":
        return content[: call.place].ljust(call.place, b"\0")
    end = call.place + len(call.data)
    content = content.ljust(end, b"\0") if len(content) < end else content
    torn = not certain and chance.random() < 0.5
    for begin in range(call.place, end, SECTOR):
        if not torn or chance.random() < 0.5:
            stop = min(begin + SECTOR, end)
            content[begin:stop] = call.data[begin - call.place : stop - call.place]
    return content


def lost(calls: list[Call], folder: Path, chance: random.Random) -> int:
    """Return how many images, cut at random moments, do not know a release that was sent, or cannot be opened."""
    losses = 0
    for number in range(IMAGES):
        done = calls[: chance.randint(1, len(calls))]
        place = folder / str(number)
        place.mkdir()
        for name, content in image(done, chance).items():
            (place / name).write_bytes(content)
        sent, charged = {call.name for call in done if call.kind == "sent"}, known(place / "ledger.sqlite")
        losses += charged is None or not sent <= charged
    return losses


def known(path: Path) -> set[Any] | None:
    """Open the ledger of an image, which verifies it, and return the keys of its charges; None where it is refused."""
    try:
        with Ledger(path) as ledger:
            return {entry["key"] for entry in map(json.loads, ledger.entries()) if entry["kind"] == "charge"}
    except TermsViolated:
        return None


def test_no_power_cut_loses_what_was_sent(traced: Traced, tmp_path: Path) -> None:
    calls = recorded(traced, tmp_path, "FULL")
    assert sum(call.kind == "sent" for call in calls) == 2 * RELEASES
    assert lost(calls, tmp_path, random.Random(1)) == 0


def test_the_control_with_weaker_syncs_loses_releases(traced: Traced, tmp_path: Path) -> None:
    """Else the images would prove nothing. Three in four are lost, so half of 200 by chance is 8 deviations away."""
    calls = recorded(traced, tmp_path, "NORMAL")
    assert lost(calls, tmp_path, random.Random(2)) > IMAGES / 2
