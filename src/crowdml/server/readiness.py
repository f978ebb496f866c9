"""Whom a version of a barrier is made of: the first that are ready, with places kept for those silent for long.

A device says hello when its work is done, whichever version it began with: that is its notice of being ready. The first
s of them are the members of the next masked sum (partial barrier), and the others wait for the one after it.

A device that has been silent for τ - 1 versions is overdue (bounded delay): a place is kept for it, so the sum waits.
A live device may never come back, though. If it has not come when a stage's time is up it counts as away, and no place
is kept for it until it is heard again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from crowdml.algorithms.contract import Barrier
from crowdml.server.answers import Refusal
from crowdml.server.crowd import DeviceState


class Readiness:
    """Keeps for how long devices have been silent. Nothing of it is stored: a server that starts counts anew.

    Args:
        barrier: Whom a version waits for.
    """

    def __init__(self, barrier: Barrier) -> None:
        """Know nobody."""
        self._barrier = barrier
        self._since: dict[int, int] = {}
        self._away: set[int] = set()

    def overdue(self, version: int, devices: Iterable[DeviceState]) -> set[int]:
        """Name the slots for which places are kept: those silent for longest first, and no more than there are."""
        silent = {}
        for device in devices:
            if device.invited >= 0 and device.slot not in self._away:
                silent[device.slot] = version - self._since.setdefault(device.slot, device.invited)
        late = [slot for slot, count in silent.items() if count >= self._barrier.max_delay - 1]
        return set(sorted(late, key=lambda slot: (-silent[slot], slot))[: self._barrier.least])

    def require_place(self, slot: int, members: Collection[int], version: int, devices: Iterable[DeviceState]) -> None:
        """Refuse a device while all places that are left are kept for others."""
        kept = self.overdue(version, devices)
        free = self._barrier.least - len(members) - len(kept - set(members))
        if slot not in kept and slot not in members and free <= 0:
            raise Refusal(409, "no-place", "the places of this sum are kept for devices that are overdue")

    def heard(self, slots: Iterable[int], version: int) -> None:
        """Note whom a version was made of."""
        for slot in slots:
            self._since[slot] = version
            self._away.discard(slot)

    def give_up(self, members: Collection[int], version: int, devices: Iterable[DeviceState]) -> None:
        """Keep no more places for those that are overdue and have not come."""
        self._away |= self.overdue(version, devices) - set(members)
