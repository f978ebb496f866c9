"""Whom the sums of a task leave out: members that are proven to cheat, and for a while those who accuse each other.

Proven: whoever revealed a share that does not fit its public mark, whoever dealt shares that fit their marks and give
no secret, and whoever is accused of wrong mail or tags by more members than may be corrupt: in one attempt by more
than may be in its roster, in all attempts together by more than may be in as many rosters as the crowd would fill.

An accusation by fewer proves nothing, but that one of the two is corrupt. If an attempt fails for it, both are left out
of the further attempts at that version: at most one honest member for each corrupt one.

Nothing of it is stored: a server that is started anew learns it again, at the price of an attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from crowdml.protocol.sums import SumServer


class Suspects:
    """Keeps who is left out.

    Attributes:
        guilty: Slots that are left out of all sums.
    """

    def __init__(self) -> None:
        """Suspect nobody."""
        self.guilty: set[int] = set()
        self._accusers: dict[int, set[int]] = {}
        self._quarrel: tuple[int, set[int]] = (-1, set())

    def note(self, machine: SumServer, failed: bool, crowd: int = 0) -> None:
        """Draw the conclusions from an attempt.

        Args:
            machine: The attempt's machine, at whichever stage it ended.
            failed: Whether it was given up.
            crowd: Devices that the members of all attempts come from, where they are more than a roster holds.
        """
        terms, now = machine.terms, Counter(slot for accused in machine.blames.values() for slot in accused)
        most = terms.corrupt * max(1, -(-crowd // terms.invited))
        self.guilty |= machine.guilty
        version, aside = self._quarrel
        aside = set(aside) if version == machine.version else set()
        for accuser, accused in machine.blames.items():
            for slot in accused:
                accusers = self._accusers.setdefault(slot, set())
                accusers.add(accuser)
                if now[slot] > terms.corrupt or len(accusers) > most:
                    self.guilty.add(slot)
        if failed:
            for accuser, accused in machine.blames.items():
                for slot in accused:
                    if aside.isdisjoint((accuser, slot)) and self.guilty.isdisjoint((accuser, slot)):
                        aside |= {accuser, slot}
        self._quarrel = machine.version, aside

    def left_out(self, version: int) -> Collection[int]:
        """Name the slots that the next attempt at a version goes without."""
        return self.guilty | (self._quarrel[1] if self._quarrel[0] == version else set())
