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
from pydantic import BaseModel

from crowdml.core import BadInput, record
from crowdml.core.files import cache_home, write_whole
from crowdml.simulation.engine.chunks import Chunks
from crowdml.simulation.engine.run_records import Carry
from crowdml.simulation.lanes import Lanes
from crowdml.simulation.result import Watcher, watched
from crowdml.simulation.workers import pool
from crowdml.task import Task
from crowdml.version import __version__, commit

SAVE_EVERY_S = 10.0

KEPT_DAYS = 30
"""A checkpoint that was not touched for so long is taken away by the next run."""
LOCK = ".lock"


@record
class Spent:
    """What a run has taken so far, over all its parts.

    Attributes:
        cpu_seconds: Processor time on all cores; None: some part did not note it.
        commits: Whose code did it, in order, each once; None among them: nobody knows whose.
    """

    cpu_seconds: float | None = 0.0
    commits: tuple[str | None, ...] = ()

    def plus(self, cpu_seconds: float) -> Spent:
        """Add what this code has taken."""
        total = None if self.cpu_seconds is None else self.cpu_seconds + cpu_seconds
        return Spent(cpu_seconds=total, commits=tuple(dict.fromkeys((*self.commits, commit()))))


UNKNOWN = Spent(cpu_seconds=None, commits=(None,))
"""What is known of a checkpoint whose run did not note it."""


@record
class Progress:
    """How far a run has come.

    Attributes:
        chunk: Chunks done.
        leaves: The carry's arrays, in tree order.
        measured: Measurements so far, each of shape (points, replicas).
        spent: What that took.
    """

    chunk: int
    leaves: tuple[np.ndarray[Any, Any], ...]
    measured: dict[str, np.ndarray[Any, Any]]
    spent: Spent = UNKNOWN


@record
class Wanted:
    """What is wanted of a run's checkpoint.

    Attributes:
        path: Where it is.
        resume: Go on from there.
        keep: Leave one of the end.
        cpu_begun: Processor time of everything when this run began.
        replicas: How many a checkpoint holds; how many of them are done twice depends on the cores of a machine.
    """

    path: Path
    resume: bool
    keep: bool
    cpu_begun: float
    replicas: int


def run_path(tasks: Sequence[Task], trials: int, seed: int, part: Sequence[int] = ()) -> Path:
    """Return where the checkpoint of this run lives: the name is a hash of everything that decides the result.

    Keys at their defaults are left out, so that a key which is added to the settings orphans no checkpoint.

    Args:
        tasks: The cells.
        trials: Repetitions of each.
        seed: Of the run.
        part: Numbers of the replicas that it holds; none: all.
    """
    identity: dict[str, Any] = {
        "crowdml": __version__,
        "tasks": [_without_defaults(task, task.model_dump(mode="json")) for task in tasks],
        "trials": trials,
        "seed": seed,
    }
    if part:
        identity["part"] = list(part)
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:24]
    return cache_home() / "runs" / f"{digest}.safetensors"


def _without_defaults(settings: Any, dumped: Any) -> Any:
    """Return dumped settings without keys at their defaults, but with the classes that the defaults are those of."""
    if isinstance(settings, BaseModel) and isinstance(dumped, dict):
        kind = type(settings)
        told = {"class": f"{kind.__module__}.{kind.__qualname__}"}
        return told | {f"key {name}": content for name, content in _chosen(settings, dumped)}
    if isinstance(settings, (list, tuple)):
        return [_without_defaults(each, content) for each, content in zip(settings, dumped, strict=True)]
    return dumped


def _chosen(settings: BaseModel, dumped: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Go through the keys that are not at their defaults."""
    fields = type(settings).model_fields
    for name, content in dumped.items():
        value = getattr(settings, name)
        if name not in fields or value != fields[name].get_default(call_default_factory=True):
            yield name, _without_defaults(value, content)


def save(path: Path, progress: Progress) -> None:
    """Write a checkpoint, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"carry/{index:04d}": np.ascontiguousarray(leaf) for index, leaf in enumerate(progress.leaves)}
    arrays |= {f"measured/{name}": np.ascontiguousarray(values) for name, values in progress.measured.items()}
    spent = {"cpu_seconds": progress.spent.cpu_seconds, "commits": progress.spent.commits}
    metadata = {"chunk": str(progress.chunk), "spent": json.dumps(spent)}
    write_whole(path, safetensors.numpy.save(arrays, metadata=metadata))


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


_DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, safetensors.SafetensorError)


def unreadable(path: Path, error: Exception) -> BadInput:
    """Say that a checkpoint is damaged."""
    return BadInput(f"the checkpoint {path} cannot be read: {error}", hint="run again without --resume")


def load(path: Path) -> Progress:
    """Read a checkpoint."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}
            metadata = file.metadata()
            chunk, spent = int(metadata["chunk"]), _read_spent(metadata.get("spent"))
    except _DAMAGED as error:
        raise unreadable(path, error) from None
    return Progress(
        chunk=chunk,
        leaves=tuple(arrays[name] for name in sorted(arrays) if name.startswith("carry/")),
        measured={name.removeprefix("measured/"): arrays[name] for name in arrays if name.startswith("measured/")},
        spent=spent,
    )


def _read_spent(text: str | None) -> Spent:
    if text is None:
        return UNKNOWN
    said = json.loads(text)
    return Spent(cpu_seconds=said["cpu_seconds"], commits=tuple(said["commits"]))


def spent_at(path: Path) -> Spent:
    """Return what the run of a checkpoint has taken so far: nothing, where there is no checkpoint."""
    if not path.exists():
        return Spent()
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            return _read_spent(file.metadata().get("spent"))
    except _DAMAGED as error:
        raise unreadable(path, error) from None


def run_chunks(
    lanes: Lanes, chunks: Chunks, wanted: Wanted, watch: Watcher | None
) -> tuple[Carry, dict[str, Any], tuple[str, ...]]:
    """Run all chunks, with a checkpoint where there can be one; return also what is to be said of that."""
    if not lanes.resumable:
        notes = ("a run in NumPy leaves nothing to resume: it began anew",) if wanted.resume else ()
        return *_go(lanes, chunks, wanted, None, watch), notes
    with resumable(wanted) as (path, said):
        found = _go(lanes, chunks, wanted, path, watch)
    return *found, said


@contextmanager
def resumable(wanted: Wanted) -> Iterator[tuple[Path | None, tuple[str, ...]]]:
    """Hold the place of a run's checkpoint while it runs; afterwards a checkpoint that nobody wants is gone.

    Yields:
        Where it is, None where nothing can be written; and what is to be said of that.
    """
    path = wanted.path
    with in_use(path) as kept:
        notes: tuple[str, ...] = (
            () if kept else (f"{path.parent} cannot be written: an interrupted run would have to begin anew",)
        )
        try:
            yield (path if kept else None), notes
        except KeyboardInterrupt as interrupt:
            if path.exists():
                interrupt.add_note("the same command with --resume goes on from the last checkpoint")
            raise
        if kept and not wanted.keep:
            path.unlink(missing_ok=True)


def _go(
    lanes: Lanes, chunks: Chunks, wanted: Wanted, path: Path | None, watch: Watcher | None
) -> tuple[Carry, dict[str, Any]]:
    """Run all chunks, measuring at the points of the curve and saving now and then, where there is a path."""
    real = wanted.replicas
    spare = len(chunks.timelines) - real
    measured: dict[str, list[Any]] = {}
    begin, saved, before = 0, time.monotonic(), Spent()
    if wanted.resume and path and path.exists():
        progress = load(path)
        lanes.resume([_again(leaf, spare, 0) for leaf in progress.leaves])
        begin, before = progress.chunk, progress.spent
        measured = {name: list(_again(values, spare, 1)) for name, values in progress.measured.items()}

    def keep_progress(path: Path, done: int) -> None:
        so_far = {name: np.stack(each)[:, :real] for name, each in measured.items()}
        leaves = tuple(leaf[:real] for leaf in lanes.leaves())
        spent = before.plus(pool.cpu_seconds_of_all() - wanted.cpu_begun) if begin < len(chunks) else before
        save(path, Progress(chunk=done, leaves=leaves, measured=so_far, spent=spent))

    coming = chunks.events(begin) if begin < len(chunks) else None
    for number in range(begin, len(chunks)):
        assert coming is not None  # noqa: S101  there is one more
        running = lanes.begin(*coming, chunks.phase(number))
        coming = chunks.events(number + 1) if number + 1 < len(chunks) else None  # while they run
        found, stopped = lanes.result(running)
        for name, errors in found.items():
            measured.setdefault(name, []).append(errors)
        if watch:
            watch((number + 1) / len(chunks), float(watched(measured)[-1].mean()))
        if path and time.monotonic() - saved > SAVE_EVERY_S:
            keep_progress(path, number + 1)
            saved = time.monotonic()
        if stopped:
            break
    if path and wanted.keep:
        keep_progress(path, len(chunks))
    return lanes.end(), {name: np.stack(values) for name, values in measured.items()}


def _again(values: Any, spare: int, axis: int) -> Any:
    """Repeat the last replica so many times."""
    return np.concatenate([values, np.repeat(np.take(values, [-1], axis), spare, axis)], axis) if spare else values
