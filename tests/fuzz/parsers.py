"""Every other parser that meets bytes of somebody else: good ones are read, others refused in our own words, quickly.

Codec, task files, the ledger's file, relay and messages of secure sums. Each target has good examples, what is put into
them, and a function that reads one; it may return, or raise `CrowdError`, and nothing else.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from crowdml.core import CrowdError, record
from crowdml.device import Ledger
from crowdml.privacy import Event, Filter
from crowdml.privacy.ledger.entries import AcceptedTerms
from crowdml.secure_aggregation import SumTerms, bits_for
from crowdml.secure_aggregation.commitments import LINK_BYTES, TAG_BYTES
from crowdml.secure_aggregation.roster import Roster
from crowdml.secure_aggregation.shamir import SHARE_BYTES
from crowdml.secure_aggregation.sum_messages import (
    COMMITMENT_BYTES,
    PARCEL_BYTES,
    Consents,
    Hello,
    Mail,
    Shares,
    Survivors,
    read_flags,
    read_links,
    read_shares,
    write_flags,
    write_items,
)
from crowdml.slicing.live.controls import read_of_member, read_of_server
from crowdml.task import parse
from crowdml.task.live_task import assemble
from crowdml.wire import message
from tests.fuzz.mutants import EDGES, mutants
from tests.support.rehearsal import Members, Rehearsal
from tests.support.served import TASK

WORDS = tuple(
    text.encode()
    for text in ('"', "[", "]", "{", "}", "=", "-1", "1e999", "nan", "''", "\n", "[data]", "true", "é", "\x00", "2**63")
)
SLOW_S = 0.25
"""CPU seconds that no message may take, even of a task file that is good and is worked out."""


@record
class Target:
    """A parser.

    Attributes:
        seeds: Good examples.
        read: Reads one.
        pieces: What is put into them.
        share: Executions of it, as a part of those of the quickest.
    """

    seeds: Sequence[bytes]
    read: Callable[[bytes], object]
    pieces: Sequence[bytes] = EDGES
    share: float = 1.0


def targets(folder: Path) -> dict[str, Target]:
    """Make all targets; files are written to a folder."""
    live = assemble(parse(TASK), [])
    layout = live.messages.check_out
    outs = [layout.encode(message(version, layout.example["content"])) for version in (0, 7, 1 << 40)]
    return {
        "codec": Target(seeds=outs, read=layout.decode),
        "task file": Target(seeds=[TASK.encode()], read=lambda raw: parse(_text(raw)), pieces=WORDS, share=0.02),
        "ledger file": Target(
            seeds=[_ledger(folder)], read=lambda raw: _open_ledger(folder / "mutant.sqlite", raw), share=0.02
        ),
        "relay: of members": Target(seeds=_OF_MEMBERS, read=lambda raw: read_of_member(_text(raw)), pieces=WORDS),
        "relay: of servers": Target(seeds=_OF_SERVERS, read=lambda raw: read_of_server(_text(raw)), pieces=WORDS),
        **_sums(),
    }


_OF_MEMBERS = [
    json.dumps(said).encode()
    for said in (
        {"kind": "ready", "turn": 0, "attempt": 1},
        {"kind": "stalled", "turn": 2, "attempt": 0, "waits_for": [1, 2]},
    )
]
_OF_SERVERS = [
    json.dumps(said).encode()
    for said in (
        {"kind": "keep", "cut": {"turn": 1, "attempt": 2, "batch": 3, "last": True}, "deposits": 4},
        {"kind": "stop", "reason": "it is over", "again": False},
    )
]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _ledger(folder: Path) -> bytes:
    """Write a ledger with a few entries; return the bytes of its file."""
    path = folder / "good.sqlite"
    terms = AcceptedTerms(
        unit="device", filter=Filter(kind="pure", epsilon=8.0, delta=0.0), uses=8, event=Event.of_pure(1.0)
    )
    with Ledger(path) as ledger:
        ledger.accept("digits", "task-hash", terms)
        for number in range(4):
            ledger.charge("digits", f"key-{number}", b"final bytes", version=number)
    with sqlite3.connect(path) as plain:
        plain.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    plain.close()
    return path.read_bytes()


def _open_ledger(path: Path, raw: bytes) -> None:
    """Open a ledger; one that opens has all of its charges, or says which are missing."""
    for end in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    path.write_bytes(raw)
    shutil.copy(path.with_name("good.sqlite-head"), path.with_name(f"{path.name}-head"))
    with Ledger(path) as ledger:
        assert ledger.spent("digits").epsilon == 4.0, "a charge was lost, and nobody noticed"


def _sums() -> dict[str, Target]:
    """Rehearse a sum and keep its messages."""
    terms = SumTerms(task="t", size=20, bits=bits_for(6, 1000), largest=1000, invited=6, least=5, corrupt=1)
    kept: dict[str, list[bytes]] = {}
    crowd = Rehearsal(terms, Members("t"), list(range(6)))
    device = crowd.devices[0]
    others = Rehearsal(terms, Members("t"), list(range(6)))  # each says hello once
    kept["hello"] = [other.hello().to_bytes() for other in others.devices.values()]
    crowd.greet()
    kept["roster"] = [crowd.server.shown]
    crowd.settle()
    crowd.exchange()
    near, members = device.near, device.members
    kept["mail"] = [crowd.server.mail(slot).to_bytes() for slot in range(3)]
    generator = np.random.default_rng(1)
    crowd.upload({slot: generator.integers(-1000, 1001, 20) for slot in range(6)})
    kept["survivors"] = [crowd.server.shown_survivors(slot).to_bytes() for slot in range(3)]
    for parts in ([0, 1, 2], [0, 2]):
        some = [bytes([slot]) if slot in parts else None for slot in range(max(members, near))]
        kept.setdefault("links", []).append(write_items([part and part * LINK_BYTES for part in some[:members]]))
        kept.setdefault("revealed shares", []).append(
            write_items([part and part * SHARE_BYTES for part in some[:near]])
        )
        flags = np.array([part is not None for part in some])
        kept.setdefault("accusations", []).append(write_flags(flags[:near]))
        tags = bytes(TAG_BYTES * len(parts))
        kept.setdefault("consents", []).append(Consents(flags=flags[:members], tags=tags).to_bytes())
        parcels = tuple(bytes([slot]) * PARCEL_BYTES for slot in range(near))
        kept.setdefault("shares", []).append(Shares(commitment=bytes(COMMITMENT_BYTES), parcels=parcels).to_bytes())
    readers: dict[str, Callable[[bytes], object]] = {
        "hello": Hello.of,
        "roster": Roster.of,
        "links": lambda raw: read_links(raw, members),
        "shares": lambda raw: Shares.of(raw, near),
        "mail": lambda raw: Mail.of(raw, members, near),
        "survivors": lambda raw: Survivors.of(raw, members, near),
        "consents": lambda raw: Consents.of(raw, members),
        "revealed shares": lambda raw: read_shares(raw, near),
        "accusations": lambda raw: read_flags(raw, near),
    }
    return {f"sum: {name}": Target(seeds=kept[name], read=read) for name, read in readers.items()}


def fuzz(target: Target, count: int, draw: random.Random) -> Counter[str]:
    """Give a parser so many messages; return how many it has read and refused."""
    met = Counter[str]()
    for raw in mutants(target.seeds, max(int(count * target.share), 20), draw, target.pieces):
        began = time.thread_time()
        try:
            target.read(raw)
            met["read"] += 1
        except CrowdError:
            met["refused"] += 1
        except AssertionError:
            raise
        except BaseException as error:
            raise AssertionError(f"{type(error).__name__}: {error} at {raw.hex()[:2000]}") from error
        assert time.thread_time() - began < SLOW_S, f"slow: {raw.hex()[:2000]}"
    return met
