"""How long devices wait when a front end is lost or updated: 20 busy devices on two front ends, asked by chance.

    python benchmarks/fronts/failover.py [--devices 20] [--kills 3] [--json FILE]

The aggregator is killed (kill -9) and started again, several times; then both front ends are updated one after the
other (SIGTERM, start). A failover lasts from the kill to the first acknowledgement of a check-in that was made after
it: what was under way may have been stored before. In the end everything that devices were told, have charged and have
sent is compared with what the server has: see `tests/support/crowd.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.support.crowd import Busy, check, finish, wait_for
from tests.support.fronts import FrontEnds, join
from tests.support.postgres import Postgres


def run(folder: Path, database: str, devices: int, kills: int) -> dict[str, Any]:
    """Kill and update; return what was measured."""
    failovers, stops, updates = [], [], []
    with FrontEnds(folder, database) as fronts:
        fronts.open()
        crowd = join(fronts, folder, devices)
        wait_for(crowd, 5 * devices)
        for _ in range(kills):
            victim = fronts.aggregator()
            victim.kill()
            began, earlier = time.monotonic(), _keys(crowd, "sent")
            while _keys(crowd, "acknowledged") <= earlier:
                time.sleep(0.002)
            failovers.append(round(time.monotonic() - began, 2))
            victim.start()
            fronts.wait_until_ready(victim)
            wait_for(crowd, 2 * devices)
        for device in crowd:
            device.recorder.longest_s = 0.0  # type: ignore[attr-defined]
        for server in fronts.servers:
            began = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            server.process.wait()
            stops.append(round(time.monotonic() - began, 2))
            server.start()
            fronts.wait_until_ready(server)
            updates.append(round(time.monotonic() - began, 2))
            wait_for(crowd, 2 * devices)
        finish(crowd)
        receipts = check(fronts, crowd, least=devices)
        longest = max(device.recorder.longest_s for device in crowd)  # type: ignore[attr-defined]
    return {
        "devices": devices,
        "failover_s": failovers,
        "stop_s": stops,
        "update_s": updates,
        "longest_without_success_s": round(longest, 2),
        "receipts": receipts,
        "load": os.getloadavg()[0],
    }


def _keys(crowd: Sequence[Busy], what: str) -> set[str]:
    """Return the keys of all check-ins that were sent, or acknowledged."""
    return {key for device in crowd for key in list(getattr(device.recorder, what))}


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=20)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    place, folder = (Path(tempfile.mkdtemp(prefix=f"crowdml-{name}-")) for name in ("pg", "fronts"))
    database = Postgres(place)
    try:
        found = run(folder, database.database(), given.devices, given.kills)
    finally:
        database.stop("immediate")
        shutil.rmtree(place)
        shutil.rmtree(folder)
    print(f"failover after kill -9 of the aggregator: {found['failover_s']} s")
    print(f"rolling update, each front end: {found['update_s']} s, of it until it had ended: {found['stop_s']} s")
    print(f"longest time for which a device had no success in it: {found['longest_without_success_s']} s")
    print(
        f"{found['receipts']} receipts: none lost, none twice, the model equals the replay (load {found['load']:.1f})"
    )
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
