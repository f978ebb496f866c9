"""Soak of two front ends on one PostgreSQL: one of them is killed, again and again, while a crowd is busy.

    python -m tests.soak.fronts [--kills 30] [--devices 20] [--seed 1]

By chance it is the aggregator or the other one, it is killed or stopped until its neighbour takes over, and in one case
of five it is killed again while it starts. A share of all check-ins is cut off, sent twice, or not answered. In the end
everything devices were told, have charged and have sent is compared with what is stored: see `tests/support/crowd.py`.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.soak.run import FAULTS, STREAM
from tests.support.crowd import Busy, acknowledgements, check, finish, wait_for
from tests.support.fronts import FrontEnds, join
from tests.support.postgres import Postgres


def strike(fronts: FrontEnds, crowd: list[Busy], chance: random.Random) -> tuple[str, float]:
    """End one of them; return how, and the seconds until a device has got a receipt again."""
    victim = fronts.aggregator() if chance.random() < 0.6 else fronts.follower()
    how = "aggregator" if victim is fronts.aggregator() else "follower"
    stopped = how == "aggregator" and chance.random() < 0.2
    began, before = time.monotonic(), acknowledgements(crowd)
    if stopped:
        how += ", stopped first"
        victim.process.send_signal(signal.SIGSTOP)
        (other,) = (server for server in fronts.servers if server is not victim)
        fronts.wait_for_role(other, "aggregates")
    victim.kill()
    if not stopped:
        before = acknowledgements(crowd)
    while acknowledgements(crowd) == before:
        assert time.monotonic() < began + 60.0, "nobody got a receipt any more"
        time.sleep(0.002)
    took = time.monotonic() - began
    if chance.random() < 0.2:
        how += ", and again at its start"
        victim.start()
        time.sleep(chance.random() / 4)
        victim.kill()
    victim.start()
    fronts.wait_until_ready(victim)
    wait_for(crowd, chance.randint(1, 60))
    return how, took


def soak(folder: Path, database: str, kills: int, devices: int, seed: int) -> None:
    """Kill, then compare; print what happened."""
    chance, done, waits = random.Random(seed), Counter[str](), list[float]()
    with FrontEnds(folder, database) as fronts:
        fronts.open(*STREAM)
        crowd = join(fronts, folder, devices, FAULTS)
        wait_for(crowd, devices)
        for _ in range(kills):
            how, took = strike(fronts, crowd, chance)
            done[how] += 1
            waits.append(took)
        finish(crowd)
        receipts = check(fronts, crowd, least=devices)
    faults = sum((device.recorder.network.faults for device in crowd), Counter[str]())
    print(f"kills of front ends: {sum(done.values())} {dict(done)}")
    print(f"faults of the network: {faults.total()}; acknowledged: {acknowledgements(crowd)}; receipts: {receipts}")
    print(f"longest time without a receipt for anybody: {max(waits):.2f} s")
    print("nothing lost, nothing counted or charged twice, the model equals the replay")


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--devices", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    place, folder = (Path(tempfile.mkdtemp(prefix=f"crowdml-{name}-")) for name in ("pg", "fronts"))
    database = Postgres(place)
    try:
        soak(folder, database.database(), given.kills, given.devices, given.seed)
    finally:
        database.stop("immediate")
        shutil.rmtree(place)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
