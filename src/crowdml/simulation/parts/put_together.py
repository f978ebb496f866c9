"""Putting parts together: are they all of one run, and what would it have left at its end?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crowdml.core import BadInput
from crowdml.simulation import checkpoint
from crowdml.simulation.checkpoint import Progress, Spent
from crowdml.simulation.own_data import bind
from crowdml.simulation.parts.part_file import GroupPart, Part
from crowdml.simulation.parts.run_part import Groups
from crowdml.simulation.workers.crew import described_machine


def require_one_run(parts: Sequence[Part]) -> dict[str, Any]:
    """Refuse parts that are not exactly those of one run; return what was asked for."""
    first = parts[0]
    for part in parts[1:]:
        for what, ours, theirs in _differences(first, part):
            name = f"part {part.shard.number}/{part.shard.of}"
            told = f"{name} is of another {what} than part {first.shard.number}/{first.shard.of}: {theirs}, not {ours}"
            raise BadInput(told, hint="give the parts of one run")
    here = described_machine()["versions"]
    if first.machine["versions"] != here:
        differing = [name for name in here if first.machine["versions"].get(name) != here[name]]
        what = f"these parts were run with another version of {', '.join(differing)} than is installed here"
        raise BadInput(what, hint="put them together with the versions that ran them")
    numbers = [part.shard.number for part in parts]
    if twice := [number for number in numbers if numbers.count(number) > 1]:
        raise BadInput(f"part {twice[0]}/{first.shard.of} is there twice")
    if missing := sorted(set(range(1, first.shard.of + 1)) - set(numbers)):
        told = ", ".join(f"{number}/{first.shard.of}" for number in missing[:5])
        raise BadInput(f"of {first.shard.of} parts {len(missing)} are missing: {told}", hint="give all parts")
    return first.request


def _differences(one: Part, other: Part) -> list[tuple[str, Any, Any]]:
    """Return what two parts differ in, in words."""
    found: list[tuple[str, Any, Any]] = [("number of parts", one.shard.of, other.shard.of)]
    names = ("version of crowdml", one.machine["versions"]["crowdml"], other.machine["versions"]["crowdml"])
    found.append(names)
    found.append(("set of versions", one.machine["versions"], other.machine["versions"]))
    for name in ("command", "seed", "trials", "engine"):
        found.append((name, one.request.get(name), other.request.get(name)))
    found = [each for each in found if each[1] != each[2]]
    if not found and one.request != other.request:
        found = [("task", one.request.get("name"), other.request.get("name"))]
    return found


def restore(parts: Sequence[Part], groups: Groups, trials: int, seed: int) -> tuple[str, ...]:
    """Write the checkpoints that the whole run would have left; `resume` then has all results at once.

    Returns:
        What to know of the results.
    """
    keys = {
        checkpoint.run_path(bound, trials, seed).stem: bound
        for bound in ([bind(task) for task in group] for group in groups)
    }
    held: dict[str, list[GroupPart]] = {}
    for group in (group for part in parts for group in part.groups):
        if group.key not in keys:
            raise BadInput("these parts are of another task than they say: was a file of rows changed meanwhile?")
        held.setdefault(group.key, []).append(group)
    for key, of in held.items():
        path = checkpoint.run_path(keys[key], trials, seed)
        checkpoint.save(path, _joined(of))
    processors = {part.machine["processor"] for part in parts}
    names = ", ".join(sorted(processors))
    return (f"parts were run on different processors ({names}): bits may differ",) if len(processors) > 1 else ()


def _joined(parts: Sequence[GroupPart]) -> Progress:
    """Put the states and measurements of all replicas together, in their order."""
    numbers = [number for part in parts for number in part.replicas]
    if sorted(numbers) != list(range(parts[0].count)):
        raise BadInput("not all trials of these parts are there, or some are there twice", hint="run them again")
    order = np.argsort(numbers)
    points = max(len(values) for part in parts for values in part.progress.measured.values())
    states = zip(*(part.progress.leaves for part in parts), strict=True)
    seconds = [part.progress.spent.cpu_seconds for part in parts]
    known = [each for each in seconds if each is not None]
    return Progress(
        chunk=max(part.progress.chunk for part in parts),
        leaves=tuple(np.concatenate(leaves)[order] for leaves in states),
        measured={
            name: np.concatenate([_long(part.progress.measured[name], points) for part in parts], axis=1)[:, order]
            for name in parts[0].progress.measured
        },
        spent=Spent(
            cpu_seconds=sum(known) if len(known) == len(seconds) else None,
            commits=tuple(dict.fromkeys(each for part in parts for each in part.progress.spent.commits)),
        ),
    )


def _long(values: Any, points: int) -> Any:
    """Repeat the last point: whose replicas have all met `error-below` stop, and stay as they are."""
    return np.concatenate([values, np.repeat(values[-1:], points - len(values), axis=0)])
