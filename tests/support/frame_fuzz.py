"""Fuzzes the parser of frames: `python -m tests.support.frame_fuzz 50_000_000` says how fast, and whether all is well.

Half of what it is given is chance, half a good header in which some bytes were changed. Whatever it makes of it, it is
a header that packs to the same bytes, or `MalformedMessage`; nothing else, and never slowly.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter

from crowdml.core.errors import MalformedMessage
from crowdml.slicing.live.slice_frames import HEADER_BYTES, KINDS, VERSION, Header, read_header

SLOW_S = 0.05
_AT_ONCE = 10_000


def fuzz(count: int, chance: random.Random) -> Counter[str]:
    """Give the parser so many things; return how often it took them for a header, and how often it refused."""
    met: Counter[str] = Counter()
    for _ in range(count):
        raw = _nearly(chance) if chance.random() < 0.5 else chance.randbytes(chance.randrange(80))
        try:
            found = read_header(raw)
        except MalformedMessage:
            met["refused"] += 1
            continue
        assert found.pack() == raw[:HEADER_BYTES]
        met["a header"] += 1
    return met


def _nearly(chance: random.Random) -> bytes:
    good = Header(VERSION, chance.choice(list(KINDS)), 0, 1, 1, 2, 3, 4, 0, 1, 10, 1, 2, 1, 7).pack()
    made = bytearray(good + chance.randbytes(chance.randrange(60)))
    for _ in range(chance.randrange(3)):
        made[chance.randrange(len(made))] = chance.randrange(256)
    return bytes(made)


def main(count: int) -> None:
    """Fuzz, and say how it went."""
    chance, met, begun, worst = random.Random(), Counter[str](), time.perf_counter(), 0.0
    while sum(met.values()) < count:
        at = time.perf_counter()
        met += fuzz(min(_AT_ONCE, count - sum(met.values())), chance)
        worst = max(worst, (time.perf_counter() - at) / _AT_ONCE)
    took = time.perf_counter() - begun
    print(f"{sum(met.values()):,} executions in {took:.0f} s ({sum(met.values()) / took:,.0f} a second): {dict(met)}")
    print(f"slowest ten thousand: {1e6 * worst:.1f} µs each")


if __name__ == "__main__":
    main(int(sys.argv[1].replace("_", "")) if len(sys.argv) > 1 else 50_000_000)
