"""The pool: worker processes of this process, and lanes that run in them."""

from __future__ import annotations

import atexit
import os
import resource
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

from crowdml.core import BadInput, trees
from crowdml.core.ops import Tree
from crowdml.simulation.engine import CORES, on_accelerator
from crowdml.simulation.engine.run_records import Carry, Events, Replicas, Shape
from crowdml.simulation.workers import frames, start
from crowdml.task.plugins import loaded_plugins


def allowed() -> int:
    """Return how many workers there may be: one per core, unless `CROWDML_WORKERS` says otherwise.

    An accelerator is not shared: one process has it.
    """
    given = os.environ.get(start.VARIABLE, "").strip()
    if not start.possible():
        return 0
    if not given:
        return 1 if on_accelerator() else CORES
    try:
        count = int(given)
    except ValueError:
        count = -1
    if count < 0:
        raise BadInput(
            f"{start.VARIABLE}={given} is no number of processes", hint="0 or more; leave it out: one per core"
        )
    return count


class Worker:
    """A process, and our end of the socket to it."""

    def __init__(self) -> None:
        """Take a process that was started early, or start one."""
        self.process, self.end = start.take()
        self.broken = False
        self.leased = False
        self.answered = False
        self.cpu_seconds = 0.0
        self._asking = threading.Lock()

    def ask(self, words: dict[str, Any], tree: Tree = (), files: Sequence[int] = ()) -> frames.Frame:
        """Send a frame and return the answer, once all that was asked before is answered.

        Raises:
            BadInput: The worker refuses, or was ended by somebody.
        """
        try:
            with self._asking:
                frames.send(self.end, words, tree, files)
                answer = frames.receive(self.end)
        except (EOFError, ConnectionError):
            self.broken = True
            one = f"{start.VARIABLE}=0 runs everything in one process"
            hint = f"perhaps there was too little memory: fewer trials or devices need less; or {one}"
            if not self.answered:
                hint = f"it could not be started, and says above why; {one}"
            what = f"a worker process has ended by itself ({_how_it_ended(self.process)})"
            raise BadInput(what, hint=hint) from None
        except BaseException:  # interrupted between question and answer: nobody knows what would come next
            self.broken = True
            raise
        self.answered = True
        self.cpu_seconds = answer.words["cpu_seconds"]
        return read_answer(answer)

    def abandon(self) -> None:
        """End the process while somebody may still be waiting for its answer: they hear that it has ended."""
        self.broken = True
        self.process.kill()

    def close(self) -> None:
        """End the process."""
        self.end.close()
        self.process.kill()
        self.process.wait()


def read_answer(answer: frames.Frame) -> frames.Frame:
    """Return an answer, or raise what a worker says went wrong."""
    if "refused" in answer.words:
        what, where, hint = answer.words["refused"]
        raise BadInput(what, where=where, hint=hint)
    if "failed" in answer.words:
        error = RuntimeError(answer.words["failed"])
        error.add_note(f"in a worker process:\n{answer.words['trace']}")
        raise error
    return answer


def _how_it_ended(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(5)
    except subprocess.TimeoutExpired:
        return "it does not answer"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def readable(task: dict[str, Any]) -> dict[str, Any]:
    """Return what a worker needs to read a task of plain values: plug-ins as they are now, as it may be older."""
    return {"task": task, "plugins": loaded_plugins(), "folders": start.module_folders()}


class RemoteLane:
    """A lane in a worker process.

    Args:
        worker: The process.
        template: The structure of the last state, for NumPy.
    """

    def __init__(self, worker: Worker, template: Carry) -> None:
        self.worker, self.template = worker, template
        self.compile_seconds = 0.0

    def open(
        self,
        task: dict[str, Any],
        replicas: Replicas,
        events: Events,
        shape: Shape,
        member: int = 0,
        peers: Sequence[int] = (),
    ) -> None:
        """Compile for a task, as plain values, and begin.

        Args:
            task: The task.
            replicas: Hyper-parameters and seeds.
            events: One chunk, for its shape.
            shape: What else a program is compiled for.
            member: Which of several processes that share the rounds of one replica.
            peers: Open sockets to the others; none where replicas are not shared.
        """
        words = {"do": "open", "shape": vars(shape), "member": member, **readable(task)}
        answer = self.worker.ask(words, (replicas, events), files=peers)
        self.compile_seconds = answer.words["compile_seconds"]

    def close(self, *, interrupted: bool) -> None:
        """Let the process work for others; one that was interrupted at its work is ended: nobody waits for it."""
        self.worker.leased = False
        if interrupted:
            self.worker.abandon()

    def resume(self, leaves: Sequence[Any]) -> None:
        """Go on from what `leaves` gave."""
        self.worker.ask({"do": "resume"}, tuple(leaves))

    def run(self, events: Events, counts: Any, phase: int) -> tuple[dict[str, Any], bool]:
        """Run a chunk; return the measurements after it, and whether every replica has met `error-below`."""
        answer = self.worker.ask({"do": "run", "phase": phase}, (events, counts))
        return answer.tree, answer.words["stopped"]

    def leaves(self) -> list[Any]:
        """Return everything that is carried, for a checkpoint."""
        return list(self.worker.ask({"do": "leaves"}).tree)

    def end(self) -> Carry:
        """Return the last state."""
        ended: Carry = trees.fill(self.template, iter(self.worker.ask({"do": "end"}).tree))
        return ended


_workers: list[Worker] = []
elsewhere: list[Any] = []
"""Workers that are not of this pool, whose `cpu_seconds` count nevertheless."""
_leasing = threading.Lock()

# A forked child has no workers: those are its parent's.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_workers.clear)


def lease(count: int) -> list[Worker]:
    """Return so many workers that nobody else uses, started now or before; those that broke are replaced."""
    with _leasing:
        for worker in [worker for worker in _workers if worker.broken or worker.process.poll() is not None]:
            _workers.remove(worker)
            worker.close()
        free = [worker for worker in _workers if not worker.leased]
        while len(free) < count:
            free.append(Worker())
            _workers.append(free[-1])
        for worker in free[:count]:
            worker.leased = True
        return free[:count]


def processes() -> list[int]:
    """Return the process numbers of all workers."""
    return [worker.process.pid for worker in _workers]


def cpu_seconds() -> float:
    """Return the processor time that workers had taken when they last answered; the system knows it of ended ones."""
    return float(sum(worker.cpu_seconds for worker in (*_workers, *elsewhere)))


def cpu_seconds_of_all() -> float:
    """Return the processor time of this process, of its workers, and of children that have ended."""
    used = (resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return cpu_seconds() + sum(usage.ru_utime + usage.ru_stime for usage in used)


@atexit.register
def close() -> None:
    """End all workers."""
    while _workers:
        _workers.pop().close()
