"""A kill at every write and every sync of a whole scenario, and power cuts at chance moments of it, for the server.

The scenario runs once, under strace, which logs what it does to its database. Who is killed leaves all that was written
so far: the file after the first k calls, for every k. Who loses power leaves less: see `test_power_loss.py`. A store
opened from such files must have everything that was acknowledged before, whole, once.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from crowdml.server.store import StoredDevice, StoredTask, open_store
from tests.faults.conftest import _why_not
from tests.faults.test_power_loss import CALLS, IMAGES, Call, applied, image, parsed

SCENARIO = Path(__file__).parent / "scenario.py"
DATABASE = "crowdml.sqlite"


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    """Run the scenario; return what it did to its database, and what it acknowledged, in their order."""
    if _why_not():
        pytest.skip(_why_not())
    folder = tmp_path_factory.mktemp("scenario")
    log = folder / "log"
    traced = ["strace", "-f", "--seccomp-bpf", "-y", "-xx", "-s", "200000", "-o", str(log), "-e", f"trace={CALLS}"]
    ran = subprocess.run([*traced, sys.executable, str(SCENARIO), str(folder)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = [call for line in whole(log.read_text().splitlines()) for call in parsed(line, folder)]
    mine = [call for call in found if call.kind == "sent" or call.name.startswith(DATABASE)]
    assert sum(call.kind == "sent" for call in mine) > 20
    return mine


def whole(lines: Sequence[str]) -> list[str]:
    """Put calls together that another thread's call has split in the log; they count when they return."""
    begun, done = dict[str, str](), list[str]()
    for line in lines:
        process = line.split(" ", 1)[0]
        if line.endswith("<unfinished ...>"):
            begun[process] = line.removesuffix("<unfinished ...>").rstrip()
        elif " resumed>" in line:
            done.append(begun.pop(process) + line.split(" resumed>", 1)[1])
        else:
            done.append(line)
    return done


def check(place: Path, acknowledged: Sequence[str]) -> None:
    """Open a store, and compare it with what was acknowledged."""
    with open_store(f"sqlite:///{place / DATABASE}") as store:
        tasks = {task.name: task for task in store.tasks()}
        devices = {device.id: device for task in tasks.values() for device in store.devices(task.id)}
        receipts = set()
        for task in tasks.values():
            keys = [(slot, f"check-in-{number}") for slot in range(8) for number in range(16)]
            found = store.receipts_for(task.id, keys)
            assert len(found) == task.check_ins, "receipts and the task's own count differ"
            assert sorted(receipt.version for receipt in found.values()) == list(range(1, task.version + 1))
            receipts |= {f"receipt/{slot}/{key}/{receipt.version}" for (slot, key), receipt in found.items()}
        for told in acknowledged:
            what, _, rest = told.partition("/")
            assert _holds(what, rest, told, tasks, devices, receipts), f"acknowledged and lost: {told}"


def _holds(
    what: str, rest: str, told: str, tasks: dict[str, StoredTask], devices: dict[str, StoredDevice], receipts: set[str]
) -> bool:
    if what == "task":
        return rest in tasks
    if what == "device":
        return rest in devices
    if what == "revoked":
        return devices[rest].revoked
    if what == "receipt":
        return told in receipts
    if what == "version":
        return tasks["walk"].version >= int(rest)
    return tasks["walk"].state == rest


def write(place: Path, files: dict[str, bytes]) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for name, content in files.items():
        (place / name).write_bytes(content)


def test_a_kill_at_every_write_loses_nothing_that_was_acknowledged(calls: list[Call], tmp_path: Path) -> None:
    files, acknowledged, chance = dict[str, bytes](), list[str](), random.Random(0)
    moments = 0
    for call in calls:
        if call.kind == "sent":
            acknowledged.append(call.name)
            continue
        write(tmp_path / "killed", files)
        check(tmp_path / "killed", acknowledged)
        moments += 1
        if call.kind == "removed":
            files.pop(call.name, None)
        elif call.kind != "synced":
            files[call.name] = bytes(applied(bytearray(files.get(call.name, b"")), call, True, chance))
    write(tmp_path / "killed", files)
    check(tmp_path / "killed", acknowledged)
    assert moments > 100
    print(f"{moments} moments, {len(acknowledged)} acknowledgements")


def test_no_power_cut_loses_what_the_server_acknowledged(calls: list[Call], tmp_path: Path) -> None:
    chance = random.Random(3)
    for _ in range(IMAGES):
        done = calls[: chance.randint(1, len(calls))]
        write(tmp_path / "cut", image(done, chance))
        check(tmp_path / "cut", [call.name for call in done if call.kind == "sent"])


def test_the_control_finds_a_store_that_lost_its_log(calls: list[Call], tmp_path: Path) -> None:
    """Else the images would prove nothing: without syncs, what was acknowledged is missing from some of them."""
    chance, losses = random.Random(4), 0
    unsynced = [call for call in calls if call.kind != "synced"]
    for _ in range(40):
        done = unsynced[: chance.randint(len(unsynced) // 2, len(unsynced))]
        write(tmp_path / "cut", image(done, chance))
        try:
            check(tmp_path / "cut", [call.name for call in done if call.kind == "sent"])
        except Exception:
            losses += 1
    assert losses > 20
