"""Rounds: which devices are invited to the present version, where a task invites at all.

The choice is a keyed hash of version and slot, so a restarted server chooses the same devices without having stored
anything. Devices that stay silent are made up for: after each span of patience as many more are invited as are missing.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence

Choose = Callable[[int, Sequence[int]], list[int]]
"""`choose(version, slots)`: the slots in the order in which they are invited."""


def by_hash(secret: bytes) -> Choose:
    """Order slots by a hash that only the server can compute."""

    def rank(version: int, slot: int) -> bytes:
        return hashlib.blake2b(f"{version}/{slot}".encode(), key=secret, digest_size=8).digest()

    return lambda version, slots: sorted(slots, key=lambda slot: rank(version, slot))


class Invited:
    """Keeps who is invited to the present version.

    Args:
        per_round: Devices a round needs.
        patience_s: Seconds after which missing devices are made up for.
        choose: Orders the slots.
        clock: Monotonic seconds.
    """

    def __init__(
        self, per_round: int, patience_s: float, choose: Choose, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin before the first version."""
        self._per_round, self._patience_s, self._choose, self._clock = per_round, patience_s, choose, clock
        self._version, self._since, self._slots, self._crowd = -1, 0.0, frozenset[int](), -1
        self._more = 0

    def includes(self, slot: int, version: int, received: int, active: Iterable[int], crowd: int) -> bool:
        """Tell whether a device is in the round of this version.

        Args:
            slot: The device.
            version: The present version.
            received: Check-ins that the round has already.
            active: Slots of all devices that may speak; looked at only when something changed.
            crowd: A number that changes whenever `active` does.
        """
        now = self._clock()
        if version != self._version:
            self._version, self._since, self._more, self._slots, self._crowd = version, now, 0, frozenset(), -1
        elif now - self._since > self._patience_s:
            self._since = now
            self._more += max(0, self._per_round - received)
            self._crowd = -1
        if crowd != self._crowd:
            self._crowd = crowd
            wanted = self._per_round + self._more
            # Whoever was invited once stays invited: it may be at work already.
            fresh = [own for own in self._choose(version, sorted(active)) if own not in self._slots]
            self._slots |= frozenset(fresh[: max(0, wanted - len(self._slots))])
        return slot in self._slots
