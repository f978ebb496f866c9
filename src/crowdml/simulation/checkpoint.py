"""Checkpoints: a long simulation survives an interruption and goes on where it was, bit for bit."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

import crowdml
from crowdml.algorithms import Task
from crowdml.core import BadInput, record
from crowdml.core.validation import write_whole


@record
class Progress:
    """How far a run has come.

    Attributes:
        chunk: Chunks done.
        leaves: The carry's arrays, in tree order.
        measured: Measurements so far, each of shape (points, lanes).
    """

    chunk: int
    leaves: tuple[np.ndarray[Any, Any], ...]
    measured: dict[str, np.ndarray[Any, Any]]


def run_path(tasks: Sequence[Task], trials: int, seed: int) -> Path:
    """Return where the checkpoint of this run lives: the name is a hash of everything that decides the result."""
    identity = {
        "crowdml": crowdml.__version__,
        "tasks": [task.model_dump(mode="json") for task in tasks],
        "trials": trials,
        "seed": seed,
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:24]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "crowdml" / "runs" / f"{digest}.safetensors"


def save(path: Path, progress: Progress) -> None:
    """Write a checkpoint, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"carry/{index:04d}": np.ascontiguousarray(leaf) for index, leaf in enumerate(progress.leaves)}
    arrays |= {f"measured/{name}": np.ascontiguousarray(values) for name, values in progress.measured.items()}
    write_whole(path, safetensors.numpy.save(arrays, metadata={"chunk": str(progress.chunk)}))


def load(path: Path) -> Progress:
    """Read a checkpoint."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}
            chunk = int(file.metadata()["chunk"])
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
        raise BadInput(f"the checkpoint {path} cannot be read: {error}", hint="run again without --resume") from None
    return Progress(
        chunk=chunk,
        leaves=tuple(arrays[name] for name in sorted(arrays) if name.startswith("carry/")),
        measured={name.removeprefix("measured/"): arrays[name] for name in arrays if name.startswith("measured/")},
    )
