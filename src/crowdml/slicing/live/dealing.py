"""Dealing: who is dominator when, who has which piece, and in which order a dominator's rows go in.

All of it is drawn from secrets. So a restarted server deals alike without having stored anything, and a replay lets the
same batches in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from crowdml.core import record
from crowdml.slicing.stages import Indices

NOBODY = 0
"""Stands for a member where a seat is free; members are numbered from 1."""


@record
class Dealer:
    """Deals the pieces of one group.

    Attributes:
        secret: Orders members.
        group: Number of the group.
    """

    secret: bytes
    group: int

    def order(self, passes: int, size: int) -> list[int]:
        """In which order members are dominators in a pass."""
        return self.ranked(f"pass/{passes}", range(1, size + 1))

    def ranked(self, what: str, members: Iterable[int]) -> list[int]:
        """Order members by a keyed hash."""

        def rank(member: int) -> bytes:
            told = f"{self.group}/{what}/{member}".encode()
            return hashlib.blake2b(told, key=self.secret, digest_size=8).digest()

        return sorted(members, key=rank)

    def fill(
        self, seats: Sequence[int], present: Collection[int], turn: int, able: Callable[[int, int], bool]
    ) -> tuple[int, ...] | None:
        """Put somebody into every free seat; None where there are too few who can have its piece.

        Args:
            seats: Who has each piece, the dominator's first.
            present: Members that are there.
            turn: For which turn.
            able: `able(member, piece)`: whether a member can have a piece.
        """
        made = list(seats)
        free = self.ranked(f"turn/{turn}", [member for member in present if member not in made])
        for at, member in enumerate(made):
            if member and able(member, at - 1):
                continue
            found = next((other for other in free if able(other, at - 1)), None)
            if found is None:
                return None
            made[at] = found
            free.remove(found)
        return tuple(made)


def kept_seats(before: Sequence[int], present: Collection[int], dominator: int) -> tuple[int, ...]:
    """Keep as many seats as possible when the dominator changes: the old one takes the new one's piece.

    >>> kept_seats((1, 2, 3), (1, 2, 3, 4), 3)
    (3, 2, 1)
    >>> kept_seats((1, 2, 3), (2, 3, 4), 4)
    (4, 2, 3)
    """
    kept = [member if member in present else NOBODY for member in before]
    if dominator == kept[0]:
        return tuple(kept)
    return (dominator, *(kept[0] if member == dominator else member for member in kept[1:]))


def row_order(secret: bytes, turn: int, rows: int) -> Indices:
    """Draw the order in which a dominator's rows go in, once for each turn, from the device's secret.

    >>> row_order(b"secret", 3, 5).tolist() == row_order(b"secret", 3, 5).tolist()
    True
    """
    seed = hashlib.blake2b(f"crowdml row order/{turn}".encode(), key=secret[:64], digest_size=32).digest()
    words = np.frombuffer(seed, "<u4")
    found: Indices = np.random.default_rng(words.tolist()).permutation(rows)
    return found
