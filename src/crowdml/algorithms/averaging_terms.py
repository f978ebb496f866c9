"""What a task file may ask of averaging, and what its reader should be told.

A classical robust rule takes what most devices say for true. That fails where honest devices differ much (few classes
each, or local noise), and beyond the share of liars it was made for: then only a small public set helps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowdml.algorithms.public import LEAST_TO_LEARN
from crowdml.core import NUMPY, BadInput

if TYPE_CHECKING:
    from crowdml.algorithms.task import Task

NOISY_EPSILON = 1.0
"""At this ε for a device's whole task or below, noise hides who lies."""

UNALIKE = ("shards", "dirichlet")
"""Partitions whose devices see different classes."""


def public_rows_needed(task: Task) -> int:
    """Return how many public rows, with all labels among them, a task needs on the server; 0 where it needs none."""
    algorithm: Any = task.algorithm
    if getattr(algorithm, "averaging", None) == "learned":
        return LEAST_TO_LEARN
    tunes = getattr(algorithm, "finetune", None)
    return len(task.data.labels) if (tunes and tunes.steps) or task.robust.rule.needs_root else 0


def check_averaging(task: Task) -> None:
    """Refuse what cannot be done."""
    gathers = task.recipe.gathers
    by = getattr(task.algorithm, "averaging", None)
    for where, asked in (("robust.rule", task.robust.asked), ("crowd.attack", bool(task.crowd.attack.liars(1)))):
        if asked and not gathers:
            raise BadInput(
                f"{task.algorithm.kind} never has several check-ins to compare",
                where=where,
                hint='use kind = "fedavg", "fedsgd", or "local-sgd" with a server-batch',
            )
    if by in ("inverse-variance", "learned") and task.robust.rule.kind not in ("none", "mean"):
        raise BadInput(
            f"{task.robust.rule.kind} makes an update by itself: there is nothing left to weigh",
            where="robust.rule",
            hint='rule = { kind = "mean" } bounds check-ins before they are weighed',
        )
    if task.sums.masked and task.build(NUMPY).takes == "individuals":
        raise BadInput(
            "rules and weights compare check-ins one by one, and the server of a masked task sees their sum alone",
            where="sums.masked",
            hint='leave it out, or leave out [robust], crowd.attack and averaging = "learned" or "inverse-variance"',
        )
    needed = public_rows_needed(task)
    if task.data.public < needed:
        raise BadInput(
            f"the server needs public rows, at least {needed}, with every label among them",
            where="data.public",
            hint=f"public = {max(needed, 500)} declares so many rows public; no device holds them",
        )


def warnings(task: Task) -> list[str]:
    """Say where a robust rule is known to fail."""
    rule, found = task.robust.rule, []
    if rule.classical and task.crowd.partition.kind in UNALIKE:
        found.append(
            f"{rule.kind} takes honest devices that see other classes for liars: it lost 40 points and more where "
            "root-cosine with 100 public rows lost 6"
        )
    epsilons = [task.privacy.epsilon, *task.crowd.owner_epsilon.values]
    least = min((own for own in epsilons if own is not None), default=None)
    if rule.classical and task.privacy.mode != "none" and least is not None and least <= NOISY_EPSILON:
        found.append(f"with local noise at ε = {least:g}, {rule.kind} cannot tell liars from noise; root-cosine can")
    most = getattr(rule, "share", None)
    if most is not None and task.crowd.attack.liars(1) and task.crowd.attack.share > most:
        found.append(f"more devices lie than {rule.kind} leaves out: {task.crowd.attack.share:g} against {most:g}")
    return found
