"""Who may be a member of a task's secure sums, and who is left out of them.

Members are the devices invited to a round, or those ready at a barrier, as long as they have releases left and attempts
at this version: a device sends a vector to so many attempts as the terms say, and to no more.

At a barrier a device says hello when its work is done, whichever version it began with: that is its notice of being
ready. The first s of them are the members of the next secure sum (partial barrier), and the others wait for the one
after it. A device that has been silent for τ - 1 versions is overdue (bounded delay): a place is kept for it, so the
sum waits. A live device may never come back, though. If it has not come when a stage's time is up it counts as away,
and no place is kept for it until it is heard again.

Left out are members that are proven to cheat, and for a while those who accuse each other. Proven: whoever revealed a
share that does not fit its public mark, whoever dealt shares that fit their marks and give no secret, and whoever is
accused of wrong mail or tags by more members than may be corrupt: in one attempt by more than may be in its roster, in
all attempts together by more than may be in as many rosters as the crowd would fill. An accusation by fewer proves
nothing, but that one of the two is corrupt. If an attempt fails for it, both are left out of the further attempts at
that version: at most one honest member for each corrupt one.

How many vectors were sent is stored. Who is left out is not: a server that is started anew learns it again, at the
price of an attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from crowdml.algorithms import Barrier
from crowdml.secure_aggregation import SumServer
from crowdml.server.refusals import Refusal
from crowdml.server.store.secure_attempts import Sent
from crowdml.server.tasks.device_tokens import DeviceState
from crowdml.server.tasks.folding import require_open
from crowdml.server.tasks.running_task import RunningTask


class Suspects:
    """Keeps who is left out.

    Attributes:
        guilty: Slots that are left out of all sums.
    """

    def __init__(self) -> None:
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


class Readiness:
    """Keeps for how long devices have been silent. Nothing of it is stored: a server that starts counts anew.

    Args:
        barrier: Whom a version waits for.
    """

    def __init__(self, barrier: Barrier) -> None:
        """Begin as if every device had just been heard."""
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


class SecureMembers:
    """Decides who takes part in the sums of one task.

    Args:
        running: The task, which must be one that aggregates securely.
        sent: How many vectors were sent before, by slot and the version that the device began with.
    """

    def __init__(self, running: RunningTask, sent: Sent) -> None:
        assert running.live.masked is not None  # noqa: S101  made for such tasks
        self._running, self._suspects = running, Suspects()
        schedule = running.live.server.schedule
        self._readiness = Readiness(schedule) if isinstance(schedule, Barrier) else None
        self.attempts = running.live.masked.masking.attempts
        self._sent = Counter(sent)

    def require_welcome(self, device: DeviceState, started: int, machine: SumServer) -> None:
        """Refuse a device that is not in the round, began too long ago, or has nothing left to send."""
        now, live, version = self._running.snapshot, self._running.live, machine.version
        require_open(now.state, now.reason)
        if started > version or not live.server.schedule.accepts(version - started):
            raise Refusal(409, "stale", f"begun with version {started}: not used", version=version)
        if live.server.schedule.invites and device.invited != version:
            raise Refusal(409, "not-invited", "this device was not asked for a contribution", version=version)
        limit = live.task.stop.max_releases
        if limit is not None and self._running.totals(device).check_ins >= limit:
            raise Refusal(409, "releases-spent", f"all {limit} releases of this device were made", version=version)
        if device.slot in self._suspects.left_out(version):
            raise Refusal(409, "left-out", "sums go on without this device: what it gave to another was wrong")
        if not self._may_send(device.slot, started):
            raise Refusal(409, "attempts-spent", f"all {self.attempts} attempts at this version are spent")
        if self._readiness:
            self._readiness.require_place(device.slot, machine.slots(), version, self._crowd())

    @property
    def sent(self) -> Sent:
        """How many vectors were sent, by slot and the version that the device began with."""
        return dict(self._sent)

    def sent_if_all(self, started: Mapping[int, int]) -> Sent:
        """Say the same for the case that all members of an attempt send theirs, who began with these versions."""
        return dict(self._sent + Counter(started.items()))

    def are_spent(self, version: int, least: int) -> bool:
        """Tell whether attempts at a version are spent, so that too few devices may send another vector.

        Where devices are missing because they have left or never came, a task waits for others as usual.
        """
        crowd = self._crowd()
        return sum(self._may_send(each.slot, version) for each in crowd) < min(least, len(crowd))

    def note_vector(self, slot: int, started: int) -> None:
        """Count a vector that a device has sent to an attempt."""
        self._sent[slot, started] += 1

    def forget_before(self, version: int) -> None:
        """Forget the vectors of versions that are too old to begin a sum with."""
        self._sent = Counter({place: count for place, count in self._sent.items() if place[1] >= version})

    def expected(self, machine: SumServer) -> int:
        """Count who may say hello: in rounds nobody waits for those who were invited and are left out."""
        if self._readiness:
            return machine.terms.invited
        out, devices = self._suspects.left_out(machine.version), self._running.devices
        missed = sum(slot in devices and devices[slot].invited == machine.version for slot in out)
        return max(machine.terms.least, machine.terms.invited - missed)

    def still_awaited(self, machine: SumServer) -> bool:
        """Tell, when time is up, whether a sum has to wait: a barrier wants all members, a round the least it needs."""
        if self._readiness is None:
            return machine.members() < machine.terms.least
        self._readiness.give_up(machine.slots(), machine.version, self._crowd())
        return machine.members() < machine.terms.invited

    def note_success(self, machine: SumServer, survivors: Iterable[int]) -> None:
        """Draw the conclusions from a sum that was folded in."""
        self._suspects.note(machine, failed=False, crowd=len(self._running.devices))
        if self._readiness:
            self._readiness.heard(survivors, machine.version + 1)

    def note_failure(self, machine: SumServer) -> bool:
        """Draw the conclusions from an attempt that was given up; return whether enough devices may try again."""
        self._suspects.note(machine, failed=True, crowd=len(self._running.devices))
        version, out = machine.version, self._suspects.left_out(machine.version)
        able = [each for each in self._crowd() if each.slot not in out and self._may_send(each.slot, version)]
        return len(able) >= machine.terms.least

    def _crowd(self) -> list[DeviceState]:
        """Return the devices that a version may wait for: those that have releases left."""
        limit = self._running.live.task.stop.max_releases
        devices, totals = list(self._running.devices.values()), self._running.totals
        return [device for device in devices if limit is None or totals(device).check_ins < limit]

    def _may_send(self, slot: int, started: int) -> bool:
        return self._sent[slot, started] < self.attempts
