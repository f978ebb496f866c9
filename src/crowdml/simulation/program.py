"""Program: a task's loop, compiled ahead of time for all cores.

Lanes are spread over the cores. On a core they run together when all have the same number of check-ins
and their past versions fit into the cache; otherwise one after the other, each to its own end.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from crowdml.algorithms import Task
from crowdml.algorithms.contract import Hyper
from crowdml.algorithms.counting import estimated_error
from crowdml.core import Array, record
from crowdml.core.ops import Tree
from crowdml.data import Dataset
from crowdml.simulation.columns import split_rows
from crowdml.simulation.cores import Blocks, count_blocks, cut, join, on_all
from crowdml.simulation.jax_ops import JAX
from crowdml.simulation.lane import Carry, Events, Lanes, Loop, finish
from crowdml.simulation.prepare import measured_on

CACHE_BYTES = 8 << 20
"""Past versions of the lanes of one core beyond this are better run lane by lane, if batches are small."""

SMALL_BATCH = 2
"""Up to this batch size a loop is fastest as one kernel; beyond, XLA's library calls win."""

MEASURED_DEVICES = 100
"""Where each device has a model of its own, the test error is the mean over this many of them, evenly spaced."""


@record
class Program:
    """Functions over all lanes, compiled for the lanes of one core and run on all cores at once.

    A carry is one block per core (see `cores`) until `finish` puts it together.

    Attributes:
        blocks: Number of cores used.
        of_block: The compiled functions: start, chunk, measure and finish, and opening where an algorithm begins with
            another message.
        compile_seconds: What compiling cost.
    """

    blocks: int
    of_block: dict[str, Any]
    compile_seconds: float

    def start(self, lanes: Lanes) -> Blocks:
        """Begin all lanes."""
        return on_all(self.of_block["start"], cut(lanes, self.blocks))

    def chunk(self, lanes: Lanes, carry: Blocks, events: Events, counts: Array, first: bool = False) -> Blocks:
        """Run a chunk, or the first round. The carry that was given is used up."""
        given = (cut(tree, self.blocks) for tree in (events, counts))
        name = "opening" if first and "opening" in self.of_block else "chunk"
        return on_all(self.of_block[name], cut(lanes, self.blocks), carry, *given)

    def measure(self, lanes: Lanes, carry: Blocks) -> dict[str, Array]:
        """Return test error of each lane, that on rows held back, and the estimate from counts, where there are any."""
        found: dict[str, Array] = join(on_all(self.of_block["measure"], cut(lanes, self.blocks), carry))
        return found

    def finish(self, carry: Blocks) -> Carry:
        """Return the carry of all lanes as NumPy arrays, tables with everything written."""
        ended: Carry = join(on_all(self.of_block["finish"], carry))
        return ended

    def all_stopped(self, carry: Blocks) -> bool:
        """Tell whether every lane has met `error-below`."""
        return all(
            not isinstance(block.stopped, tuple) and bool((np.asarray(block.stopped) >= 0).all()) for block in carry
        )

    def code(self) -> str:
        """Return what XLA made of the loop, for tests."""
        return str(self.of_block["chunk"].as_text())


def compile_program(
    task: Task,
    dataset: Dataset,
    lanes: Lanes,
    events: Events,
    ring: int,
    even: bool,
    per_commit: int = 1,
    split: bool = True,
) -> Program:
    """Compile for the given shapes.

    Args:
        task: The task.
        dataset: Rows after transforms.
        lanes: Hyper-parameters and seeds.
        events: One chunk.
        ring: Past versions to keep.
        even: Whether all lanes have the same number of check-ins.
        per_commit: Check-ins per commit, or 0 where their number varies.
        split: Whether rows may be split by columns, which changes speed only.
    """
    began = time.perf_counter()
    blocks = count_blocks(len(lanes.seeds))
    lanes, events = cut(lanes, blocks)[0], cut(events, blocks)[0]
    small = events.rows.shape[-1] <= SMALL_BATCH
    parted = split_rows(task, dataset.train_rows, np.asarray(lanes.hyper["regularisation"])) if split else None
    loop = Loop(
        task=task,
        ring=ring,
        rows=parted or jnp.asarray(dataset.train_rows),
        labels=jnp.asarray(dataset.train_labels),
        per_commit=per_commit,
        # Numbers that are added one by one differ in how many there are, so split rows go lane by lane.
        together=even
        and per_commit > 0
        and parted is None
        and not task.build(JAX).solves
        and not (small and _past_bytes(task, lanes, ring) > CACHE_BYTES),
    )
    counts = np.zeros(len(lanes.seeds), np.int32)
    carry = jax.eval_shape(loop.start, lanes)
    measure = _measurer(task, dataset)
    of_block = {
        "start": jax.jit(loop.start).lower(lanes).compile(),
        "chunk": _compile(jax.jit(loop.chunk, donate_argnums=1).lower(lanes, carry, events, counts), small),
        "measure": jax.jit(lambda lanes, own: jax.lax.map(measure, (lanes.measured, finish(own))))
        .lower(lanes, carry)
        .compile(),
        "finish": jax.jit(finish).lower(carry).compile(),
    }
    if task.build(JAX).opening:
        first = dataclasses.replace(loop, opening=True)
        of_block["opening"] = jax.jit(first.chunk, donate_argnums=1).lower(lanes, carry, events, counts).compile()
    return Program(blocks=blocks, of_block=of_block, compile_seconds=time.perf_counter() - began)


def _past_bytes(task: Task, lanes: Lanes, ring: int) -> int:
    parameters = jax.eval_shape(task.model_for(JAX).zeros)
    return int(sum(leaf.size for leaf in jax.tree.leaves(parameters)) * 4 * ring * len(lanes.seeds))


def _measurer(task: Task, dataset: Dataset) -> Callable[[tuple[Hyper, Carry]], dict[str, Array]]:
    model, algorithm = task.model_for(JAX), task.build(JAX)
    tables = {name: (jnp.asarray(rows), jnp.asarray(labels)) for name, (rows, labels) in measured_on(dataset).items()}

    everything = jnp.asarray(dataset.train_rows), jnp.asarray(dataset.train_labels)

    def measure(lane: tuple[Hyper, Carry]) -> dict[str, Array]:
        own_rows, carry = lane
        measured = {name: (everything[0][own], everything[1][own]) for name, own in own_rows.items()} or tables

        def errors(parameters: Tree) -> dict[str, Array]:
            return {
                name: jnp.mean(model.predict(parameters, rows) != labels) for name, (rows, labels) in measured.items()
            }

        if algorithm.of_device:
            chosen = np.linspace(0, task.crowd.devices - 1, min(task.crowd.devices, MEASURED_DEVICES)).astype(int)
            own = jax.tree.map(lambda leaf: leaf[chosen], carry.tables[1])
            return {name: jnp.mean(each) for name, each in jax.vmap(errors)(algorithm.of_device(own)).items()}
        found = errors(algorithm.parameters(carry.server))
        if algorithm.totals:
            found["estimated_error"] = estimated_error(algorithm.totals(carry.server), JAX)
        return found

    return measure


def _compile(lowered: Any, one_kernel: bool) -> Any:
    if not one_kernel:
        return lowered.compile()
    try:
        # Library calls inside a loop keep XLA from compiling it into one kernel; for tiny batches they do not pay.
        return lowered.compile(compiler_options={"xla_cpu_experimental_ynn_fusion_type": ""})
    except jax.errors.JaxRuntimeError:
        return lowered.compile()  # a version of XLA without that option: the same results, more slowly
