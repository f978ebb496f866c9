"""What a task may ask of averaging: weights, rules against Byzantine devices, and public rows to learn them from.

A classical robust rule takes what most devices say for true. That fails where honest devices differ much (few classes
each, or local noise), and beyond the share of Byzantine devices it was made for: then only a small public set helps.
Public rows are read from an operator's file, transformed once and kept by the server, which validates models on them
whether a task learns from them or not. They never travel to devices; what transforms learnt from them does, in the
signed task.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdml.algorithms.aggregation.public_rows import LEAST_TO_LEARN, ROWS, TARGETS, require_targets
from crowdml.core import BadInput
from crowdml.data.transforms import compose

if TYPE_CHECKING:
    from crowdml.task.task import Task

PublicSet = dict[str, npt.NDArray[Any]]
"""`rows` as the model sees them, and their `labels`."""

MOST_VALIDATED = 2000
"""Public rows that models are validated on, at most."""

NOISY_EPSILON = 1.0
"""At this ε for a device's whole task or below, noise hides who is Byzantine."""

UNALIKE = ("shards", "dirichlet")
"""Partitions whose devices see different classes."""


def public_rows_needed(task: Task) -> int:
    """Return how many public rows, with all labels among them, a task needs on the server; 0 where it needs none."""
    algorithm: Any = task.algorithm
    if getattr(algorithm, "averaging", None) == "learned":
        return LEAST_TO_LEARN
    tunes = getattr(algorithm, "finetune", None)
    return task.target.bins if (tunes and tunes.steps) or task.robust.rule.needs_root else 0


def warnings(task: Task) -> list[str]:
    """Say where a robust rule is known to fail."""
    rule, found = task.robust.rule, []
    if rule.classical and task.crowd.partition.kind in UNALIKE:
        found.append(
            f"{rule.kind} takes honest devices that see other classes for Byzantine ones: it lost 40 points and more "
            "where root-cosine with 100 public rows lost 6"
        )
    epsilons = [task.privacy.epsilon, *task.crowd.owner_epsilon.values]
    least = min((epsilon for epsilon in epsilons if epsilon is not None), default=None)
    if rule.classical and task.calibrated.promises and least is not None and least <= NOISY_EPSILON:
        found.append(
            f"with local noise at ε = {least:g}, {rule.kind} cannot tell Byzantine devices from noise; root-cosine can"
        )
    most = getattr(rule, "share", None)
    if most is not None and task.crowd.attack.byzantine(1) and task.crowd.attack.share > most:
        found.append(
            f"more devices are Byzantine than {rule.kind} leaves out: {task.crowd.attack.share:g} against {most:g}"
        )
    return found


def read_public(path: Path, features: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    """Read rows, and labels (of a number: targets) where there are some, from an NPZ file."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            given = next((name for name in ("targets", "labels") if name in arrays), None)
            rows, labels = arrays["rows"], arrays[given] if given else None
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f'{path} is not an NPZ file with an array "rows": {error}', where="--public") from None
    if rows.ndim != 2 or rows.shape[1] != features:
        raise BadInput(f"rows of shape {rows.shape}, not (any, {features})", where="--public")
    if labels is not None and labels.shape != (len(rows),):
        raise BadInput(f"{labels.shape} labels for {len(rows)} rows", where="--public")
    return rows, labels


def public_set(task: Task, path: Path | None, arrays: tuple[dict[str, npt.NDArray[Any]], ...]) -> PublicSet | None:
    """Return what the server keeps: to learn weights on where the task does so, and else to validate models.

    Where nothing is learnt from them a couple of thousand, spread over the file, are enough. None where there is no
    file, or no labels in it.

    Args:
        task: The task.
        path: The operator's file.
        arrays: What the transforms have learnt.
    """
    needed = public_rows_needed(task)
    if path is None and not needed:
        return None
    if path is None:
        raise BadInput(
            "the server needs labelled public rows",
            where="data.public",
            hint=f'give them: --public FILE.npz, with arrays "rows" and "{task.target.noun}s"',
        )
    rows, labels = read_public(path, task.data.features)
    if labels is None and not needed:
        return None
    if labels is None:
        raise BadInput(f'{path} has no array "{task.target.noun}s"', where="--public")
    if not needed:
        every = max(1, -(-len(rows) // MOST_VALIDATED))
        rows, labels = rows[::every], labels[::every]
    try:
        encoded = task.target.encode(labels)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{path}: {error}", where="--public") from None
    fitted = [transform.restore(learnt) for transform, learnt in zip(task.data.transform, arrays, strict=True)]
    found = {"rows": compose(fitted)(rows), "labels": encoded.astype(np.float32)}
    check_public(task, found)
    require_public(task, found)
    return found


def require_public(task: Task, found: PublicSet | None) -> dict[str, Any]:
    """Check a set against the task; return it as hyper-parameters. Nothing where the task needs none."""
    needed = public_rows_needed(task)
    if not needed:
        return {}
    if found is None or set(found) != {"rows", "labels"}:
        raise BadInput("the server needs labelled public rows", where="data.public", hint="--public FILE.npz")
    check_public(task, found)
    rows, labels = found["rows"], found["labels"]
    require_targets(labels, task.target, needed)
    return {ROWS: rows.astype(np.float32), TARGETS: labels.astype(np.float32)}


def check_public(task: Task, found: PublicSet) -> None:
    """Refuse a set whose rows or targets are not those of the task."""
    if set(found) != {"rows", "labels"}:
        raise BadInput('public rows have arrays "rows" and "labels"', where="data.public")
    rows, labels = found["rows"], found["labels"]
    if rows.shape != (len(labels), task.features) or labels.ndim != 1 or not len(labels):
        raise BadInput(f"public rows of shape {rows.shape}, not ({len(labels)}, {task.features})", where="data.public")
    if not np.isfinite(rows).all():
        raise BadInput("public rows: some numbers are not finite", where="data.public")
    if problem := task.target.problem(labels):
        raise BadInput(f"public rows: {problem}", where="data.public")
