"""Rounds and barriers: courses in which a device works on all its rows, at its own speed.

In *rounds* the server invites some devices, chosen anew at random. All of them read the same version, go through their
own rows, and the next version is made when all that were not lost have checked in.

With a *barrier* every device works over and over. One that has checked in waits until the server makes a version of it,
and begins anew from that. The server asks `ready` with public integers after every check-in: how many are there, and
for how long others have been silent.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from crowdml.algorithms import Barrier, Counts, Rounds
from crowdml.core import BadInput, record
from crowdml.simulation.timeline.contacts import Contacts, Course, arriving
from crowdml.simulation.timeline.orders import Ints, Times
from crowdml.task import Task
from crowdml.task.sections import SpeedSettings


def course_of_rounds(task: Task, rounds: Rounds, owner: Ints, generator: np.random.Generator) -> Course:
    """Work out all rounds: everything that arrives is used, and the last of a round's check-ins ends it."""
    sent = make_rounds(task, rounds, owner, generator)
    arrived = arriving(sent, task.crowd.drop_out, generator)
    masking = task.masking()
    if masking:
        arrived = _enough(arrived, masking.least)
    return Course(
        sent=sent,
        accepted=arrived,
        staleness=np.zeros(len(arrived.device), np.int64),
        commits=np.diff(arrived.read, append=np.inf) > 0,
    )


def make_rounds(task: Task, rounds: Rounds, owner: Ints, generator: np.random.Generator) -> Contacts:
    """Choose who is invited to which round with which rows, for a crowd whose row r belongs to device `owner[r]`."""
    shards = _shards_of(owner, task.crowd.devices)
    holders = np.flatnonzero([len(shard) for shard in shards])
    if rounds.cohort > len(holders):
        raise BadInput(
            f"{rounds.cohort} devices cannot be invited: {len(holders)} hold rows",
            where="algorithm.per-round",
            hint=f"per-round = {len(holders)}, or more devices",
        )
    invited = _invite(holders, rounds.cohort, _count(task, rounds), _most_releases(task), generator)
    sizes = np.minimum([len(shard) for shard in shards], rounds.max_rows or len(owner)).astype(np.int32)
    width = _up_to(int(sizes.max()) * rounds.epochs, rounds.multiple)
    rows = np.zeros((len(invited) * rounds.cohort, width), np.int32)
    for line, device in zip(rows, invited.reshape(-1), strict=True):
        shard = generator.permutation(shards[device])[: sizes[device]] if rounds.max_rows else shards[device]
        line[: len(shard) * rounds.epochs] = np.concatenate(
            [generator.permutation(shard) for _ in range(rounds.epochs)]
        )
    work, lasting = _working(task, invited, generator)
    begins = np.repeat(np.cumsum(lasting) - lasting, rounds.cohort)
    counts = sizes[invited.reshape(-1)] * rounds.epochs
    return Contacts(device=invited.reshape(-1), rows=rows, counts=counts, read=begins, arrival=begins + work)


def _working(task: Task, invited: Ints, generator: np.random.Generator) -> tuple[Times, Times]:
    """Return the time that each device works, and that each round lasts: as long as its slowest device works."""
    speeds = _draw_speeds(task.crowd.speeds, task.crowd.devices, generator)
    work = np.stack([speeds.work(cohort) for cohort in invited])
    return work.reshape(-1), work.max(axis=1)


def _count(task: Task, rounds: Rounds) -> int:
    """Return how many rounds there are: as the task says, or what goes through all rows `passes` times on average."""
    crowd = task.crowd
    count = crowd.rounds or max(1, task.passes * crowd.devices // (rounds.cohort * rounds.epochs))
    return count if task.stop.max_versions is None else min(count, task.stop.max_versions)


def _invite(
    holders: Ints, per_round: int, count: int, max_releases: int | None, generator: np.random.Generator
) -> Ints:
    """Choose the devices of each round, without repetition in a round; end when too few may still send."""
    left = {int(device): max_releases or count for device in holders}
    invited: list[Ints] = []
    for _ in range(count):
        able = np.array([device for device, releases in left.items() if releases > 0])
        if len(able) < per_round:
            break
        invited.append(generator.choice(able, per_round, replace=False))
        for device in invited[-1].tolist():
            left[device] -= 1
    return np.stack(invited)


def _enough(contacts: Contacts, least: int) -> Contacts:
    """Give up rounds that have lost too many: nothing of a masked sum can then be used, though all of it is spent."""
    _, rounds, counts = np.unique(contacts.read, return_inverse=True, return_counts=True)
    return contacts.take(np.flatnonzero(counts[rounds] >= least))


def _up_to(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def course_with_barrier(task: Task, barrier: Barrier, owner: Ints, generator: np.random.Generator) -> Course:
    """Work out who checks in when, until all passes are made, or too few devices may go on."""
    shards = _shards_of(owner, task.crowd.devices)
    holders = np.flatnonzero([len(shard) for shard in shards])
    if barrier.least > len(holders):
        raise BadInput(
            f"the server waits for {barrier.least} devices, and {len(holders)} hold rows",
            where="algorithm.barrier",
            hint=f"barrier = {len(holders)}, or a partition that gives rows to everybody",
        )
    total, most = task.passes * len(holders), _most_releases(task)
    crowd = _Crowd(holders, most or total, _draw_speeds(task.crowd.speeds, task.crowd.devices, generator))
    crowd.begin(holders.tolist(), 0.0, 0)
    entries: list[tuple[int, float, float]] = []
    staleness, commits, version = [], [], 0
    while crowd.working and len(entries) < total and version != task.stop.max_versions:
        now, device, begun, read = heapq.heappop(crowd.working)
        crowd.waiting.add(device)
        entries.append((device, begun, now))
        staleness.append(version - read)
        enough = len(crowd.waiting) >= barrier.least
        counts = Counts(received=len(crowd.waiting), version=version, longest=crowd.longest() if enough else version)
        commits.append(enough and barrier.ready(counts))
        if commits[-1]:
            version += 1
            crowd.commit(now, version)
    contacts = _contacts(entries, shards)
    return Course(
        sent=contacts,
        accepted=contacts,
        staleness=np.array(staleness, np.int64),
        commits=np.array(commits, bool),
    )


def _contacts(entries: list[tuple[int, float, float]], shards: list[Ints]) -> Contacts:
    rows = np.zeros((len(entries), max(map(len, shards))), np.int32)
    for line, (device, _, _) in zip(rows, entries, strict=True):
        line[: len(shards[device])] = shards[device]
    devices, begun, arrived = (np.array(column) for column in zip(*entries, strict=True))
    counts = np.array([len(shard) for shard in shards], np.int32)[devices]
    return Contacts(device=devices, rows=rows, counts=counts, read=begun, arrival=arrived)


class _Crowd:
    """Who is at work since when, who waits, and for how long everybody has been silent."""

    def __init__(self, devices: Ints, most: int, speeds: Speeds) -> None:
        self.left = dict.fromkeys(devices.tolist(), most)
        self.silent = dict.fromkeys(devices.tolist(), 0)
        self.waiting: set[int] = set()
        self.working: list[tuple[float, int, float, int]] = []
        self._speeds = speeds

    def begin(self, devices: list[int], now: float, version: int) -> None:
        """Hand out a version. Whoever may not check in any more leaves."""
        able = [device for device in devices if self.left[device] > 0]
        for device in set(devices) - set(able):
            self.silent.pop(device)
        for device, time in zip(able, self._speeds.work(np.array(able, np.int64)).tolist(), strict=True):
            self.left[device] -= 1
            heapq.heappush(self.working, (now + time, device, now, version))

    def commit(self, now: float, version: int) -> None:
        """Count for how long others are silent, and let those begin anew who have been heard."""
        heard, self.waiting = sorted(self.waiting), set()
        self.silent = {device: count + 1 for device, count in self.silent.items()} | dict.fromkeys(heard, 0)
        self.begin(heard, now, version)

    def longest(self) -> int:
        """Return for how many versions somebody has been silent who has not checked in now."""
        return max((count for device, count in self.silent.items() if device not in self.waiting), default=-1)


@record
class Speeds:
    """How long the devices of one trial work on a check-in; one of middling speed takes one unit.

    Attributes:
        paces: Time that each device needs.
        work: `work(devices)`: time that these devices need this time.
    """

    paces: Times
    work: Callable[[Ints], Times]


def _draw_speeds(settings: SpeedSettings, devices: int, generator: np.random.Generator) -> Speeds:
    """Draw how fast each device is; where nothing varies, nothing is drawn."""
    paces = np.exp(settings.sigma * generator.standard_normal(devices)) if settings.sigma else np.ones(devices)

    def work(chosen: Ints) -> Times:
        if not settings.jitter:
            return paces[chosen]
        return np.asarray(paces[chosen] * np.exp(settings.jitter * generator.standard_normal(len(chosen))))

    return Speeds(paces=paces, work=work)


def _shards_of(owner: Ints, devices: int) -> list[Ints]:
    """Return the rows that each device holds."""
    return np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner, minlength=devices))[:-1])


def _most_releases(task: Task) -> int | None:
    """Return how often a device may check in: all its samples are in every release, and none may be in too many."""
    return min((limit for limit in (task.stop.max_releases, task.most_uses) if limit is not None), default=None)
