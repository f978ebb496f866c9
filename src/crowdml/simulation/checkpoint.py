"""Checkpoints: a long simulation survives an interruption and goes on where it was, bit for bit.

A run that was killed leaves its checkpoint behind. Later runs take away what nobody has resumed for a while, but never
what a living run uses: that holds a lock beside its checkpoint.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors.numpy

from crowdml.core import BadInput, record
from crowdml.core.files import cache_home, write_whole
from crowdml.task import Task
from crowdml.version import __version__

KEPT_DAYS = 30
"""A checkpoint that was not touched for so long is taken away by the next run."""
LOCK = ".lock"


@record
class Progress:
    """How far a run has come.

    Attributes:
        chunk: Chunks done.
        leaves: The carry's arrays, in tree order.
        measured: Measurements so far, each of shape (points, replicas).
    """

    chunk: int
    leaves: tuple[np.ndarray[Any, Any], ...]
    measured: dict[str, np.ndarray[Any, Any]]


def run_path(tasks: Sequence[Task], trials: int, seed: int) -> Path:
    """Return where the checkpoint of this run lives: the name is a hash of everything that decides the result."""
    identity = {
        "crowdml": __version__,
        "tasks": [task.model_dump(mode="json") for task in tasks],
        "trials": trials,
        "seed": seed,
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:24]
    return cache_home() / "runs" / f"{digest}.safetensors"


def save(path: Path, progress: Progress) -> None:
    """Write a checkpoint, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"carry/{index:04d}": np.ascontiguousarray(leaf) for index, leaf in enumerate(progress.leaves)}
    arrays |= {f"measured/{name}": np.ascontiguousarray(values) for name, values in progress.measured.items()}
    write_whole(path, safetensors.numpy.save(arrays, metadata={"chunk": str(progress.chunk)}))


@contextmanager
def in_use(path: Path) -> Iterator[bool]:
    """Keep a run's checkpoint from being taken away while the run lives, and take away old ones of others.

    Yields:
        Whether there can be a checkpoint: not where this user may not write.
    """
    lock = path.with_suffix(LOCK)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = open(lock, "wb")
        fcntl.flock(handle, fcntl.LOCK_SH)
    except OSError:
        yield False
        return
    with handle:
        clean(path.parent)
        yield True
        # Unless another run of the same task goes on, or there is something to resume.
        if not path.exists() and _can_lock(handle):
            lock.unlink(missing_ok=True)


def clean(folder: Path, now: float | None = None) -> None:
    """Remove what was left behind by runs that ended long ago.

    Args:
        folder: Where checkpoints are.
        now: Seconds since 1970; not given: the clock's.
    """
    oldest = (time.time() if now is None else now) - KEPT_DAYS * 86400
    for path in folder.iterdir():
        # Somebody else may clean, too: what is gone is gone.
        with suppress(OSError):
            if path.is_file() and path.stat().st_mtime < oldest and not _is_used(path):
                path.unlink()


def _is_used(path: Path) -> bool:
    """Tell whether a living run holds the lock of a checkpoint."""
    lock = path.with_suffix(LOCK)
    if not lock.exists():
        return False
    with open(lock, "rb") as handle:
        return not _can_lock(handle)


def _can_lock(handle: IO[bytes]) -> bool:
    """Tell whether nobody else holds a lock."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


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
