"""Measure the store: microseconds per receipt stored, and per key looked up, in batches of 64.

python benchmarks/store/bench.py [--url URL] [--devices 1000] [--receipts 200000]
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from crowdml.server.store import Applied, NewDevice, NewTask, Receipt, Store, open_store
from crowdml.wire.messages import check_in_key


def main() -> None:
    """Fill a store, then measure batches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url")
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--receipts", type=int, default=200_000, help="stored before measuring")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--random-keys", action="store_true", help="keys that do not begin with the version")
    parser.add_argument("--state-bytes", type=int, default=2048)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_store(given.url or f"sqlite:///{folder}/bench.sqlite") as store:
        print(json.dumps(measure(store, given) | vars(given), indent=2))


def measure(store: Store, given: argparse.Namespace) -> dict[str, float]:
    """Return microseconds per receipt or key."""
    crowd = Crowd(store, given)
    while crowd.check_ins < given.receipts:
        store.apply(crowd.batch(min(10_000, given.receipts - crowd.check_ins)))
    batches = [crowd.batch(given.batch) for _ in range(given.batches)]
    keys = [[(receipt.slot, receipt.key) for receipt in batch.receipts] for batch in batches]
    looked = timed(lambda wanted: store.receipts_for(crowd.task, wanted), keys)
    applied = timed(store.apply, batches)
    found = timed(lambda wanted: store.receipts_for(crowd.task, wanted), keys)
    return {
        f"{name}_{kind}": round(seconds / given.batch * 1e6, 2)
        for name, times in (("apply", applied), ("look_up_new", looked), ("look_up_known", found))
        for kind, seconds in times.items()
    }


class Crowd:
    """Devices that check in at random."""

    def __init__(self, store: Store, given: argparse.Namespace) -> None:
        """Make a task and let the devices join."""
        empty = NewTask(name="bench", state="open", file="", signed_text=b"", signature=b"", key=b"", server_state=b"")
        self.task, self.check_ins = store.create_task(empty).id, 0
        self.state_bytes, self.random_keys, devices = given.state_bytes, given.random_keys, given.devices
        self.numbers = [0] * devices
        store.add_invites(self.task, [slot.to_bytes(32, "big") for slot in range(devices)])
        for slot in range(devices):
            code = slot.to_bytes(32, "big")
            store.use_invite(self.task, code, NewDevice(id=str(slot), token_hash=code, public_key=code, joined=0.0))

    def batch(self, size: int) -> Applied:
        """Make check-ins of random devices."""
        before = self.check_ins
        self.check_ins += size
        return Applied(
            task=self.task,
            expected_version=before,
            expected_check_ins=before,
            version=before + size,
            check_ins=before + size,
            received=0,
            server_state=secrets.token_bytes(self.state_bytes),
            rows={},
            receipts=[self._receipt(before + i) for i in range(size)],
        )

    def _receipt(self, version: int) -> Receipt:
        slot = random.randrange(len(self.numbers))  # noqa: S311  no secret
        self.numbers[slot] += 1
        # A device started from a version that it checked out a while ago.
        version = max(0, version - random.randrange(len(self.numbers)))  # noqa: S311
        return Receipt(
            slot=slot,
            key=secrets.token_urlsafe(16) if self.random_keys else check_in_key(version),
            body=secrets.token_bytes(32),
            number=self.numbers[slot],
            version=self.check_ins,
            started=version,
            status="applied",
        )


def timed(work: Callable[[Any], object], items: Sequence[Any]) -> dict[str, float]:
    """Return seconds for one item: of CPU (median, and a tenth of the items took no longer than), and on the clock."""
    cpu, wall = [], []
    for item in items:
        began, began_wall = time.process_time(), time.perf_counter()
        work(item)
        cpu.append(time.process_time() - began)
        wall.append(time.perf_counter() - began_wall)
    return {"cpu": median(cpu), "cpu_best_tenth": sorted(cpu)[len(cpu) // 10], "wall": median(wall)}


if __name__ == "__main__":
    main()
