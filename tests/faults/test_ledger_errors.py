"""Errors and kills at single system calls of a device's ledger: nothing is ever sent that was not charged.

The calls of one scenario (make a ledger, accept, charge and send three releases, close) are counted first. Then the
same scenario meets a fault at some of them. It must fail or finish, never pretend; whatever was sent is in the ledger;
and the device can go on from there.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from crowdml.device import Ledger
from crowdml.privacy import Event, Filter
from crowdml.privacy.ledger.entries import AcceptedTerms

Traced = Callable[..., "subprocess.CompletedProcess[str]"]
Check = Callable[[Path, Path], int]

TERMS = AcceptedTerms(
    unit="device", filter=Filter(kind="pure", epsilon=1e6, delta=0.0), uses=1_000_000, event=Event.of_pure(0.5)
)
NAMES = ("pwrite64", "fdatasync", "write")
RELEASES = 3
POINTS = 5

_counted: dict[str, int] = {}


def places(traced: Traced, folder: Path, name: str) -> list[int]:
    """Choose calls to fail at: the first and the last of the scenario, and evenly between."""
    if not _counted:
        log = folder / "count.log"
        ran = traced(["-o", log, "-e", "trace=" + ",".join(NAMES)], folder / "counted", folder / "sent", RELEASES)
        assert ran.returncode == 0, ran.stderr
        for called in NAMES:
            _counted[called] = len(re.findall(rf"^\d+ +{called}\(", log.read_text(), re.MULTILINE))
    return sorted({1 + (_counted[name] - 1) * at // (POINTS - 1) for at in range(POINTS)})


def faulty(traced: Traced, folder: Path, fault: str) -> tuple[Path, Path, subprocess.CompletedProcess[str]]:
    """Run the scenario in a new folder with one fault."""
    folder.mkdir()
    path, sent = folder / "ledger.sqlite", folder / "sent"
    name = fault.partition(":")[0]
    return path, sent, traced(["-o", "/dev/null", "-e", f"trace={name}", "-e", f"inject={fault}"], path, sent, RELEASES)


def releases(sent: Path) -> int:
    """Count what was sent; sent again is the same release."""
    return len(set(sent.read_text().splitlines())) if sent.exists() else 0


def goes_on(path: Path) -> None:
    """Charge once more, as the device does after a restart."""
    with Ledger(path) as ledger:
        ledger.accept("task", "hash", TERMS)
        for entry in ledger.unsettled():
            assert ledger.charge(entry.task, entry.key, entry.body, version=0) == entry.body
            ledger.settle(entry.key)
        before = ledger.chain.tasks["task"].releases
        ledger.charge("task", "one more", b"bytes", version=0)
        assert ledger.spent("task").epsilon == 0.5 * (before + 1)


@pytest.mark.parametrize("fault", ["fdatasync:error=EIO", "pwrite64:error=ENOSPC", "pwrite64:error=EIO"])
def test_an_error_fails_the_charge_and_the_process(traced: Traced, check: Check, tmp_path: Path, fault: str) -> None:
    failed = 0
    for number in places(traced, tmp_path, fault.partition(":")[0]):
        path, sent, ran = faulty(traced, tmp_path / str(number), f"{fault}:when={number}")
        failed += ran.returncode != 0
        if ran.returncode:
            assert re.search(r"sqlite3\.\w*Error|OSError", ran.stderr), ran.stderr
        else:
            # Only what follows the last send may fail in silence: closing moves the log into the file, or leaves it.
            assert releases(sent) == RELEASES
        check(path, sent)
        goes_on(path)
    assert failed >= POINTS - 2, "the faults did not reach the charges"


@pytest.mark.parametrize("name", NAMES)
def test_a_kill_at_any_call_leaves_a_ledger_that_knows_all_that_was_sent(
    traced: Traced, check: Check, tmp_path: Path, name: str
) -> None:
    for number in places(traced, tmp_path, name):
        path, sent, ran = faulty(traced, tmp_path / str(number), f"{name}:signal=KILL:when={number}")
        assert ran.returncode != 0
        check(path, sent)
        goes_on(path)


def test_a_fault_that_is_not_there_changes_nothing(traced: Traced, check: Check, tmp_path: Path) -> None:
    """The control: the scenario itself sends everything."""
    path, sent, ran = faulty(traced, tmp_path / "none", "fdatasync:error=EIO:when=60000")
    assert ran.returncode == 0 and releases(sent) == check(path, sent) == RELEASES
