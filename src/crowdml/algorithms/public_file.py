"""Public rows of a live task: read from an operator's file, transformed once, kept by the server.

They never travel to devices. What transforms learnt from them does, in the sheet.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.algorithms.averaging_terms import public_rows_needed
from crowdml.algorithms.public import LABELS, ROWS, require_labels
from crowdml.algorithms.task import Task
from crowdml.core import BadInput
from crowdml.data.transforms import compose

PublicSet = dict[str, npt.NDArray[Any]]
"""`rows` as the model sees them, and their `labels`."""


def read_public(path: Path, features: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    """Read rows, and labels where there are some, from an NPZ file."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            rows, labels = arrays["rows"], arrays["labels"] if "labels" in arrays else None
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f'{path} is not an NPZ file with an array "rows": {error}', where="--public") from None
    if rows.ndim != 2 or rows.shape[1] != features:
        raise BadInput(f"rows of shape {rows.shape}, not (any, {features})", where="--public")
    if labels is not None and labels.shape != (len(rows),):
        raise BadInput(f"{labels.shape} labels for {len(rows)} rows", where="--public")
    return rows, labels


def public_set(task: Task, path: Path | None, arrays: tuple[dict[str, npt.NDArray[Any]], ...]) -> PublicSet | None:
    """Return what the server keeps; None for a task that needs no public rows.

    Args:
        task: The task.
        path: The operator's file.
        arrays: What the transforms have learnt.
    """
    if not public_rows_needed(task):
        return None
    if path is None:
        raise BadInput(
            "the server needs labelled public rows",
            where="data.public",
            hint='give them: --public FILE.npz, with arrays "rows" and "labels"',
        )
    rows, labels = read_public(path, task.data.features)
    if labels is None:
        raise BadInput(f'{path} has no array "labels"', where="--public")
    fitted = [transform.restore(own) for transform, own in zip(task.data.transform, arrays, strict=True)]
    found = {"rows": compose(fitted)(rows), "labels": labels.astype(np.float32)}
    require_public(task, found)
    return found


def require_public(task: Task, found: PublicSet | None) -> dict[str, Any]:
    """Check a set against the task; return it as hyper-parameters. Nothing where the task needs none."""
    needed = public_rows_needed(task)
    if not needed:
        return {}
    if found is None or set(found) != {"rows", "labels"}:
        raise BadInput("the server needs labelled public rows", where="data.public", hint="--public FILE.npz")
    rows, labels = found["rows"], found["labels"]
    if rows.shape != (len(labels), task.features) or labels.ndim != 1:
        raise BadInput(f"public rows of shape {rows.shape}, not ({len(labels)}, {task.features})", where="data.public")
    require_labels(labels, task.data.labels, needed)
    return {ROWS: rows.astype(np.float32), LABELS: labels.astype(np.float32)}
