"""Program: a task's loop, compiled ahead of time for all cores.

Lanes are spread over one XLA device per core. On a core they run together when all have the same number of check-ins
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
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from crowdml.algorithms import Task
from crowdml.algorithms.contract import Hyper
from crowdml.core import Array, record
from crowdml.core.ops import Tree
from crowdml.data import Dataset
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
    """Compiled functions over all lanes.

    Attributes:
        start: `start(lanes)`: the carry.
        chunk: `chunk(lanes, carry, events, counts)`: the carry after the chunk.
        measure: `measure(lanes, carry)`: test error of each lane, that on rows held back, and the estimate from counts, where
            there are any.
        opening: As `chunk`, for the first round of an algorithm that begins with another message; None elsewhere.
        finish: `finish(carry)`: tables with everything written.
        compile_seconds: What compiling cost.
    """

    start: Callable[..., Carry]
    chunk: Callable[..., Carry]
    measure: Callable[[Lanes, Carry], dict[str, Array]]
    finish: Callable[[Carry], Carry]
    compile_seconds: float
    opening: Callable[..., Carry] | None = None

    def all_stopped(self, carry: Carry) -> bool:
        """Tell whether every lane has met `error-below`."""
        return not isinstance(carry.stopped, tuple) and bool((np.asarray(carry.stopped) >= 0).all())


def compile_program(
    task: Task, dataset: Dataset, lanes: Lanes, events: Events, ring: int, even: bool, per_commit: int = 1
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
    """
    began = time.perf_counter()
    mesh = _mesh(len(lanes.seeds))
    small = events.rows.shape[-1] <= SMALL_BATCH
    loop = Loop(
        task=task,
        ring=ring,
        rows=jnp.asarray(dataset.train_rows),
        labels=jnp.asarray(dataset.train_labels),
        per_commit=per_commit,
        together=even
        and per_commit > 0
        and not task.build(JAX).solves
        and not (small and _past_bytes(task, lanes, ring) > CACHE_BYTES * mesh.size),
    )
    first = dataclasses.replace(loop, opening=True) if task.build(JAX).opening else None
    counts = np.zeros(len(lanes.seeds), np.int32)
    carry = jax.eval_shape(loop.start, lanes)
    measure = _measurer(task, dataset)

    def compiled(function: Callable[..., Any], *examples: Any, donate: tuple[int, ...] = (), one: bool = False) -> Any:
        return _compile(_spread(function, mesh, donate), examples, one)

    return Program(
        start=compiled(loop.start, lanes),
        chunk=compiled(loop.chunk, lanes, carry, events, counts, donate=(1,), one=small),
        measure=compiled(lambda lanes, own: jax.lax.map(measure, (lanes.measured, finish(own))), lanes, carry),
        opening=compiled(first.chunk, lanes, carry, events, counts, donate=(1,)) if first else None,
        finish=compiled(finish, carry),
        compile_seconds=time.perf_counter() - began,
    )


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
            totals = algorithm.totals(carry.server)
            found["estimated_error"] = totals["errors"] / jnp.maximum(totals["counted"], 1)
        return found

    return measure


def _mesh(lanes: int) -> Mesh:
    """Use as many cores as divide the lanes evenly."""
    cores = max(count for count in range(1, jax.device_count() + 1) if lanes % count == 0)
    return Mesh(np.array(jax.devices()[:cores]), ("lanes",))


def _spread(function: Callable[..., Any], mesh: Mesh, donate: tuple[int, ...]) -> Any:
    by_lane = PartitionSpec("lanes")  # type: ignore[no-untyped-call]
    mapped = jax.shard_map(function, mesh=mesh, in_specs=by_lane, out_specs=by_lane, check_vma=False)
    sharding = NamedSharding(mesh, by_lane)
    return jax.jit(mapped, in_shardings=sharding, out_shardings=sharding, donate_argnums=donate)


def _compile(function: Any, examples: tuple[Any, ...], one_kernel: bool) -> Any:
    lowered = function.lower(*examples)
    if not one_kernel:
        return lowered.compile()
    try:
        # Library calls inside a loop keep XLA from compiling it into one kernel; for tiny batches they do not pay.
        return lowered.compile(compiler_options={"xla_cpu_experimental_ynn_fusion_type": ""})
    except jax.errors.JaxRuntimeError:
        return lowered.compile()  # a version of XLA without that option: the same results, more slowly
