"""Worlds: what a real device sends in either of two worlds, without noise and with it.

`sends` runs the recipe's own device part, release after release, with the operating system's coins: clipping, local
steps, rounding, the check of the integers. Every release is made many times, as rounding is by chance.

`Sent.statistic` has the device's code add its noise, drawn by its exact samplers from the operating system's entropy.
It does so for many releases at once, and only to the numbers that differ between the worlds: the noise on all others is
independent of everything, and tells nobody anything (`whole_check_ins` measures that it is there).

What a release is, and who adds noise to it, is `seen`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.audit.neighbours import Bench, Pair
from crowdml.audit.seen import RATIOS, Seen, flattened
from crowdml.core import Batch, Broadcast, Coins, Release, Tally, record, trees
from crowdml.core.ops import Tree, ZeroCoins

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
MOST_NUMBERS = 48
"""Numbers of a message that are looked at; those that differ most."""
ENOUGH = 0.999
"""Part of the difference between the worlds that need be among them."""
POOL = 64
"""Times that a release is made without noise."""
CHUNK = 1 << 20
"""Numbers that get their noise at once."""


@record
class Sent:
    """One release in two worlds, without noise.

    Attributes:
        seen: What is seen of it.
        updates: Integers in either world: one row for each time it was made, a column for each number looked at.
        counts: Errors and spread in either world; empty where counts are not sent.
        times: How often it is made in a course, each time with fresh noise.
    """

    seen: Seen
    updates: tuple[Ints, Ints]
    counts: tuple[Ints, Ints] | tuple[()]
    times: int = 1

    @property
    def numbers(self) -> int:
        """Numbers that get noise in one trial."""
        counts = len(self.counts[0]) if self.counts else 0
        return self.times * self.seen.shares * (int(self.updates[0].shape[1]) + counts)

    def apart(self) -> float:
        """Return how far apart the worlds are in units of noise: ε for Laplace noise, μ² for Gaussian."""
        one, other = (made.mean(axis=0) for made in self.updates)
        return self.seen.distance(one - other)

    def statistic(self, world: int, trials: int, coins: Coins, seen: Seen, counted: bool = True) -> Floats:
        """Return the log-likelihood ratio of so many trials in one world, summed over all times of the release.

        Args:
            world: 0 or 1.
            trials: How many.
            coins: The device's.
            seen: Whose noise is added: the one of the task, or a control's.
            counted: Whether counts are looked at, too.
        """
        each = max(1, CHUNK // max(1, self.numbers // self.seen.shares))
        return np.concatenate(
            [self._chunk(world, min(each, trials - begin), coins, seen, counted) for begin in range(0, trials, each)]
        )

    def _chunk(self, world: int, trials: int, coins: Coins, seen: Seen, counted: bool) -> Floats:
        made = self.updates[world]
        lines = trials * self.times
        update: Any = made[np.arange(lines) % len(made)].astype(seen.dtype)
        release = Release(update=update, rows=np.int32(1), counts=self._tally(world, lines))
        first, nothing = seen.noisy(release, coins), trees.map(np.zeros_like, release)
        total, counts = first.update.astype(made.dtype), _counts_of(first.counts)
        for _ in range(seen.shares - 1):
            more = seen.noisy(nothing, coins)
            total += more.update
            counts = counts + _counts_of(more.counts)
        one, other = (each.mean(axis=0) for each in self.updates)
        found = self.seen.ratio(total.astype(np.float64), one, other)
        if counted and self.counts:
            found = found + self._ratio_of_counts(counts)
        summed: Floats = found.reshape(trials, self.times).sum(axis=1)
        return summed

    def _tally(self, world: int, lines: int) -> Tally | tuple[()]:
        if not self.counts:
            return ()
        errors, *spread = self.counts[world].tolist()
        return Tally(
            rows=np.int32(1),
            counted=np.int32(1),
            errors=np.full(lines, errors, np.int32),
            spread=np.tile(np.array(spread, np.int32), (lines, 1)),
        )

    def _ratio_of_counts(self, seen: Ints) -> Floats:
        noise, root = self.seen.counts, math.sqrt(self.seen.shares)
        assert noise is not None and self.counts  # noqa: S101
        ratio, numbers = RATIOS[noise.law.name], seen.astype(np.float64)
        one, other = (each.astype(np.float64) for each in self.counts)
        errors = ratio(numbers[:, :1], one[:1], other[:1], noise.errors * root)
        return errors + ratio(
            numbers[:, 1:], one[1:], other[1:], (noise.errors if noise.shared else noise.spread) * root
        )


def _counts_of(tally: Tally | tuple[()]) -> Ints:
    if not tally:
        return np.zeros((1, 0), np.int64)
    return np.concatenate([np.asarray(tally.errors)[:, None], np.asarray(tally.spread)], axis=1).astype(np.int64)


def sends(bench: Bench, pair: Pair, releases: int, coins: Callable[[], Coins], pool: int = POOL) -> tuple[Sent, ...]:
    """Let the device part work in both worlds, for so many releases; equal releases are one that is made often.

    Args:
        bench: The task.
        pair: The two worlds.
        releases: Releases of a course.
        coins: Makes the coins of a release.
        pool: Times that each is made.
    """
    algorithm, batches = bench.algorithm, bench.batches(pair)
    opening = sum(phase.versions or 0 for phase in algorithm.phases[:-1])
    numbers = [(version, 1) for version in range(min(opening, releases))]
    if algorithm.remembers_rows:
        numbers = [(version, 1) for version in range(releases)]
        pool = max(2, min(pool, 512 // releases))
    elif releases > opening:
        numbers.append((opening, releases - opening))
    told = _told(bench, pair, batches, [at for at, _ in numbers])
    made = [[_course(bench, told, batch, coins) for _ in range(pool)] for batch in batches]
    found = []
    for place, (version, times) in enumerate(numbers):
        seen = bench.seen_at(version)
        updates = [np.array([flattened(course[place].update) for course in world]) for world in made]
        counts = tuple(_counts_of_release(world[0][place]) for world in made)
        if seen.law.whole:
            chosen: Ints = np.arange(updates[0].shape[1])
        else:
            chosen = _differing(updates[0], updates[1], seen.order)
        found.append(
            Sent(
                seen=seen,
                updates=(updates[0][:, chosen], updates[1][:, chosen]),
                counts=(counts[0], counts[1]) if len(counts[0]) else (),
                times=times,
            )
        )
    return tuple(found)


Told = Sequence[tuple[int, Broadcast]]
"""Versions of a course, and what the server broadcasts at each."""


def _told(bench: Bench, pair: Pair, batches: tuple[Batch, Batch], versions: Sequence[int]) -> Told:
    """Choose what the server tells: where devices remember, whatever tells their next messages apart best."""
    algorithm = bench.algorithm
    if not algorithm.remembers_rows:
        return [(version, pair.broadcast) for version in versions]
    works, found = [bench.seen[-1].phase.device.init() for _ in batches], list[tuple[int, Broadcast]]()
    for version in versions:
        tried = []
        for factor in (1.0, -1.0, 0.0):
            told = _times(pair.broadcast, factor)
            pairs = zip(works, batches, strict=True)
            made = [_step(bench, version, told, work, batch, ZeroCoins()) for work, batch in pairs]
            distance = np.linalg.norm(flattened(made[0][0].update) - flattened(made[1][0].update))
            tried.append((float(distance), told, [work for _, work in made]))
        _, told, works = max(tried, key=lambda each: each[0])
        found.append((version, told))
    return found


def _course(bench: Bench, told: Told, batch: Batch, coins: Callable[[], Coins]) -> list[Release]:
    """Make releases one after the other."""
    work, found = bench.seen[-1].phase.device.init(), list[Release]()
    for version, broadcast in told:
        release, work = _step(bench, version, broadcast, work, batch, coins())
        found.append(release)
    return found


def _step(
    bench: Bench, version: int, broadcast: Broadcast, work: Tree, batch: Batch, coins: Coins
) -> tuple[Release, Tree]:
    with np.errstate(all="ignore"):  # broadcasts of an attacker may leave all bounds; what is sent may not
        return bench.seen_at(version).plain(broadcast, work, batch, coins)


def _times(broadcast: Broadcast, factor: float) -> Broadcast:
    return replace(
        broadcast, parameters=trees.map(lambda leaf: np.asarray(leaf * factor, leaf.dtype), broadcast.parameters)
    )


def _counts_of_release(release: Release) -> Ints:
    if not release.counts:
        return np.zeros(0, np.int64)
    return np.concatenate([[int(release.counts.errors)], np.asarray(release.counts.spread)]).astype(np.int64)


def _differing(one: Ints, other: Ints, order: int) -> Ints:
    """Choose the numbers that differ most between the worlds, until nearly all of the difference is among them."""
    weight = np.abs(one.mean(axis=0) - other.mean(axis=0)) ** order
    by_weight = np.argsort(-weight, kind="stable")
    reached = np.cumsum(weight[by_weight]) >= ENOUGH * weight.sum()
    chosen: Ints = by_weight[: min(MOST_NUMBERS, int(np.argmax(reached)) + 1)]
    return chosen
