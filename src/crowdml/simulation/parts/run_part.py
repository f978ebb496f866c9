"""Running one part: its replicas of every group, in the shapes that all replicas have together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from crowdml.algorithms.recipe import PooledRecipe, SlicedRecipe
from crowdml.core import BadInput
from crowdml.simulation import checkpoint
from crowdml.simulation.own_data import bind
from crowdml.simulation.parts.part_file import GroupPart, Part, Shard
from crowdml.simulation.result import Watcher
from crowdml.simulation.run import require_numbers, run_known, work_out
from crowdml.simulation.workers import pool
from crowdml.simulation.workers.crew import HERE, Crew, described_machine
from crowdml.task import Task

Groups = Sequence[Sequence[Task]]
"""Tasks that are compiled together, side by side."""


def run_part(
    groups: Groups,
    shard: Shard,
    request: dict[str, Any],
    *,
    trials: int,
    seed: int,
    engine: str | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
    crew: Crew = HERE,
) -> Part:
    """Run one part of all groups.

    Args:
        groups: The whole run.
        shard: Which part.
        request: What was asked for.
        trials: Repetitions of each task.
        seed: Of the run.
        engine: As for `simulate`.
        resume: Go on where this part was interrupted.
        watch: Told how far the part is.
        crew: Whose workers run it.
    """
    require_numbers(trials, seed)
    made: list[GroupPart] = []
    begun, total = 0, sum(len(group) for group in groups) * trials
    for group in groups:
        count = len(group) * trials
        mine = [number for number in range(count) if shard.holds(begun + number)]

        def told(share: float, error: float, begun: int = begun, count: int = count) -> None:
            if watch:
                watch((begun + share * count) / total, error)

        begun += count
        if mine and (part := _run_group(group, mine, trials, seed, engine, resume, told, crew)):
            made.append(part)
    if watch:
        watch(1.0, math.nan)
    return Part(shard=shard, request=request, machine=described_machine(), groups=tuple(made))


def _run_group(
    group: Sequence[Task],
    mine: Sequence[int],
    trials: int,
    seed: int,
    engine: str | None,
    resume: bool,
    watch: Watcher,
    crew: Crew,
) -> GroupPart | None:
    """Run some replicas of a group; nothing where they would leave no checkpoint."""
    cpu_begun = pool.cpu_seconds_of_all()
    tasks = [bind(task) for task in group]
    if isinstance(tasks[0].recipe, PooledRecipe | SlicedRecipe):
        return None
    known = work_out(tasks, trials, seed, engine, crew, mine)
    if known.engine == "numpy":
        return None
    path = checkpoint.run_path(tasks, trials, seed, mine)
    wanted = checkpoint.Wanted(path=path, resume=resume, keep=True, cpu_begun=cpu_begun, replicas=len(mine))
    run_known(known, wanted, watch, crew)
    if not path.exists():
        raise BadInput(f"{path.parent} cannot be written, so nothing is left of this part", where="XDG_CACHE_HOME")
    key = checkpoint.run_path(tasks, trials, seed).stem
    found = GroupPart(key=key, replicas=tuple(mine), count=len(group) * trials, progress=checkpoint.load(path))
    path.unlink()
    return found
