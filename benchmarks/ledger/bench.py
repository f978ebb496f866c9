"""CPU time of a device's ledger at 10,000 releases: one charge, and reading the file back.

    python benchmarks/ledger/bench.py

The disk's time is left out (synchronous writes are switched off for the measurement only).
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np

from crowdml.device import Ledger
from crowdml.privacy import Event, Filter
from crowdml.privacy.ledger.entries import AcceptedTerms

RELEASES = 10_000


def main() -> None:
    """Measure and print."""
    limit = Filter(kind="pure", epsilon=1e9, delta=0.0)
    terms = AcceptedTerms(unit="sample", filter=limit, uses=RELEASES, event=Event.of_pure(0.5))
    body, samples = os.urandom(3000), np.arange(70)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        with Ledger(path) as ledger:
            ledger._db.execute("PRAGMA synchronous = OFF")
            ledger.accept("task", "hash", terms)
            began = time.process_time()
            for number in range(RELEASES):
                ledger.charge("task", f"key-{number}", body, samples=samples + number % 5 * 70, version=number)
                ledger.settle(f"key-{number}")
            charge = (time.process_time() - began) / RELEASES
        began = time.process_time()
        Ledger(path).close()
        reading = time.process_time() - began
        print(f"one charge {charge * 1e3:.3f} ms (goal 1)")
        print(f"reading {RELEASES} back {reading:.3f} s (goal 0.2)")


if __name__ == "__main__":
    main()
