"""Rounds: contacts of devices that the server invites, for algorithms in which they do not come by themselves.

To each round the server invites some devices, chosen anew at random. All of them read the same version, go through
their own rows, and the next version is made when all that were not lost have checked in.
"""

from __future__ import annotations

import numpy as np

from crowdml.algorithms import Rounds, Task
from crowdml.core import BadInput
from crowdml.simulation.contacts import Contacts, Ints, Times
from crowdml.simulation.speeds import draw_speeds


def make_rounds(task: Task, rounds: Rounds, owner: Ints, generator: np.random.Generator) -> Contacts:
    """Work out all rounds of a crowd whose row r belongs to device `owner[r]`."""
    shards = shards_of(owner, task.crowd.devices)
    holders = np.flatnonzero([len(shard) for shard in shards])
    if rounds.per_round > len(holders):
        raise BadInput(
            f"{rounds.per_round} devices cannot be invited: {len(holders)} hold rows",
            where="algorithm.per-round",
            hint=f"per-round = {len(holders)}, or more devices",
        )
    invited = _invite(holders, rounds.per_round, _count(task, rounds), most_releases(task), generator)
    sizes = np.minimum([len(shard) for shard in shards], rounds.max_rows or len(owner)).astype(np.int32)
    width = _up_to(int(sizes.max()) * rounds.epochs, rounds.multiple)
    rows = np.zeros((len(invited) * rounds.per_round, width), np.int32)
    for line, device in zip(rows, invited.reshape(-1), strict=True):
        shard = generator.permutation(shards[device])[: sizes[device]] if rounds.max_rows else shards[device]
        line[: len(shard) * rounds.epochs] = np.concatenate(
            [generator.permutation(shard) for _ in range(rounds.epochs)]
        )
    work, lasting = _working(task, invited, generator)
    begins = np.repeat(np.cumsum(lasting) - lasting, rounds.per_round)
    counts = sizes[invited.reshape(-1)] * rounds.epochs
    return Contacts(
        device=invited.reshape(-1), rows=rows, counts=counts, filled=begins, read=begins, arrival=begins + work
    )


def shards_of(owner: Ints, devices: int) -> list[Ints]:
    """Return the rows that each device holds."""
    return np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner, minlength=devices))[:-1])


def _working(task: Task, invited: Ints, generator: np.random.Generator) -> tuple[Times, Times]:
    """Return the time that each device works, and that each round lasts: as long as its slowest device works."""
    speeds = draw_speeds(task.crowd.speeds, task.crowd.devices, generator)
    work = np.stack([speeds.work(own) for own in invited])
    return work.reshape(-1), work.max(axis=1)


def _count(task: Task, rounds: Rounds) -> int:
    """Return how many rounds go through all rows `passes` times, on average; at least one."""
    crowd = task.crowd
    count = max(1, task.passes * crowd.devices // (rounds.per_round * rounds.epochs))
    return count if task.stop.max_versions is None else min(count, task.stop.max_versions)


def most_releases(task: Task) -> int | None:
    """Return how often a device may check in: all its samples are in every release, and none may be in too many."""
    return min((limit for limit in (task.stop.max_releases, task.most_uses) if limit is not None), default=None)


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


def _up_to(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
