"""kill -9 at any moment: whatever the store acknowledged is there, whole, and counted once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from crowdml.core import BadInput
from crowdml.server.store import NewDevice, NewTask, open_store

DEVICES = 3

SERVER = """
import os, sys
from crowdml.server.store import Applied, Receipt, batch_writes, open_store

batch_writes.EVERY = 40
acknowledged = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
store = open_store(sys.argv[1])
task = store.tasks()[0]
version, count = task.version, task.check_ins
numbers = [device.check_ins for device in store.devices(task.id)]
print("ready", flush=True)
while True:
    receipts = []
    for at in range(count, count + 1 + version % 7):
        slot = at % len(numbers)
        numbers[slot] += 1
        receipts.append(Receipt(slot=slot, key=f"{at:08d}", body=b"b" * 32, number=numbers[slot], version=version + 1,
                                started=version, status="applied"))
    store.apply(Applied(task=task.id, expected_version=version, expected_check_ins=count, version=version + 1,
                        check_ins=count + len(receipts), received=0, server_state=b"%d" % (version + 1),
                        rows={receipt.slot: b"%d" % receipt.number for receipt in receipts}, receipts=receipts))
    version, count = version + 1, count + len(receipts)
    os.write(acknowledged, b"%d %d\\n" % (version, count))
"""


@pytest.fixture
def acknowledged(tmp_path: Path) -> Path:
    path = tmp_path / "acknowledged"
    path.touch()
    return path


def make(url: str) -> None:
    """Store a task with a few devices."""
    with open_store(url) as store:
        empty = NewTask(name="task", state="open", file="", signed_text=b"", signature=b"", key=b"", server_state=b"0")
        task = store.create_task(empty).id
        store.add_invites(task, [bytes([slot]) for slot in range(DEVICES)])
        for slot in range(DEVICES):
            device = NewDevice(id=str(slot), token_hash=b"", public_key=bytes([slot]), joined=0.0)
            store.use_invite(task, bytes([slot]), device)


def start(url: str, acknowledged: Path) -> subprocess.Popen[bytes]:
    """Start a server that applies batches for ever; wait until it does."""
    command = [sys.executable, "-c", SERVER, url, str(acknowledged)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    process.stdout.close()
    return process


def wait_for_one_more(acknowledged: Path) -> None:
    """Wait until another batch is acknowledged."""
    before = acknowledged.stat().st_size
    while acknowledged.stat().st_size == before:
        time.sleep(0.005)


def check(url: str, acknowledged: Path, before: int = 0) -> int:
    """Compare what is stored with what was acknowledged, and was there before; return the version."""
    lines = acknowledged.read_text().splitlines()
    with open_store(url) as store:
        (task,) = store.tasks()
        version, count = map(int, lines[-1].split()) if lines else (0, 0)
        assert task.version >= max(version, before), "an acknowledged batch is lost"
        # A killed server leaves at most one batch that is stored and was not acknowledged any more.
        assert task.version <= max(version, before) + 1
        assert count <= task.check_ins
        assert task.server_state == b"%d" % task.version
        keys = [(at % DEVICES, f"{at:08d}") for at in range(task.check_ins + 10)]
        assert set(store.receipts_for(task.id, keys)) == set(keys[: task.check_ins])
        for device in store.devices(task.id):
            expected = len(range(device.slot, task.check_ins, DEVICES))
            assert device.check_ins == expected
            assert [receipt.number for receipt in store.receipts(device.id, limit=10**9)] == list(
                range(1, expected + 1)
            )
            assert store.rows(task.id).get(device.slot, b"0") == b"%d" % expected
        return task.version


def kill_often(url: str, acknowledged: Path, cycles: int) -> None:
    chance = random.Random(11)
    versions = [0]
    for cycle in range(cycles):
        process = start(url, acknowledged)
        if cycle % 2:
            wait_for_one_more(acknowledged)
        time.sleep(chance.random() * 0.1)
        process.send_signal(signal.SIGKILL)
        process.wait()
        versions.append(check(url, acknowledged, versions[-1]))
    assert versions[-1] >= cycles // 2


def test_nothing_acknowledged_is_lost_in_sqlite(tmp_path: Path, acknowledged: Path) -> None:
    url = f"sqlite:///{tmp_path}/crowd.sqlite"
    make(url)
    kill_often(url, acknowledged, cycles=6)


@pytest.mark.postgres
def test_nothing_acknowledged_is_lost_in_postgres(postgres: Any, acknowledged: Path) -> None:
    url = postgres.database()
    make(url)
    kill_often(url, acknowledged, cycles=3)


@pytest.mark.postgres
def test_nothing_acknowledged_is_lost_when_postgres_itself_crashes(postgres: Any, acknowledged: Path) -> None:
    url = postgres.database()
    make(url)
    version = 0
    for _ in range(2):
        process = start(url, acknowledged)
        wait_for_one_more(acknowledged)
        postgres.stop("immediate")
        # The server notices, raises StoreFailed and ends.
        assert process.wait(60) == 1
        postgres.start()
        version = check(url, acknowledged, version)
        assert version > 0


def test_a_store_whose_process_was_killed_can_be_opened_at_once(tmp_path: Path, acknowledged: Path) -> None:
    url = f"sqlite:///{tmp_path}/crowd.sqlite"
    make(url)
    process = start(url, acknowledged)
    with pytest.raises(BadInput, match="another server"):
        open_store(url)
    process.kill()
    process.wait()
    open_store(url).close()
