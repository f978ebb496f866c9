"""The far end: a process of the cluster, one per processor. It answers frames as worker processes of one machine do."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from crowdml.simulation.workers.crew import described_machine


class FarWorker:
    """A worker in a process of the cluster. Nothing of JAX is imported before its variables are set.

    Args:
        variables: What JAX is to be started with.
    """

    def __init__(self, variables: dict[str, str]) -> None:
        os.environ |= variables
        from crowdml.simulation.workers import frames, process

        self.frames, self.process = frames, process
        self.worker = process.Worker()

    def hello(self) -> bytes:
        """Say who this is."""
        words = described_machine() | {"process": os.getpid()}
        return self.frames.to_bytes({**words, "cpu_seconds": 0.0})

    def answer(self, content: bytes) -> bytes:
        """Answer a frame."""
        return self.frames.to_bytes(*self.process.respond(lambda: self.worker.answer(self.frames.from_bytes(content))))

    def rows(self, content: bytes, *files: Any) -> bytes:
        """Take rows that lie in the object store of this node."""

        def take() -> tuple[dict[str, Any], Any]:
            words = self.frames.from_bytes(content).words
            return self.worker.take_rows(words["tables"], [_view(files, *place) for place in words["layout"]])

        return self.frames.to_bytes(*self.process.respond(take))


def _view(files: tuple[Any, ...], file: int, begin: int, kind: str, shape: list[int]) -> Any:
    """Return an array as it lies in the object store."""
    length = np.dtype(kind).itemsize * math.prod(shape)
    if begin < 0 or begin + length > len(files[file]):
        raise ValueError(f"an array of {shape} at {begin} is outside")
    return files[file][begin : begin + length].view(kind).reshape(shape)
