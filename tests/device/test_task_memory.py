"""What a device remembers: states that count once used; numbers of samples, whose loss is never forgiven silently."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crowdml
from crowdml.core import BadInput
from crowdml.core.errors import TermsViolated
from crowdml.device import Ledger
from crowdml.device.device_home import Home
from crowdml.device.rows.batches import Gatherer
from crowdml.device.task_memory import Memory, renumber

DEVICE = ("privacy.unit=device", "privacy.max-uses=3", "privacy.statistics-epsilon=0.0", "stop.max-releases=9")


def run(place: Path, server: Any, rows: Any, releases: int | None = None) -> Any:
    with crowdml.Device(place, connect=server.connect) as device:
        return device.run(rows, releases=releases)


def memory_files(place: Path) -> list[Path]:
    return sorted((place / "tasks" / "walk").glob("memory.sqlite*"))


def lose(place: Path) -> None:
    for path in memory_files(place):
        path.unlink()


def most(place: Path) -> int:
    with Ledger(place / "ledger.sqlite") as ledger:
        return ledger.chain.tasks["walk"].uses.most()


def test_the_same_stream_fed_again_is_the_same_samples(make_server: Any, join: Any, rows: Any) -> None:
    """Once for every way a stream can come: an iterator, a buffer, a function; and at last as a file's rows."""
    server = make_server()
    place = join(server)
    assert run(place, server, iter(rows)).releases == 2
    with crowdml.Device(place, connect=server.connect) as device:
        buffer = device.buffer()
        for row, label in rows[:4]:
            buffer.put(row, label)
        buffer.close()
        assert device.run(buffer).releases == 1
        assert device.run(lambda: rows, releases=2).releases == 2
    assert run(place, server, iter(rows)).releases == 1, "four rows had a use left"
    last = run(place, server, iter(rows * 5))
    assert (last.releases, most(place)) == (0, 3) and "; 40 were left out: used as often as promised" in last.reason
    assert "8 of 8 rows were used 3 times each" in run(place, server, rows).reason and server.version == 6


def test_every_charge_names_the_numbering(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server)
    run(place, server, iter(rows))
    with Ledger(place / "ledger.sqlite") as ledger:
        charges = [charge for charge in map(json.loads, ledger.entries()) if charge["kind"] == "charge"]
    assert [charge["known"] for charge in charges] == [4, 8] and len({charge["numbering"] for charge in charges}) == 2


@pytest.mark.parametrize("streamed", [False, True])
def test_a_lost_memory_stops_the_device(streamed: bool, make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server)
    run(place, server, iter(rows) if streamed else rows, releases=1)
    asked = len(server.requests)
    lose(place)
    for _ in range(2):
        with pytest.raises(TermsViolated, match=r"memory\.sqlite is not the file that the ledger has counted") as error:
            run(place, server, rows)
    told = str(error.value)
    assert "0 samples are known in it, " in told and "put the newest copy of the file back" in told
    assert "crowdml device renumber; every sample then counts as used 1 of 3 times" in told
    assert len(server.requests) == asked, "nothing was sent"


def test_an_older_copy_stops_the_device_and_the_newest_lets_it_go_on(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server)
    run(place, server, iter(rows[:4]))
    copies = {}
    for name in ("older", "newest"):
        copies[name] = place.parent / name
        copies[name].mkdir()
        for path in memory_files(place):
            shutil.copy(path, copies[name])
        if name == "older":
            run(place, server, iter(rows[4:]))
    lose(place)
    for path in copies["older"].iterdir():
        shutil.copy(path, place / "tasks" / "walk")
    with pytest.raises(TermsViolated, match="4 samples are known in it, 8 were counted"):
        run(place, server, rows)
    lose(place)
    for path in copies["newest"].iterdir():
        shutil.copy(path, place / "tasks" / "walk")
    assert run(place, server, rows).releases == 4 and most(place) == 3


def test_a_promise_to_the_whole_device_does_not_depend_on_the_numbers(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server(*DEVICE)
    place = join(server)
    run(place, server, rows, releases=1)
    lose(place)
    assert run(place, server, rows, releases=1).releases == 1


def test_after_renumbering_every_sample_counts_as_the_most_used_one(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server)
    run(place, server, rows[:4], releases=1)
    home = Home(place)
    with pytest.raises(BadInput, match="no numbers of samples are lost"):
        renumber(home, home.member())
    lose(place)
    assert renumber(home, home.member()) == 1
    summary = run(place, server, rows)
    assert summary.releases == 4 and most(place) == 3, "two uses are left for each of eight rows, four in a release"
    assert summary.spent.epsilon == pytest.approx(6.0, rel=1e-3), "ε is that of three uses, which some row has had"
    lose(place)
    with pytest.raises(TermsViolated, match="crowdml device withdraw; a sample was used 3 of 3 times"):
        run(place, server, rows)
    with pytest.raises(BadInput, match="a sample was used 3 of 3 times, any may be it, and nothing is left"):
        renumber(home, home.member())


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make charges as they were before they named a numbering; the function ends that."""
    real = Gatherer._gathered

    def without(self: Gatherer, batch: Any, samples: Any) -> Any:
        return dataclasses.replace(real(self, batch, samples), numbering=None)

    monkeypatch.setattr(Gatherer, "_gathered", without)
    return monkeypatch.undo


def test_a_home_from_before_goes_on_if_all_its_samples_are_known(
    make_server: Any, join: Any, rows: Any, before: Callable[[], None]
) -> None:
    server = make_server()
    place = join(server)
    run(place, server, rows, releases=1)
    before()
    assert run(place, server, rows).releases == 5 and most(place) == 3
    lose(place)
    with pytest.raises(TermsViolated, match="0 samples are known in it, 8 were counted"):
        run(place, server, rows)


def test_a_home_from_before_that_lost_its_memory_stops(
    make_server: Any, join: Any, rows: Any, before: Callable[[], None]
) -> None:
    server = make_server()
    place = join(server)
    run(place, server, rows, releases=1)
    before()
    lose(place)
    with pytest.raises(TermsViolated, match="0 samples are known in it, 4 were counted"):
        run(place, server, rows)


POINTS = (
    "numbers, before",
    "numbers, not committed",
    "numbers, after",
    "expect, after",
    "charge, before",
    "charge, after",
)

# Everything is imported once; each device is a fork, killed at a point of its second release and started again.
NURSERY = """
import os, signal, sys
from contextlib import contextmanager
from pathlib import Path
import crowdml
from crowdml.device.ledger_store import Ledger
from crowdml.device.task_memory import Memory
from crowdml.device.rows.sample_numbers import SampleNumbers
from tests.device.conftest import FakeServer

server, rows = FakeServer(), [([0.1 * n, 0.5, -0.2], n % 2) for n in range(40)]

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def wrap(owner, name, before=lambda: None, after=lambda: None):
    real = getattr(owner, name)
    def wrapped(self, *arguments, **options):
        before()
        found = real(self, *arguments, **options)
        after()
        return found
    setattr(owner, name, wrapped)

def uncommitted(owner):
    real = owner._store
    def wrapped(self, *arguments):
        begin = self._transaction
        @contextmanager
        def killed():
            with begin():
                yield
                kill()
        self._transaction = killed
        return real(self, *arguments)
    owner._store = wrapped

def arm(point):
    if point == "numbers, not committed":
        return uncommitted(SampleNumbers)
    what, when = point.split(", ")
    owners = {"numbers": (SampleNumbers, "_store"), "expect": (Memory, "expect"), "charge": (Ledger, "charge")}
    wrap(*owners[what], **{when: kill})

for point in sys.stdin:
    place = Path(sys.argv[1]) / point.strip().replace(", ", "-")
    crowdml.Device.join(server.invite(), place, accept=lambda offer: True, connect=server.connect)
    with crowdml.Device(place, connect=server.connect) as device:
        device.run(iter(rows), releases=1)
    for attempt in ("killed", "again"):
        pid = os.fork()
        if pid == 0:
            try:
                if attempt == "killed":
                    arm(point.strip())
                with crowdml.Device(place, connect=server.connect) as device:
                    count = device.run(iter(rows[4:] if attempt == "killed" else rows), releases=2).releases
                    known = device.memory.samples.numbering
                    uses = device.ledger.chain.tasks["walk"].uses.counts()
                    held = device.memory.samples.holds(device.ledger.chain.tasks["walk"].numbering, None)
                print(attempt, count, known.count, int(uses.max()), held, flush=True)
            except BaseException as error:
                print(attempt, type(error).__name__, error, flush=True)
            os._exit(0)
        print(attempt, "exit", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def test_killed_at_any_point_between_memory_and_ledger_a_device_goes_on(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    found = subprocess.run(
        [sys.executable, "-c", NURSERY, str(tmp_path)],
        input="".join(point + "\n" for point in POINTS),
        capture_output=True,
        text=True,
        cwd=root,
        timeout=120,
        check=True,
    )
    lines = found.stdout.splitlines()
    assert len(lines) == 3 * len(POINTS), found.stdout + found.stderr
    for at, point in enumerate(POINTS):
        killed, again, ended = lines[3 * at : 3 * at + 3]
        assert killed == "killed exit -9", f"{point}: {killed}"
        # The stream begins again: its first rows are used a second time.
        assert again == "again 2 8 2 True", f"{point}: {again}"
        assert ended == "again exit 0"


def test_a_state_counts_from_its_receipt_on(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "m")
    assert (memory.state(), memory.version, memory.contributed, memory.number) == (None, -1, -1, 0)
    memory.expect("a", 4, b"after a")
    assert memory.state() is None and memory.version == 4
    memory.close()
    memory = Memory(tmp_path / "m")
    memory.used("a", 1, 5)
    memory.used("a", 1, 5)  # a resend gets the same receipt
    assert (memory.state(), memory.version, memory.contributed, memory.number) == (b"after a", 5, 4, 1)
    memory.expect("b", 6, b"after b")
    memory.refused("b")
    memory.used("b", 2, 7)
    assert (memory.state(), memory.contributed) == (b"after a", 4)
    memory.close()


def test_what_was_never_charged_is_forgotten(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "m")
    memory.expect("never charged", 0, b"x")
    memory.expect("b", 0, b"y")
    memory.used("never charged", 1, 1)
    assert memory.state() is None
    memory.begin_again()
    assert (memory.version, memory.number) == (-1, 0)
    memory.close()


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"no database at all, but long enough to be looked at" * 40)
    with pytest.raises(BadInput, match="cannot be used: file is not a database\n  put it back from a backup"):
        Memory(tmp_path / "m")


def test_a_file_whose_names_are_no_text_is_named(tmp_path: Path) -> None:
    """SQLite names what it cannot read, in words that Python then cannot decode."""
    Memory(tmp_path / "m").close()
    (tmp_path / "m").write_bytes((tmp_path / "m").read_bytes().replace(b"facts", b"fac\xcc("))
    with pytest.raises(BadInput, match="cannot be used: a name in it is damaged"):
        Memory(tmp_path / "m")
