"""A worker process: starts JAX, then does what it is told until the other end is gone.

python -m crowdml.simulation.workers.process FILE    # the number of an open socket
"""

from __future__ import annotations

import functools
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from crowdml.algorithms.conformity import in_words
from crowdml.core import BadInput, trees
from crowdml.simulation.engine.data_tables import DataTables
from crowdml.simulation.engine.lane import Lane
from crowdml.simulation.engine.run_records import Shape
from crowdml.simulation.engine.shared_rounds import SharedLane
from crowdml.simulation.shared_rows import map_rows
from crowdml.simulation.timeline.timeline import trial_timeline
from crowdml.simulation.workers import frames, timelines
from crowdml.task import Task
from crowdml.task.plugins import VARIABLE, load_plugins


class Worker:
    """What a worker holds between two frames: a crowd to make timelines for; rows, and the lane that it runs."""

    def __init__(self) -> None:
        self.crowd: tuple[Task, timelines.TrainingRows] | None = None
        self.tables: DataTables | None = None
        self.lane: Lane | None = None

    def answer(self, frame: frames.Frame) -> tuple[dict[str, Any], Any]:
        """Do what a frame asks for; return what to send back."""
        words = frame.words
        if words["do"] == "rows":
            arrays = map_rows(frame.files, words["layout"])
            for file in frame.files:
                os.close(file)
            return self.take_rows(words["tables"], arrays)
        if words["do"] == "crowd":
            self.crowd = _read_task(words), timelines.TrainingRows(**frame.tree)
            return {}, ()
        if words["do"] == "timeline":
            assert self.crowd is not None  # noqa: S101  it comes first
            return timelines.pack(trial_timeline(*self.crowd, words["seed"], words["trial"]))
        if words["do"] == "open":
            assert self.tables is not None  # noqa: S101  rows come first
            task = _read_task(words)
            replicas, events = frame.tree
            with in_words(task.extensible):
                shape, peers = Shape(**words["shape"]), [socket.socket(fileno=file) for file in frame.files]
                self.lane = (
                    SharedLane(task, self.tables, replicas, events, shape, words["member"], peers)
                    if peers
                    else Lane(task, self.tables, replicas, events, shape)
                )
            return {"compile_seconds": self.lane.compile_seconds}, ()
        lane = self.lane
        assert lane is not None  # noqa: S101  it was opened
        if words["do"] == "resume":
            lane.resume(frame.tree)
            return {}, ()
        if words["do"] == "run":
            events, counts = frame.tree
            measured, stopped = lane.run(events, counts, words["phase"])
            return {"stopped": stopped}, measured
        if words["do"] == "leaves":
            return {}, lane.leaves()
        ended = lane.end()
        return {}, trees.leaves(ended)

    def take_rows(self, described: Any, arrays: Sequence[Any]) -> tuple[dict[str, Any], Any]:
        """Work with other rows from now on."""
        self.crowd, self.lane, self.tables = None, None, frames.unpack(described, arrays)
        return {}, ()


def _read_task(words: dict[str, Any]) -> Task:
    """Read a task of plain values, once everything that it may name is known here."""
    os.environ[VARIABLE] = ",".join(words["plugins"])
    sys.path += [folder for folder in words["folders"] if folder not in sys.path]
    load_plugins()
    return Task.model_validate(words["task"])


def main(number: int) -> None:
    """Answer frames until the process that asks is gone."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    worker = Worker()
    with socket.socket(fileno=number) as end:
        while True:
            try:
                frame = frames.receive(end)
            except (EOFError, ConnectionError):
                return
            try:
                frames.send(end, *respond(functools.partial(worker.answer, frame)))
            except ConnectionError:
                return


def respond(answer: Callable[[], tuple[dict[str, Any], Any]]) -> tuple[dict[str, Any], Any]:
    """Return what to send back: an answer, or what went wrong; and the processor time of this process."""
    try:
        words, tree = answer()
    except BadInput as error:
        words, tree = {"refused": [error.what, error.where, error.hint]}, ()
    except Exception as error:  # whatever it is, the other end must hear of it
        words, tree = {"failed": str(error) or type(error).__name__, "trace": traceback.format_exc()}, ()
    return {**words, "cpu_seconds": time.process_time()}, tree


def _end_with(parent: int) -> None:
    """End when the parent has: a chunk may take long, and nobody would read what comes of it."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
