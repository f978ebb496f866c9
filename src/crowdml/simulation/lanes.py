"""Lanes: a run's replicas, one block per core, in workers of a crew or in threads of this process.

Compiled products of a process share one thread of XLA's, whoever calls them. So cores are kept busy by processes: each
has its own. This process prepares the next chunk meanwhile. What was registered by code of this process, and not by
a file that `CROWDML_PLUGINS` names or by an installed package, is unknown to other processes: such tasks run here.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, runtime_checkable

import numpy as np

from crowdml.algorithms.conformity import in_words
from crowdml.core import NUMPY, BadInput, record, trees
from crowdml.data import Dataset
from crowdml.simulation.attacked import attack_of, attacked
from crowdml.simulation.engine import CORES
from crowdml.simulation.engine.chunks import Chunks
from crowdml.simulation.engine.data_tables import DataTables, make_tables
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.engine.machine import Blocks, cut, join
from crowdml.simulation.engine.plain_lane import PlainLane
from crowdml.simulation.engine.run_records import Carry, Events, Replicas, Shape
from crowdml.simulation.engines import work_of
from crowdml.simulation.shared_rows import SharedRows, lay_in_place, roomy
from crowdml.simulation.workers import frames
from crowdml.simulation.workers.crew import HERE, Crew, Opening, Worker
from crowdml.task import Task

SHARED_WORK = 2e9
"""Multiplications of a run below which one core is done before another process would be ready."""

MOST_MEMBERS = 16
"""Processes that share the rounds of one trial, at most: each has a socket to every other."""

NO_DECAY = np.zeros(1, np.float32)


class Lane(Protocol):
    """One core's replicas, wherever they run."""

    compile_seconds: float

    def run(self, events: Events, counts: Any, phase: int) -> tuple[dict[str, Any], bool]:
        """Run a chunk; return the measurements after it, and whether every replica has met `error-below`."""

    def end(self) -> Carry:
        """Return the last state."""

    def close(self, *, interrupted: bool) -> None:
        """Let go of what the lane holds; what was interrupted at its work is ended, as nobody waits for it."""


@runtime_checkable
class ResumableLane(Lane, Protocol):
    """A lane that a checkpoint can hold; one in NumPy is over too soon to need it."""

    def leaves(self) -> list[Any]:
        """Return everything that is carried, for a checkpoint."""

    def resume(self, leaves: Sequence[Any]) -> None:
        """Go on from what `leaves` gave."""


def in_processes(task: Task, crew: Crew = HERE) -> int:
    """Return how many worker processes a run may have; 0: it runs in this one."""
    return crew.most(task, CORES)


def count_lanes(task: Task, rows: int, replicas: int, engine: str, crew: Crew = HERE) -> int:
    """Return how many lanes a run has: one per core, and a single one where the work is too little to be shared."""
    if engine == "numpy" or replicas * work_of(task, rows) < SHARED_WORK:
        return 1
    most = min(replicas, in_processes(task, crew) or CORES)
    return -(-replicas // width(replicas, most))


def count_members(task: Task, rows: int, chunks: Chunks, engine: str, crew: Crew = HERE) -> int:
    """Return how many processes share the rounds of a single replica; 1: there is nothing to share.

    Devices of a round can work side by side if all start from the version there is and none remembers anything.
    """
    forgetful = not trees.leaves(_template(task).tables) and not task.stop.error_below
    if engine == "numpy" or len(chunks.timelines) > 1 or chunks.ring or chunks.per_commit < 2 or not forgetful:
        return 1
    if work_of(task, rows) < SHARED_WORK or not crew.shares_rounds:
        return 1
    return max(1, min(in_processes(task, crew), chunks.per_commit, MOST_MEMBERS))


def width(replicas: int, lanes: int) -> int:
    """Return how many replicas a lane has: all the same number, rounded up, so a few may be done twice."""
    return roomy(-(-replicas // lanes), bits=3) if lanes > 1 else replicas


@record
class Lanes:
    """All lanes of a run.

    Attributes:
        lanes: One per core that is used.
        processes: Worker processes; 0 where this process does the work.
        threads: Wait for a lane each.
        shared: Whether all lanes work for one replica; the first speaks for all.
    """

    lanes: tuple[Lane, ...]
    processes: int
    threads: ThreadPoolExecutor
    shared: bool = False

    def __enter__(self) -> Lanes:
        """Nothing is to be done at the beginning."""
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Let lanes and threads go."""
        for lane in self.lanes:
            lane.close(interrupted=error is not None)
        self.threads.shutdown(wait=False)

    @property
    def resumable(self) -> tuple[ResumableLane, ...]:
        """Those that speak for all replicas, where a run can leave checkpoints; otherwise none."""
        speaking = self.lanes[: 1 if self.shared else None]
        return tuple(lane for lane in speaking if isinstance(lane, ResumableLane))

    @property
    def compile_seconds(self) -> float:
        """What compiling cost, until the last lane was ready."""
        return max(lane.compile_seconds for lane in self.lanes)

    def begin(self, events: Events, counts: Any, phase: int) -> list[Future[tuple[dict[str, Any], bool]]]:
        """Have every lane run its part of a chunk."""
        parts = zip(self.lanes, self.cut(events), self.cut(counts), strict=True)
        return [self.threads.submit(lane.run, some, count, phase) for lane, some, count in parts]

    def result(self, running: Sequence[Future[tuple[dict[str, Any], bool]]]) -> tuple[dict[str, Any], bool]:
        """Wait for a chunk; return the measurements of all replicas, and whether all have met `error-below`."""
        failed = [error for error in [lane.exception() for lane in running] if error is not None]
        # Of lanes that wait for each other, the one whose process has ended says what happened.
        for error in sorted(failed, key=lambda error: not isinstance(error, BadInput)):
            raise error
        found = [lane.result() for lane in running][: 1 if self.shared else None]
        measured = {name: np.concatenate([errors[name] for errors, _ in found]) for name in found[0][0]}
        return measured, all(stopped for _, stopped in found)

    def leaves(self) -> list[Any]:
        """Return everything that is carried; the first axis is the replica."""
        each = list(self.threads.map(lambda lane: lane.leaves(), self.resumable))
        return [np.concatenate(parts) for parts in zip(*each, strict=True)]

    def resume(self, leaves: Sequence[Any]) -> None:
        """Go on from what `leaves` gave."""
        for lane, part in zip(self.lanes, self.cut(tuple(leaves)), strict=True):
            if isinstance(lane, ResumableLane):
                lane.resume(part)

    def end(self) -> Carry:
        """Return the last state of all replicas."""
        speaking = self.lanes[: 1 if self.shared else None]
        ended: Carry = join(tuple(self.threads.map(lambda lane: lane.end(), speaking)))
        return ended

    def cut(self, tree: Any) -> Blocks:
        """Cut what has replicas as its first axis into the parts of lanes."""
        return (tree,) * len(self.lanes) if self.shared else cut(tree, len(self.lanes))


def open_lanes(
    task: Task, dataset: Dataset, replicas: Replicas, chunks: Chunks, count: int, engine: str, crew: Crew = HERE
) -> Lanes:
    """Lay out rows, compile where that is the engine, and begin.

    Args:
        task: The task.
        dataset: Rows after transforms.
        replicas: Hyper-parameters and seeds, as many for every lane.
        chunks: How the run is cut.
        count: How many lanes there are.
        engine: "compiled" or "numpy".
        crew: Whose workers run them.
    """
    processes = in_processes(task, crew) if engine == "compiled" else 0
    members = count_members(task, len(dataset.train_targets), chunks, engine, crew)
    threads = ThreadPoolExecutor(max(count, members), thread_name_prefix="lane")
    part = -(-chunks.per_commit // members) if members > 1 else 0
    shape = Shape(ring=chunks.ring, even=chunks.even, per_commit=chunks.per_commit, part=part)
    events, _ = chunks.events(0)
    parts = list(zip(cut(replicas, count), cut(events, count), strict=True)) * members
    if engine == "numpy":
        tables = make_tables(task, dataset, NO_DECAY, sparse=False, lay=lay_in_place)
        plain = PlainLane(task, tables, replicas, shape)
        return Lanes(lanes=(plain,), processes=0, threads=threads)
    if not processes:
        from crowdml.simulation.engine.lane import Lane as LocalLane

        tables = _tables(task, dataset, replicas)
        with in_words(task.extensible):
            lanes: list[Lane] = [LocalLane(task, tables, *part, shape) for part in parts]
        return Lanes(lanes=tuple(lanes), processes=0, threads=threads)
    values, template = plain_task(task), _template(task)
    shared = SharedRows()
    peers: list[list[socket.socket]] = []

    def open_one(worker: Worker, part: tuple[Replicas, Events], number: int) -> Lane:
        ends = [end.fileno() for end in peers[number]] if members > 1 else ()
        some, first = part
        opening = Opening(
            task=values, replicas=some, events=first, shape=shape, template=template, member=number, peers=ends
        )
        return crew.open_lane(worker, rows, opening)

    started = crew.lease(len(parts))
    try:
        peers += _sockets(members)
        tables = _tables(task, dataset, replicas, shared)
        rows = crew.lay(_described(tables), shared)
        opened = tuple(threads.map(open_one, started, parts, range(len(parts))))
    except BaseException:  # one refuses, or we are interrupted while they compile
        for worker in started:
            worker.abandon()
        threads.shutdown(wait=False)
        raise
    finally:
        shared.close()
        for end in itertools.chain(*peers):
            end.close()  # the workers have their own
    return Lanes(lanes=opened, processes=len(opened), threads=threads, shared=members > 1)


def _sockets(members: int) -> list[list[socket.socket]]:
    """Connect everybody with everybody; return each member's sockets to the others, in their order."""
    ends: list[list[socket.socket]] = [[] for _ in range(members)]
    for one, other in itertools.combinations(range(members), 2):
        for member, end in zip((one, other), socket.socketpair(), strict=True):
            ends[member].append(end)
    return ends


def _tables(task: Task, dataset: Dataset, replicas: Replicas, shared: SharedRows | None = None) -> DataTables:
    strength, splits = np.asarray(replicas.hyper["regularisation"]), bool(replicas.measured)
    return make_tables(task, dataset, strength, own_rows=splits, lay=shared.lay if shared else lay_in_place)


def _described(tables: DataTables) -> Any:
    """Describe tables by the order in which their arrays were made."""
    arrays: list[Any] = []
    return frames.pack(tables, arrays)


def plain_task(task: Task) -> dict[str, Any]:
    """Return a task as plain values; a worker is handed its rows, so it need not know the dataset's name."""
    values = task.model_dump(mode="json", by_alias=True, exclude_none=True)
    values["data"].pop("dataset", None)
    if not values["data"].get("labels"):
        values["data"].pop("labels", None)  # a number is learnt
    return values


def _template(task: Task) -> Carry:
    """Return the structure of the last state, as NumPy has it."""
    phase = attacked(task.built, attack_of(task, NUMPY), NUMPY).last
    return Carry(
        server=phase.server.init(HashCoins(trial_seed(0, 0), 0, NUMPY)),
        past=(),
        tables=(phase.server.row(), phase.begin()),
        pending=(),
        stopped=np.zeros(1) if task.stop.error_below else (),
    )
