"""Bytes that are nearly right: bits turned, pieces cut out, put in, repeated, or taken from another message."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

EDGES = (b"\0", b"\xff", b"\x7f", b"\x80", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\xc0\x7f", b"\0\0\x80\xff")
"""Where arithmetic goes wrong: ends of ranges, not-a-number and infinity as 32-bit numbers."""


def mutants(
    seeds: Sequence[bytes], count: int, draw: random.Random, pieces: Sequence[bytes] = EDGES
) -> Iterator[bytes]:
    """Make so many messages from good ones; about one in twelve stays as it was."""
    for _ in range(count):
        made = bytearray(draw.choice(seeds))
        for _ in range(draw.choice((0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 8))):
            _mutate(made, draw, seeds, pieces)
        yield bytes(made)


def _mutate(made: bytearray, draw: random.Random, seeds: Sequence[bytes], pieces: Sequence[bytes]) -> None:
    at, what = draw.randrange(len(made) + 1), draw.random()
    if what < 0.5 and made:
        made[at % len(made)] ^= 1 << draw.randrange(8)
    elif what < 0.8:
        piece = draw.choice(pieces)
        made[at : at + len(piece)] = piece[: max(len(made) - at, 1)]
    elif what < 0.85:
        del made[at : at + draw.choice((1, 1, 2, 8, 64))]
    elif what < 0.9:
        made[at:at] = draw.choice(pieces)
    elif what < 0.95:
        made[at:] = draw.choice(seeds)[at:]
    else:
        made += made[: draw.randrange(16)]
