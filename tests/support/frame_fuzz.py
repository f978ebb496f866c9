"""Fuzzes the parsers of what comes through the relay: `python -m tests.support.frame_fuzz 50_000_000`.

What they are given is chance, or a good frame in which some bytes were changed, or cut off. Whatever the parser of
headers makes of it, it is a header that packs to the same bytes, or `MalformedMessage`; nothing else, and never slowly.
Every tenth frame goes on to the parsers of deposits and of numbers in clear. Mutants are made thousands at a time, so
that nearly all of the time is the parsers'.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

from crowdml.core.errors import MalformedMessage
from crowdml.slicing.live.deposits import is_deposit, sealed_for
from crowdml.slicing.live.slice_frames import HEADER_BYTES, KINDS, VERSION, Header, read_header
from crowdml.slicing.live.slice_terms import SharedNumbers
from tests.support.sliced_nets import model_of, plan_of

SLOW_S = 0.001
"""A parser that takes longer than this for one frame is slow: usual are two millionths of a second."""
_AT_ONCE, _LONGEST = 2_000, 160
_PLAN = plan_of(model_of())
_PLACES = np.arange(1 << 10)


def mutants(count: int, generator: np.random.Generator) -> list[bytes]:
    """Make so many frames that are nearly good, or not at all."""
    made = generator.integers(0, 256, (count, _LONGEST), np.uint8)
    kinds = generator.choice(list(KINDS), count)
    for kind in KINDS:
        good = Header(VERSION, kind, 0, 1, 1, 2, 3, 4, 0, 1, 10, 1, 2, 1, 7).pack()
        made[kinds == kind, :HEADER_BYTES] = np.frombuffer(good, np.uint8)
    harmed = np.arange(count)
    for chance in (0.6, 0.3, 0.1):
        some = harmed[generator.random(count) < chance]
        made[some, generator.integers(0, HEADER_BYTES, len(some))] = generator.integers(0, 256, len(some), np.uint8)
    # Fields at the ends of their range are where arithmetic goes wrong.
    some = harmed[generator.random(count) < 0.2]
    made[some, generator.integers(0, HEADER_BYTES, len(some))] = generator.choice(np.array([0, 1, 127, 255]), len(some))
    nonsense = harmed[generator.random(count) < 0.2]
    made[nonsense] = generator.integers(0, 256, (len(nonsense), _LONGEST), np.uint8)
    lengths = np.where(generator.random(count) < 0.8, generator.integers(HEADER_BYTES, _LONGEST, count), 0)
    lengths = np.where(lengths, lengths, generator.integers(0, _LONGEST, count))
    whole = made.tobytes()
    begins = range(0, count * _LONGEST, _LONGEST)
    return [whole[at : at + length] for at, length in zip(begins, lengths.tolist(), strict=True)]


def parse(raw: bytes, met: Counter[str]) -> None:
    """Let the parser of headers see a frame."""
    try:
        found = read_header(raw)
    except MalformedMessage:
        met["refused"] += 1
        return
    assert found.pack() == raw[:HEADER_BYTES], raw.hex()
    met["a header"] += 1


def parse_body(raw: bytes, met: Counter[str]) -> None:
    """Let the parsers of bodies see a frame."""
    met["a deposit" if is_deposit(raw, _PLAN) else "no deposit"] += 1
    for read in (sealed_for, lambda body: SharedNumbers.read(body[HEADER_BYTES:], _PLACES)):
        try:
            read(raw)
        except MalformedMessage:
            met["a body refused"] += 1


def fuzz(count: int, generator: np.random.Generator) -> tuple[Counter[str], float]:
    """Give the parsers so many frames; return what became of them, and the slowest CPU seconds of a single one."""
    met, slowest, usual = Counter[str](), 0.0, float("inf")
    for begin in range(0, count, _AT_ONCE):
        some = mutants(min(_AT_ONCE, count - begin), generator)
        began = time.thread_time()
        for raw in some:
            parse(raw, met)
        for raw in some[::10]:
            parse_body(raw, met)
        took = time.thread_time() - began
        usual = min(usual, took)
        if took > usual + SLOW_S:
            # Something among them may have been slow: look at each by itself.
            slowest = max(slowest, max(map(_seconds, some)))
    return met, slowest


def _seconds(raw: bytes) -> float:
    """Return the CPU seconds of one frame; the least of three, since the system may do something else in between."""
    found = []
    for _ in range(3):
        began = time.thread_time()
        parse(raw, Counter())
        parse_body(raw, Counter())
        found.append(time.thread_time() - began)
    return min(found)


def main(count: int, into: str | None = None) -> None:
    """Fuzz, and say how it went."""
    seed = np.random.SeedSequence().entropy
    generator, met, slowest, began = np.random.default_rng(seed), Counter[str](), 0.0, time.process_time()
    done = 0
    while done < count:
        some = min(100_000, count - done)
        found, slow = fuzz(some, generator)
        met, slowest, done = met + found, max(slowest, slow), done + some
        assert slowest < SLOW_S, f"a frame took {slowest} s"
    spent = time.process_time() - began
    assert met["refused"] + met["a header"] == count
    told = {
        "executions": count,
        "seed": str(seed),
        "cpu_s": round(spent, 1),
        "executions_per_cpu_s": round(count / spent),
        "met": dict(met),
        "slowest_s": slowest,
    }
    print(json.dumps(told, indent=1))
    if into:
        Path(into).write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1].replace("_", "")) if len(sys.argv) > 1 else 50_000_000, *sys.argv[2:3])
