"""A device that charges and sends, as a program of its own: python charges.py LEDGER SENT COUNT [NORMAL].

What it sends is a line of key and hash in the file SENT, appended in one write. NORMAL weakens the ledger on purpose.
"""

from __future__ import annotations

import hashlib
import os
import sys

from crowdml.device import Ledger
from crowdml.privacy import Event, Filter
from crowdml.privacy.ledger.entries import AcceptedTerms

TERMS = AcceptedTerms(
    unit="device", filter=Filter(kind="pure", epsilon=1e6, delta=0.0), uses=1_000_000, event=Event.of_pure(0.5)
)


def main(path: str, sent: str, count: int, level: str) -> None:
    """Charge and send so many releases, after those that an earlier run left unsettled."""
    out = os.open(sent, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def send(key: str, body: bytes) -> None:
        os.write(out, f"{key} {hashlib.sha256(body).hexdigest()}\n".encode())

    with Ledger(path) as ledger:
        ledger._db.execute(f"PRAGMA synchronous = {level}")
        ledger.accept("task", "hash", TERMS)
        for entry in ledger.unsettled():
            send(entry.key, entry.body)
            ledger.settle(entry.key)
        for _ in range(count):
            key, body = os.urandom(8).hex(), os.urandom(500)
            send(key, ledger.charge("task", key, body, version=0))
            ledger.settle(key)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else "FULL")
