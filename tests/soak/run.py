"""Soak: a real server, a busy crowd and everything that goes wrong, for as long as you like.

    python -m tests.soak.run [--minutes 4] [--kills 0] [--devices 20] [--seed 1] [--postgres]

Two thirds of the time are a storm, and it lasts until there were as many kills as were asked for: the server is killed
(SIGKILL), paused (SIGSTOP), ended properly (SIGTERM) or killed before it serves, again and again, while a share of all
check-ins is cut off, sent twice, or not answered. Then the server is left alone and watched: memory, open files and the
database's log must stay as they are. In the end everything devices were told, have charged and have sent is compared
with what the server has: see `tests/support/crowd.py`.
Somebody reads every route all through the storm, and nothing that was shown may be taken back: see
`tests/support/reading.py`.

What goes wrong follows from the seed; when the processes get to run does not, so a failure may take several runs of its
seed to come back.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from crowdml.device import Device
from tests.soak.watching import Watch
from tests.support.crowd import Busy, Nursery, acknowledgements, check, finish, wait_for
from tests.support.postgres import Postgres
from tests.support.reading import Reader, check_history
from tests.support.server import Server

FAULTS = 0.02
"""Share of check-ins that meets each fault of the network."""
CALM = 1 / 3
MOST_START_S = 6.0
"""Of the median time until a killed server listens again: three times what a quiet machine is promised, as the crowd
and whatever else runs here want the same cores."""
STREAM = (("max-releases = 400", "max-releases = 1000000"), ("batch = 10", "batch = 2"))
"""Rows are a stream, every sample is new: a ledger covers as many releases as there is time for."""


def storm(
    server: Server, crowd: list[Busy], chance: random.Random, until: float, kills: int
) -> tuple[Counter[str], list[float]]:
    """End the server in all ways there are; return how often each, and the seconds of starts that were real ones."""
    done, starts = Counter[str](), list[float]()

    def goes_on() -> bool:
        return time.monotonic() < until or len(starts) + sum(done.values()) - done["ended"] < kills

    while goes_on():
        server.kill()
        with Nursery(server) as nursery:
            for _ in range(10):
                done[_strike(nursery, crowd, chance)] += 1
                if not goes_on():
                    break
        began = time.monotonic()
        server.start()
        starts.append(time.monotonic() - began)
        wait_for(crowd, len(crowd))
    return done, starts


def _strike(nursery: Nursery, crowd: list[Busy], chance: random.Random) -> str:
    pid = nursery.start()
    how = chance.choices(("killed", "killed at its start", "paused, then killed", "ended"), (6, 2, 1, 1))[0]
    if how == "killed at its start":
        time.sleep(chance.random() / 4)
        nursery.end(pid)
        return how
    wait_for(crowd, chance.randint(1, 60))
    if how == "paused, then killed":
        nursery.pause(pid, chance.random() * 2)
        wait_for(crowd, chance.randint(1, 60))
    nursery.end(pid, signal.SIGTERM if how == "ended" else signal.SIGKILL)
    return how


@contextlib.contextmanager
def served(postgres: bool) -> Iterator[Server]:
    """A server, and PostgreSQL if it is to use that."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crowdml-soak-")))
        options: list[str] = []
        if postgres:
            place = Path(tempfile.mkdtemp(prefix="crowdml-pg-"))
            stack.callback(shutil.rmtree, place)
            database = Postgres(place)
            stack.callback(database.stop, "immediate")
            options = ["--db", database.database()]
        server = Server(folder, *options)
        stack.callback(server.kill)
        yield server


def soak(server: Server, folder: Path, minutes: float, kills: int, devices: int, seed: int) -> None:
    """Run a storm and a calm, then compare; print what happened."""
    began = time.monotonic()
    server.open(*STREAM)
    crowd = [Busy(folder / f"device-{number}", seed + number, FAULTS) for number in range(devices)]
    for device in crowd:
        Device.join(server.invite(), device.place, accept=lambda offer: True)
    for device in crowd:
        device.start()
    wait_for(crowd, devices)
    reader = Reader(server, crowd[0])
    reader.start()
    done, starts = storm(server, crowd, random.Random(seed), began + minutes * 60 * (1 - CALM), kills)
    stormy = acknowledgements(crowd)
    reader.stop.set()
    reader.join(60.0)
    watch = Watch(server.process.pid, server.folder)
    watch.look_on(lambda: acknowledgements(crowd), max(began + minutes * 60, time.monotonic() + minutes * 60 * CALM))
    finish(crowd)
    seen = check_history(reader, crowd, least=1)
    receipts = check(server, crowd, least=devices)
    faults = sum((device.recorder.network.faults for device in crowd), Counter[str]())
    killed = sum(done.values()) + len(starts) - done["ended"]
    print(f"ends of the server: {sum(done.values()) + len(starts)}, {killed} of them kills; {dict(done)}")
    print(f"faults of the network: {faults.total()} {dict(faults)}")
    print(f"acknowledged: {stormy} in the storm, {acknowledgements(crowd) - stormy} in the calm; receipts: {receipts}")
    print(f"median time from start to listening: {statistics.median(starts):.2f} s")
    print(watch.told())
    watch.require_steady()
    require_ready(starts)
    print(
        f"read meanwhile: {sum(reader.reads.values())} answers of {len(reader.routes)} routes, {seen} numbers, "
        "none taken back"
    )
    print("nothing lost, nothing counted or charged twice, the model equals the replay")


def require_ready(starts: list[float]) -> None:
    """Complain where a server takes too long until it listens again.

    >>> require_ready([1.6, 1.7, 30.0])
    >>> require_ready([1.6, 6.1, 30.0])
    Traceback (most recent call last):
    AssertionError: it takes 6.10 s until a killed server listens again
    """
    took = statistics.median(starts)
    if took >= MOST_START_S:
        raise AssertionError(f"it takes {took:.2f} s until a killed server listens again")


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--kills", type=int, default=0, help="kills at least, however long they take")
    parser.add_argument("--devices", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgres", action="store_true", help="keep everything in a PostgreSQL of its own")
    given = parser.parse_args()
    with served(given.postgres) as server, tempfile.TemporaryDirectory(prefix="crowdml-soak-") as folder:
        try:
            soak(server, Path(folder), given.minutes, given.kills, given.devices, given.seed)
        except AssertionError:
            sys.stderr.write((server.folder / "server.log").read_text()[-4000:])
            raise


if __name__ == "__main__":
    main()
