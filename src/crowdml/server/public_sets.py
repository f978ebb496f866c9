"""Public sets: labelled rows that a task's server learns weights on, as the store keeps them."""

from __future__ import annotations

from typing import Any

import numpy as np
from safetensors.numpy import load, save

from crowdml.algorithms import Task
from crowdml.algorithms.public_file import PublicSet, require_public
from crowdml.protocol import Sheet


def write_public_set(task: Task, found: PublicSet | None) -> bytes | None:
    """Check a set and write it; None where the task needs none."""
    own = require_public(task, found)
    if not own or found is None:
        return None
    return save({name: np.ascontiguousarray(found[name], np.float32) for name in ("rows", "labels")})


def read_public_set(sheet: Sheet, content: bytes | None) -> dict[str, Any]:
    """Read a set as hyper-parameters of the sheet's task; nothing where there is none."""
    if content is None:
        return {}
    task = Task.model_validate(sheet.definition, by_alias=True, by_name=False)
    return require_public(task, load(content))
