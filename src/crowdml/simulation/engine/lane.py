"""Lane: the replicas of one core, their program, and what they carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from crowdml.core import Array
from crowdml.simulation.engine.data_tables import DataTables
from crowdml.simulation.engine.program import Program, program_for
from crowdml.simulation.engine.run_records import Carry, Events, Replicas, Shape
from crowdml.task import Task


class Lane:
    """Runs chunk after chunk.

    Args:
        task: The task; its hyper-parameters are those of the replicas.
        tables: Rows and targets.
        replicas: Hyper-parameters and seeds.
        events: One chunk, for its shape.
        shape: What else a program is compiled for.
    """

    def __init__(self, task: Task, tables: DataTables, replicas: Replicas, events: Events, shape: Shape) -> None:
        self.program: Program = program_for(task, tables, replicas, events, shape)
        self.replicas: Replicas = jax.device_put(replicas)
        self.carry: Carry = self.program.start(self.replicas)
        self.compile_seconds = self.program.compile_seconds

    def resume(self, leaves: Sequence[Array]) -> None:
        """Go on from what `leaves` gave."""
        self.carry = jax.tree.unflatten(jax.tree.structure(self.carry), list(leaves))

    def run(self, events: Events, counts: Array, phase: int) -> tuple[dict[str, Any], bool]:
        """Run a chunk; return the measurements after it, and whether every replica has met `error-below`."""
        self.carry = self.program.chunk(self.replicas, self.carry, events, counts, phase)
        stopped = self.carry.stopped
        return self._measured(), not isinstance(stopped, tuple) and bool((np.asarray(stopped) >= 0).all())

    def _measured(self) -> dict[str, Any]:
        found = self.program.measure(self.replicas, self.carry)
        return {name: np.asarray(values, np.float64) for name, values in found.items()}

    def close(self, *, interrupted: bool) -> None:
        """Nothing is held that others need."""

    def leaves(self) -> list[Any]:
        """Return everything that is carried, for a checkpoint."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves(self.carry)]

    def end(self) -> Carry:
        """Return the last state; past versions are not needed any more."""
        ended = self.program.finish(self.carry)
        return Carry(server=ended.server, past=(), tables=ended.tables, pending=(), stopped=ended.stopped)
