"""Barriers: the course of an algorithm in which every device works on all its rows at its own speed, over and over.

A device that has checked in waits until the server makes a version of it, and begins anew from that. The server asks
`ready` with public integers after every check-in: how many are there, and for how long others have been silent.
"""

from __future__ import annotations

import heapq

import numpy as np

from crowdml.algorithms import Algorithm, Counts, Task
from crowdml.core import BadInput, record
from crowdml.simulation.contacts import Contacts, Ints
from crowdml.simulation.rounds import most_releases, shards_of
from crowdml.simulation.speeds import Speeds, draw_speeds


@record
class Course:
    """Contacts in the order of their arrival, how stale each is, and after which a version is made."""

    contacts: Contacts
    staleness: Ints
    commits: Ints


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


def make_barrier_course(task: Task, algorithm: Algorithm, owner: Ints, generator: np.random.Generator) -> Course:
    """Work out who checks in when, until all passes are made, or too few devices may go on."""
    assert algorithm.barrier is not None  # noqa: S101  the caller has asked
    shards = shards_of(owner, task.crowd.devices)
    holders = np.flatnonzero([len(shard) for shard in shards])
    if algorithm.barrier.least > len(holders):
        raise BadInput(
            f"the server waits for {algorithm.barrier.least} devices, and {len(holders)} hold rows",
            where="algorithm.barrier",
            hint=f"barrier = {len(holders)}, or a partition that gives rows to everybody",
        )
    total, most = task.passes * len(holders), most_releases(task)
    crowd = _Crowd(holders, most or total, draw_speeds(task.crowd.speeds, task.crowd.devices, generator))
    crowd.begin(holders.tolist(), 0.0, 0)
    entries: list[tuple[int, float, float]] = []
    staleness, commits, version = [], [], 0
    while crowd.working and len(entries) < total and version != task.stop.max_versions:
        now, device, begun, read = heapq.heappop(crowd.working)
        crowd.waiting.add(device)
        entries.append((device, begun, now))
        staleness.append(version - read)
        enough = len(crowd.waiting) >= algorithm.barrier.least
        counts = Counts(received=len(crowd.waiting), version=version, longest=crowd.longest() if enough else version)
        commits.append(enough and algorithm.ready(counts))
        if commits[-1]:
            version += 1
            crowd.commit(now, version)
    contacts = _contacts(entries, shards)
    return Course(contacts=contacts, staleness=np.array(staleness, np.int64), commits=np.array(commits, bool))


def _contacts(entries: list[tuple[int, float, float]], shards: list[Ints]) -> Contacts:
    rows = np.zeros((len(entries), max(map(len, shards))), np.int32)
    for line, (device, _, _) in zip(rows, entries, strict=True):
        line[: len(shards[device])] = shards[device]
    devices, begun, arrived = (np.array(column) for column in zip(*entries, strict=True))
    counts = np.array([len(shard) for shard in shards], np.int32)[devices]
    return Contacts(device=devices, rows=rows, counts=counts, filled=begun, read=begun, arrival=arrived)
