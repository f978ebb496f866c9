"""Program: lanes side by side on all cores, compiled ahead of time.

Lanes are spread over one XLA device per core. On a core they run together (`vmap`) when all have the same number of
check-ins and their past versions fit into the cache; otherwise one after the other (`lax.map`), each to its own end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from crowdml.algorithms import Task
from crowdml.core import Array, record
from crowdml.core.ops import Tree
from crowdml.data import Dataset
from crowdml.simulation.jax_ops import JAX
from crowdml.simulation.lane import Carry, Events, Lane, finish

CACHE_BYTES = 1 << 20
"""Past versions of all lanes of a core beyond this are better run lane by lane."""

MEASURED_DEVICES = 100
"""Where each device has a model of its own, the test error is the mean over this many of them, evenly spaced."""


@record
class Program:
    """Compiled functions over all lanes.

    Attributes:
        start: `start(hyper, seeds)`: the carries.
        chunk: `chunk(hyper, seeds, carries, events, counts)`: the carries after the chunk.
        measure: `measure(carries)`: test error, and the estimate from counts where there are any, of each lane.
        finish: `finish(carries)`: tables with everything written.
        compile_seconds: What compiling cost.
    """

    start: Callable[..., Carry]
    chunk: Callable[..., Carry]
    measure: Callable[[Carry], dict[str, Array]]
    finish: Callable[[Carry], Carry]
    compile_seconds: float

    def all_stopped(self, carries: Carry) -> bool:
        """Tell whether every lane has met `error-below`."""
        return not isinstance(carries.stopped, tuple) and bool((np.asarray(carries.stopped) >= 0).all())


def compile_program(
    task: Task, dataset: Dataset, hyper: Tree, seeds: Any, events: Events, ring: int, even: bool
) -> Program:
    """Compile for the given shapes.

    Args:
        task: The task.
        dataset: Rows after transforms.
        hyper: Hyper-parameters, each of shape (lanes,).
        seeds: Seeds, shape (lanes, 2).
        events: One chunk, with lanes as the first axis.
        ring: Past versions to keep.
        even: Whether all lanes have the same number of check-ins.
    """
    began = time.perf_counter()
    lane = Lane(task=task, ring=ring, train=(jnp.asarray(dataset.train_rows), jnp.asarray(dataset.train_labels)))
    lanes = len(seeds)
    mesh = _mesh(lanes)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(lane.start, _first(hyper), seeds[0]).past))
    together = even and parameters * 4 * lanes // mesh.size <= CACHE_BYTES

    def chunk(hyper: Tree, seeds: Array, carries: Carry, events: Events, counts: Array) -> Carry:
        after: Carry
        if together:
            after = jax.vmap(lane.chunk, in_axes=(0, 0, 0, 0, None))(hyper, seeds, carries, events, counts[0])
        else:
            after = jax.lax.map(lambda own: lane.chunk(*own), (hyper, seeds, carries, events, counts))
        return after

    spread = _spreader(mesh)
    counts = jnp.zeros(lanes, jnp.int32)
    start = spread(jax.vmap(lane.start)).lower(hyper, seeds).compile()
    carries = jax.eval_shape(jax.vmap(lane.start), hyper, seeds)
    compiled = {
        "chunk": spread(chunk, donate=(2,)).lower(hyper, seeds, carries, events, counts).compile(),
        "measure": spread(lambda own: jax.lax.map(_measurer(task, dataset), own)).lower(carries).compile(),
        "finish": spread(jax.vmap(finish)).lower(carries).compile(),
    }
    return Program(start=start, compile_seconds=time.perf_counter() - began, **compiled)


def _measurer(task: Task, dataset: Dataset) -> Callable[[Carry], dict[str, Array]]:
    model, algorithm = task.model_for(JAX), task.build(JAX)
    rows, labels = jnp.asarray(dataset.test_rows), jnp.asarray(dataset.test_labels)

    def error(parameters: Tree) -> Array:
        return jnp.mean(model.predict(parameters, rows) != labels)

    def measure(carry: Carry) -> dict[str, Array]:
        if algorithm.of_device:
            chosen = np.linspace(0, task.crowd.devices - 1, min(task.crowd.devices, MEASURED_DEVICES)).astype(int)
            own = jax.tree.map(lambda leaf: leaf[chosen], finish(carry).tables[1])
            return {"test_error": jnp.mean(jax.lax.map(lambda device: error(algorithm.of_device(device)), own))}
        found = {"test_error": error(algorithm.parameters(carry.server))}
        if algorithm.totals:
            totals = algorithm.totals(carry.server)
            found["estimated_error"] = totals["errors"] / jnp.maximum(totals["counted"], 1)
        return found

    return measure


def _first(tree: Tree) -> Tree:
    return jax.tree.map(lambda leaf: leaf[0], tree)


def _mesh(lanes: int) -> Mesh:
    """Use as many cores as divide the lanes evenly."""
    cores = max(count for count in range(1, jax.device_count() + 1) if lanes % count == 0)
    return Mesh(np.array(jax.devices()[:cores]), ("lanes",))


def _spreader(mesh: Mesh) -> Callable[..., Any]:
    def spread(function: Callable[..., Any], donate: tuple[int, ...] = ()) -> Any:
        by_lane = PartitionSpec("lanes")  # type: ignore[no-untyped-call]
        mapped = jax.shard_map(function, mesh=mesh, in_specs=by_lane, out_specs=by_lane, check_vma=False)
        sharding = NamedSharding(mesh, by_lane)
        return jax.jit(mapped, in_shardings=sharding, out_shardings=sharding, donate_argnums=donate)

    return spread
