"""kill -9 at any moment: whatever was sent was charged before, with the very same bytes."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from crowdml.device import Ledger

CYCLES = 20

DEVICE = """
import hashlib, os, sys
import numpy as np
from crowdml.device import Ledger
from crowdml.privacy import Event, Filter
from crowdml.privacy.ledger.entries import AcceptedTerms

path, sent = sys.argv[1], os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def send(key, body):
    os.write(sent, f"{key} {hashlib.sha256(body).hexdigest()}\\n".encode())

limit = Filter(kind="pure", epsilon=1e6, delta=0.0)
with Ledger(path) as ledger:
    ledger.accept("task", "hash", AcceptedTerms(unit="device", filter=limit, uses=1_000_000, event=Event.of_pure(0.5)))
    for entry in ledger.unsettled():
        send(entry.key, entry.body)
        ledger.settle(entry.key)
    print("ready", flush=True)
    while True:
        key, body = os.urandom(8).hex(), os.urandom(500)
        send(key, ledger.charge("task", key, body, version=0))
        ledger.settle(key)
"""


def test_nothing_is_ever_sent_that_was_not_charged(tmp_path: Path) -> None:
    path, sent = tmp_path / "ledger.sqlite", tmp_path / "sent"
    chance = random.Random(7)
    lengths = []
    for _ in range(CYCLES):
        process = subprocess.Popen([sys.executable, "-c", DEVICE, str(path), str(sent)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(chance.random() * 0.08)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        lengths.append(_check(path, sent))
    assert lengths[-1] > CYCLES, "the device never got to send anything"
    assert lengths == sorted(lengths)


def _check(path: Path, sent: Path) -> int:
    with Ledger(path) as ledger:  # verifies the chain
        charged = {entry["key"]: entry["body"] for entry in map(json.loads, ledger.entries()) if "key" in entry}
        waiting = {entry.key: hashlib.sha256(entry.body).hexdigest() for entry in ledger.unsettled()}
        spent = ledger.spent("task").epsilon
    lines = [line.split() for line in sent.read_text().splitlines()] if sent.exists() else []
    for key, digest in lines:
        assert charged.get(key) == digest, "a release that the ledger does not know, or other bytes under its key"
    assert spent == 0.5 * len(charged) >= 0.5 * len({key for key, _ in lines})
    # Every charge without a send can still be sent, byte for byte; there is at most one.
    unsent = set(charged) - {key for key, _ in lines}
    assert unsent <= set(waiting) and len(unsent) <= 1
    assert all(charged[key] == digest for key, digest in waiting.items())
    return len(charged)
