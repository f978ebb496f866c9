"""A crew: the workers of a run, wherever they are.

Here are the processes of this machine; `crowdml.simulation.cluster` has those of a Ray cluster. What they are asked for
and answer is the same (`frames`).
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from crowdml.core import BadInput, record
from crowdml.core.ops import Tree
from crowdml.simulation.engine.run_records import Carry, Events, Replicas, Shape
from crowdml.simulation.shared_rows import SharedRows
from crowdml.simulation.workers import frames, pool
from crowdml.task import Task
from crowdml.task.plugins import registered_here

COMPARED = ("jax", "jaxlib", "numpy")
"""Packages whose versions decide which bits come out."""


class WorkerLost(BadInput):
    """A worker is gone, and what it was doing can be done again elsewhere."""


class Worker(Protocol):
    """A process that answers frames."""

    leased: bool
    answered: bool

    def ask(self, words: dict[str, Any], tree: Tree = (), files: Sequence[int] = ()) -> frames.Frame:
        """Send a frame and return the answer."""

    def abandon(self) -> None:
        """End the process while somebody may still be waiting for its answer."""


class RemoteLane(Protocol):
    """A lane in a worker."""

    compile_seconds: float

    def run(self, events: Events, counts: Any, phase: int) -> tuple[dict[str, Any], bool]:
        """Run a chunk; return the measurements after it, and whether every replica has met `error-below`."""

    def leaves(self) -> list[Any]:
        """Return everything that is carried, for a checkpoint."""

    def resume(self, leaves: Sequence[Any]) -> None:
        """Go on from what `leaves` gave."""

    def end(self) -> Carry:
        """Return the last state."""

    def close(self, *, interrupted: bool) -> None:
        """Let the worker work for others."""


@record
class Opening:
    """What a lane begins with.

    Attributes:
        task: The task as plain values.
        replicas: Hyper-parameters and seeds.
        events: One chunk, for its shape.
        shape: What else a program is compiled for.
        template: The structure of the last state, for NumPy.
        member: Which of several processes that share the rounds of one replica.
        peers: Open sockets to the others; none where replicas are not shared.
    """

    task: dict[str, Any]
    replicas: Replicas
    events: Events
    shape: Shape
    template: Carry
    member: int = 0
    peers: Sequence[int] = ()


class Crew(Protocol):
    """Workers that a run may have.

    Attributes:
        shares_rounds: Whether workers can talk to each other, and so share the rounds of one trial.
        notes: What to know of results that they give.
    """

    shares_rounds: bool
    notes: tuple[str, ...]

    def most(self, task: Task, cores: int) -> int:
        """Return how many workers a task may have; 0: it runs in this process, which has so many cores."""

    def lease(self, count: int) -> Sequence[Worker]:
        """Return so many workers that nobody else uses."""

    def lay(self, described: Any, shared: SharedRows) -> Any:
        """Lay the rows of a run where all workers find them; return what `open_lane` is to be given."""

    def open_lane(self, worker: Any, rows: Any, opening: Opening) -> RemoteLane:
        """Hand the rows over, compile, and begin."""


class LocalCrew:
    """Processes of this machine, one per core."""

    shares_rounds = True
    notes: tuple[str, ...] = ()

    def most(self, task: Task, cores: int) -> int:
        """Return how many workers a task may have; none where other processes would not know what it names."""
        return 0 if registered_here() or not task.portable else min(cores, pool.allowed())

    def lease(self, count: int) -> Sequence[pool.Worker]:
        """Return so many workers that nobody else uses."""
        return pool.lease(count)

    def lay(self, described: Any, shared: SharedRows) -> tuple[dict[str, Any], list[int]]:
        """Return the frame that names the files in memory, and the files."""
        words = {"do": "rows", "tables": described, "layout": shared.layout}
        return words, [file.fileno() for file in shared.files]

    def open_lane(self, worker: pool.Worker, rows: tuple[dict[str, Any], list[int]], opening: Opening) -> RemoteLane:
        """Hand the rows over, compile, and begin."""
        words, files = rows
        worker.ask(words, files=files)
        lane = pool.RemoteLane(worker, opening.template)
        lane.open(opening.task, opening.replicas, opening.events, opening.shape, opening.member, opening.peers)
        return lane


HERE = LocalCrew()


def described_machine() -> dict[str, Any]:
    """Say what decides which bits come out of this process: versions, and the kind of processor."""
    from crowdml.version import __version__

    def found(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "missing"

    versions = {"crowdml": __version__, "python": ".".join(platform.python_version_tuple()[:2])}
    return {
        "versions": versions | {package: found(package) for package in COMPARED},
        "processor": f"{platform.machine()} {_model_name()}",
    }


def _model_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor()
