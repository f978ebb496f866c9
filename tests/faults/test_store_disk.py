"""A disk that fails under SQLite: nothing is acknowledged that may be lost, and the store says that it is finished."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crowdml.server.store import NewTask, open_store

SERVER = """
import os, sys
from crowdml.server.store import Applied, Receipt, StoreFailed, open_store

store = open_store(sys.argv[1])
task = store.tasks()[0]
try:
    for at in range(task.version, task.version + 200):
        receipt = Receipt(slot=0, key=f"{at:08d}", body=b"b", number=at + 1, version=at + 1, started=at,
                          status="applied")
        store.apply(Applied(task=task.id, expected_version=at, expected_check_ins=at, version=at + 1, check_ins=at + 1,
                            received=0, server_state=b"%d" % (at + 1), rows={}, receipts=[receipt]))
        os.write(1, b"%d\\n" % (at + 1))
except StoreFailed as first:
    try:
        store.tasks()
    except StoreFailed:
        os._exit(42)
"""

FAULTS = {
    "a failed fdatasync": "fdatasync:error=EIO:when=20",
    "a failed write": "pwrite64:error=EIO:when=100",
    "a full disk": "pwrite64:error=ENOSPC:when=100",
}


@pytest.fixture
def tracer() -> str:
    found = shutil.which("strace")
    if found is None:
        pytest.skip("strace is not installed")
    probe = subprocess.run([found, "-o", "/dev/null", "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"strace may not trace here: {probe.stderr.decode(errors='replace').strip()}")
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_disk_ends_the_store(tmp_path: Path, tracer: str, fault: str) -> None:
    path = tmp_path / "crowd.sqlite"
    with open_store(f"sqlite:///{path}") as store:
        store.create_task(
            NewTask(name="task", state="open", file="", signed_text=b"", signature=b"", key=b"", server_state=b"0")
        )
    # Only what happens to the database's own files counts.
    files = [part for end in ("", "-wal") for part in ("-P", f"{path}{end}")]
    traced = [tracer, "-f", "-qq", "-o", str(tmp_path / "trace"), *files, "-e", "trace=pwrite64,fdatasync,fsync"]
    inject = ["-e", f"inject={FAULTS[fault]}"]
    command = [*traced, *inject, sys.executable, "-c", SERVER, f"sqlite:///{path}"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert "INJECTED" in (tmp_path / "trace").read_text(), "the fault was never met"
    assert done.returncode == 42, done.stderr.decode(errors="replace")
    acknowledged = [int(line) for line in done.stdout.split()]
    with open_store(f"sqlite:///{path}") as store:
        (task,) = store.tasks()
        assert acknowledged[-1] <= task.version <= acknowledged[-1] + 1
        assert task.server_state == b"%d" % task.version
        keys = [(0, f"{at:08d}") for at in range(task.version + 2)]
        assert set(store.receipts_for(task.id, keys)) == set(keys[: task.version])
