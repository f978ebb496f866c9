"""The near end: workers of a cluster, leased to runs; rows in the object store, once per node."""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from crowdml.core import BadInput
from crowdml.core.ops import Tree
from crowdml.simulation.cluster.address import WHERE
from crowdml.simulation.cluster.ray_process import FarWorker
from crowdml.simulation.cluster.replayed_lane import ReplayedLane
from crowdml.simulation.engine import jax_variables
from crowdml.simulation.shared_rows import SharedRows
from crowdml.simulation.workers import frames, pool
from crowdml.simulation.workers.crew import Opening, RemoteLane, WorkerLost, described_machine
from crowdml.task import Task
from crowdml.task.plugins import registered_here

STORE_SHARE = 0.8
"""How much of a node's object store rows may take: frames pass through it too."""

FREE_WITHIN_S = 20.0
"""How long a lost worker's successor waits for a processor of its own before it shares one."""

MOST_LOST_AT_ONCE = 3
"""Successors beyond one for each worker that may be lost before they have said a word: a machine that goes takes its
workers with it, and some that Ray still starts there."""

GIVEN_BACK_WITHIN_S = 5.0
"""How long a crew that is let go waits until Ray knows that its processors are free: whoever hires next wants them."""


class RayWorker:
    """A process of the cluster.

    Args:
        ray: Ray's module.
        processors: How many it takes; 0: it shares one.
    """

    def __init__(self, ray: Any, processors: int = 1) -> None:
        self.ray = ray
        self.actor = ray.remote(FarWorker).options(num_cpus=processors, max_restarts=0).remote(jax_variables())
        self.greeting = self.actor.hello.remote()
        self.leased = self.answered = self.broken = False
        self.cpu_seconds = 0.0
        self.process = 0
        self._asking = threading.Lock()
        pool.elsewhere.append(self)

    def greet(self) -> dict[str, Any]:
        """Return what it says of itself, once it is there."""
        said = self._read(self.greeting).words
        self.process = said["process"]
        return said

    def ask(self, words: dict[str, Any], tree: Tree = (), files: Sequence[int] = ()) -> frames.Frame:
        """Send a frame and return the answer, once all that was asked before is answered.

        Raises:
            WorkerLost: It is gone.
        """
        return self._ask(lambda: self.actor.answer.remote(frames.to_bytes(words, tree)))

    def give_rows(self, words: dict[str, Any], files: Sequence[Any]) -> None:
        """Hand over rows by what stands for them in the object store."""
        self._ask(lambda: self.actor.rows.remote(frames.to_bytes(words), *files))

    def _ask(self, send: Any) -> frames.Frame:
        with self._asking:
            answer = self._read(send())
        self.answered, self.cpu_seconds = True, answer.words["cpu_seconds"]
        return pool.read_answer(answer)

    def _read(self, coming: Any) -> frames.Frame:
        try:
            return frames.from_bytes(self.ray.get(coming))
        except (self.ray.exceptions.RayActorError, self.ray.exceptions.ObjectLostError) as error:
            self.broken = True
            why = " ".join(str(error).split())[:200]
            what = f"a worker process of the cluster is gone: {why}"
            raise WorkerLost(what, hint="perhaps there was too little memory: fewer trials or devices") from None
        except self.ray.exceptions.RayTaskError as error:
            self.broken = True
            why = " ".join(str(error.cause if error.cause is not None else error).split())[-300:]
            hint = "crowdml[simulation,ray] of the same version must be installed on all machines"
            raise BadInput(f"a worker process of the cluster cannot work: {why}", where=WHERE, hint=hint) from None
        except BaseException:  # interrupted: nobody knows what would come next
            self.broken = True
            raise

    def abandon(self) -> None:
        """End the process, whoever waits for it."""
        self.broken = True
        self.ray.kill(self.actor, no_restart=True)


class RayCrew:
    """Workers of a cluster: one for every processor that is free when the first is asked for.

    Args:
        ray: Ray's module, joined to a cluster.
    """

    shares_rounds = False

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self.notes: tuple[str, ...] = ()
        self._processors = set[str]()
        self._count = self._free()
        if self._count < 1:
            raise BadInput("no processor of the cluster is free", where=WHERE, hint="wait for others, or add a machine")
        self.workers = [RayWorker(ray) for _ in range(self._count)]
        self._leasing = threading.Lock()
        try:
            self._compare([worker.greet() for worker in self.workers])
        except BaseException:
            self.close()
            raise

    def _compare(self, said: Sequence[dict[str, Any]]) -> None:
        """Refuse workers of other versions; note other processors."""
        ours = described_machine()
        for versions in (each["versions"] for each in said):
            for name, version in ours["versions"].items():
                if versions[name] != version:
                    what = f"a worker process of the cluster has {name} {versions[name]}, and this process {version}"
                    raise BadInput(what, where=WHERE, hint="install the same versions on all machines")
        self._processors |= {each["processor"] for each in said} - {ours["processor"]}
        if self._processors:
            names = ", ".join(sorted(self._processors))
            self.notes = (f"workers had other processors than this machine ({names}): bits may differ, figures do not",)

    def most(self, task: Task, cores: int) -> int:
        """Return how many workers a task may have; refuse one that other processes cannot run."""
        if registered_here() or not task.portable:
            what = "this task names what only this process knows, so no other machine can run it"
            hint = "register it in a file that CROWDML_PLUGINS names, or leave this out"
            raise BadInput(what, where=WHERE, hint=hint)
        return len(self.workers)

    def lease(self, count: int) -> list[RayWorker]:
        """Return so many workers that nobody else uses; those that broke are replaced."""
        with self._leasing:
            for at, worker in enumerate(self.workers):
                if worker.broken:
                    self.workers[at] = self._successor()
            free = [worker for worker in self.workers if not worker.leased][:count]
            while len(free) < count:
                self.workers.append(self._successor())
                free.append(self.workers[-1])
            for worker in free:
                worker.leased = True
            return free

    def _successor(self) -> RayWorker:
        """Start another worker like the first ones; one that is lost before it has said a word has a successor too."""
        for _ in range(self._count + MOST_LOST_AT_ONCE):
            worker = self._start()
            try:
                self._compare([worker.greet()])
            except WorkerLost as error:
                lost = error
            except BaseException:
                worker.abandon()
                raise
            else:
                return worker
        raise lost

    def _start(self) -> RayWorker:
        """Start a worker: with a processor of its own if one gets free, otherwise beside others."""
        worker = RayWorker(self.ray)
        ready, _ = self.ray.wait([worker.greeting], timeout=FREE_WITHIN_S)
        if not ready:
            worker.abandon()
            worker = RayWorker(self.ray, processors=0)
        return worker

    def lay(self, described: Any, shared: SharedRows) -> tuple[dict[str, Any], list[Any]]:
        """Put rows into the object store, from which every node takes them once."""
        files = [_content(file.fileno()) for file in shared.files]
        self._require_store(sum(len(content) for content in files))
        words = {"tables": described, "layout": [list(place) for place in shared.layout]}
        return words, [self.ray.put(content) for content in files]

    def _require_store(self, needed: int) -> None:
        """Refuse rows that no node's object store can hold beside what passes through it."""
        sizes = [node["Resources"].get("object_store_memory", 0) for node in self.ray.nodes() if node["Alive"]]
        smallest = min(sizes, default=0)
        if needed > STORE_SHARE * smallest:
            raise BadInput(
                f"the rows take {needed >> 20} MiB, and the object store of a machine has {int(smallest) >> 20} MiB",
                where=WHERE,
                hint="start Ray with a larger --object-store-memory, or run with fewer rows (crowd.rows)",
            )

    def open_lane(self, worker: RayWorker, rows: tuple[dict[str, Any], list[Any]], opening: Opening) -> RemoteLane:
        """Hand the rows over, compile, and begin."""
        return ReplayedLane(self, worker, rows, opening)

    def close(self) -> None:
        """End all workers; return when the processors they had are free again."""
        for worker in self.workers:
            self.ray.kill(worker.actor, no_restart=True)
        pool.elsewhere.clear()
        late = time.monotonic() + GIVEN_BACK_WITHIN_S
        while self._free() < self._count and time.monotonic() < late:
            time.sleep(0.05)

    def _free(self) -> int:
        return int(self.ray.available_resources().get("CPU", 0))


def _content(file: int) -> Any:
    """Return the bytes of a memory file without copying them."""
    if not (size := os.fstat(file).st_size):
        return np.zeros(0, np.uint8)
    return np.frombuffer(mmap.mmap(file, size, mmap.MAP_SHARED, mmap.PROT_READ), np.uint8)
