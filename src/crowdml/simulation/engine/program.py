"""Program: a task's loop, compiled ahead of time for the replicas of one core.

Replicas run together when all have the same number of check-ins and their past versions fit into the cache; otherwise
one after the other, each to its own end. Rows are arguments: a program is compiled for shapes, and kept.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from crowdml.algorithms.device_parts.gradient import estimated_error
from crowdml.algorithms.recipe import Hyper
from crowdml.core import Array, record
from crowdml.core.ops import Tree
from crowdml.data import Dataset
from crowdml.simulation.attacked import attack_of, attacked
from crowdml.simulation.engine import require_platform
from crowdml.simulation.engine.carry import finish
from crowdml.simulation.engine.data_tables import DataTables, make_tables
from crowdml.simulation.engine.jax_ops import JAX, LazyRows
from crowdml.simulation.engine.program_cache import open_cache
from crowdml.simulation.engine.replica import Loop, writes_out
from crowdml.simulation.engine.run_records import MEASURED_DEVICES, Carry, Events, Replicas, Shape
from crowdml.simulation.engine.sparse_inputs import inputs_of
from crowdml.simulation.prepare import measured_loss
from crowdml.task import Task
from crowdml.task.plugins import registered_here

CACHE_BYTES = 1 << 20
"""Past versions of the replicas of one core beyond this, about what its own cache holds, are better run replica by
replica, if batches are small."""

SMALL_BATCH = 2
"""Up to this batch size a loop is fastest as one kernel; beyond, library calls win, or small products written out."""

_ONE_KERNEL = {"xla_cpu_experimental_ynn_fusion_type": ""}
"""Library calls inside a loop keep XLA from compiling it into one kernel; for tiny batches they do not pay."""

_VECTORS = _ONE_KERNEL | {"xla_backend_optimization_level": 2, "xla_cpu_prefer_vector_width": 512}
"""At the highest level inner loops over a row are unrolled number by number before anybody makes vectors of them."""

KEPT = 16
"""Compiled programs that a process keeps, the last used."""


@record
class Program:
    """Functions over the replicas of one core, compiled for their shapes and bound to their rows.

    Attributes:
        functions: Compiled functions: start, measure and finish.
        chunk_of: The compiled loop of every phase; where rounds are shared, what devices and what the server do.
        tables: The rows, on JAX's side.
        compile_seconds: What compiling cost; nothing where the program was there.
    """

    functions: dict[str, Any]
    chunk_of: tuple[Any, ...]
    tables: DataTables
    compile_seconds: float

    def start(self, replicas: Replicas) -> Carry:
        """Make the first state of every replica."""
        made: Carry = _call(self.functions["start"], replicas)
        return made

    def chunk(self, replicas: Replicas, carry: Carry, events: Events, counts: Array, phase: int = -1) -> Carry:
        """Run a chunk of a phase. The carry that was given is used up."""
        after: Carry = _call(self.chunk_of[phase], self.tables, replicas, carry, events, counts)
        return after

    def contribute(self, replicas: Replicas, carry: Carry, events: Events, phase: int) -> Tree:
        """Have some devices of a shared round work; return their check-ins."""
        return _call(self.chunk_of[phase][0], self.tables, replicas, carry, events)

    def fold(self, replicas: Replicas, carry: Carry, check_ins: Tree, staleness: Array, phase: int) -> Carry:
        """Absorb all check-ins of a shared round, and commit. The carry that was given is used up."""
        after: Carry = _call(self.chunk_of[phase][1], replicas, carry, check_ins, staleness)
        return after

    def measure(self, replicas: Replicas, carry: Carry) -> dict[str, Array]:
        """Return the errors of each replica: on test rows, on rows held back, and as counts estimate it."""
        found: dict[str, Array] = _call(self.functions["measure"], self.tables, replicas, carry)
        return found

    def finish(self, carry: Carry) -> Carry:
        """Return the carry as NumPy arrays, tables with everything written."""
        ended: Carry = jax.tree.map(np.asarray, _call(self.functions["finish"], carry))
        return ended

    def code(self) -> str:
        """Return what XLA made of the last phase's loop, for tests."""
        return str(self.chunk_of[-1].as_text())


def _call(function: Any, *arguments: Tree) -> Any:
    # XLA hands a call whose arguments are still being copied to its own only thread.
    given = jax.block_until_ready(jax.device_put(arguments))  # type: ignore[no-untyped-call]
    return jax.block_until_ready(function(*given))  # type: ignore[no-untyped-call]


def compile_program(
    task: Task,
    dataset: Dataset,
    replicas: Replicas,
    events: Events,
    ring: int,
    even: bool,
    per_commit: int = 1,
    sparse: bool = True,
) -> Program:
    """Lay out a dataset, and compile for its shapes.

    Args:
        task: The task.
        dataset: Rows after transforms.
        replicas: Hyper-parameters and seeds.
        events: One chunk.
        ring: Past versions to keep.
        even: Whether all replicas have the same number of check-ins.
        per_commit: Check-ins per commit, or 0 where their number varies.
        sparse: Whether rows may be split by columns, which changes speed only.
    """
    strength = np.asarray(replicas.hyper["regularisation"])
    tables = make_tables(task, dataset, strength, sparse=sparse, own_rows=bool(replicas.measured))
    return program_for(task, tables, replicas, events, Shape(ring=ring, even=even, per_commit=per_commit))


_kept: OrderedDict[tuple[Any, ...], tuple[dict[str, Any], tuple[Any, ...]]] = OrderedDict()
_keeping = threading.Lock()


def program_for(task: Task, tables: DataTables, replicas: Replicas, events: Events, shape: Shape) -> Program:
    """Compile for the shapes of these tables, replicas and events, unless that has been done."""
    began = time.perf_counter()
    require_platform()
    tables = jax.device_put(tables)
    # What was registered by a call may do something else by now, under the same name.
    keeps = not registered_here()
    key = (task.structure(), _shapes((tables, replicas, events)), shape)
    with _keeping:
        found = _kept.get(key) if keeps else None
        if found is None:
            found = _compile_all(task, tables, replicas, events, shape)
            if keeps:
                _kept[key] = found
            if len(_kept) > KEPT:
                _kept.popitem(last=False)
        elif keeps:
            _kept.move_to_end(key)
    functions, chunk_of = found
    return Program(functions=functions, chunk_of=chunk_of, tables=tables, compile_seconds=time.perf_counter() - began)


def _shapes(tree: Tree) -> tuple[Any, ...]:
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((np.shape(leaf), np.dtype(leaf.dtype).str) for leaf in leaves)


def _compile_all(
    task: Task, tables: DataTables, replicas: Replicas, events: Events, shape: Shape
) -> tuple[dict[str, Any], tuple[Any, ...]]:
    width = events.rows.shape[-1]
    written_out = writes_out(task, width, shape.per_commit)
    options = _ONE_KERNEL if width <= SMALL_BATCH else _VECTORS if written_out else {}
    loop = Loop(
        task=task,
        ring=shape.ring,
        per_commit=shape.per_commit,
        side_by_side=shape.even
        and shape.per_commit > 0
        and not inputs_of(tables, task).one_at_a_time
        and not task.built.hints.one_trial_at_a_time
        and len(task.model_for(JAX).shape) == 1  # filters of several replicas at once have no fast convolution
        and not (options and _past_bytes(task, replicas, shape.ring) > CACHE_BYTES),
    )
    counts = np.zeros(len(replicas.seeds), np.int32)
    start = jax.jit(loop.start)
    carry = jax.eval_shape(start, replicas)
    functions = {
        "start": start.lower(replicas).compile(),
        "measure": jax.jit(_measurer(task)).lower(tables, replicas, carry).compile(),
        "finish": jax.jit(finish).lower(carry).compile(),
    }

    def compiled(phase: int) -> Any:
        of_phase = dataclasses.replace(loop, phase=phase)
        if not shape.part:
            return _compile(
                jax.jit(of_phase.chunk, donate_argnums=2).lower(tables, replicas, carry, events, counts), options
            )
        some = jax.tree.map(lambda leaf: leaf[:, : shape.part], events)
        contribute = jax.jit(of_phase.contribute).lower(tables, replicas, carry, some)
        check_ins = jax.tree.map(
            lambda leaf: np.empty((shape.per_commit, *leaf.shape[1:]), leaf.dtype), contribute.out_info
        )
        staleness = np.empty(shape.per_commit, np.int32)
        fold = jax.jit(of_phase.fold, donate_argnums=1).lower(replicas, carry, check_ins, staleness)
        return contribute.compile(), fold.compile()

    return functions, tuple(compiled(phase) for phase in range(len(task.built.phases)))


def _past_bytes(task: Task, replicas: Replicas, ring: int) -> int:
    parameters = jax.eval_shape(task.model_for(JAX).zeros)
    return int(sum(leaf.size for leaf in jax.tree.leaves(parameters)) * 4 * ring * len(replicas.seeds))


def _measurer(task: Task) -> Callable[[DataTables, Replicas, Carry], dict[str, Array]]:
    model, phase = task.model_for(JAX), attacked(task.build(JAX), attack_of(task, JAX), JAX).last
    has_models = task.releases.alone

    def measure_one(tables: DataTables, chosen_rows: Hyper, carry: Carry) -> dict[str, Array]:
        rows_of = tables.rows["whole"] if "whole" in tables.rows else tables.everything
        chosen = {name: (LazyRows(rows_of, rows), tables.targets[rows]) for name, rows in chosen_rows.items()}

        def errors(parameters: Tree) -> dict[str, Array]:
            found: dict[str, Array] = {}
            for of, (rows, targets) in (chosen or tables.measured).items():
                found |= task.target.measures(model.predict(parameters, rows), targets, JAX, of)
                found |= measured_loss(task, model, parameters, rows, targets, of)
            return found

        if has_models:
            devices = np.linspace(0, task.crowd.devices - 1, min(task.crowd.devices, MEASURED_DEVICES)).astype(int)
            models = phase.device.model(jax.tree.map(lambda leaf: leaf[devices], carry.tables[1].work))
            return {name: jnp.mean(each) for name, each in jax.lax.map(errors, models).items()}
        report = phase.server.report(carry.server)
        found = errors(report.parameters)
        if report.counts:
            found["estimated_error"] = estimated_error(report.counts, JAX)
        return found

    def measure(tables: DataTables, replicas: Replicas, carry: Carry) -> dict[str, Array]:
        found: dict[str, Array] = jax.lax.map(
            lambda replica: measure_one(tables, *replica), (replicas.measured, finish(carry))
        )
        return found

    return measure


def _compile(lowered: Any, options: dict[str, Any]) -> Any:
    try:
        return lowered.compile(compiler_options=options)
    except jax.errors.JaxRuntimeError:
        return lowered.compile()  # a version of XLA without one of the options: the same results, more slowly


@functools.cache
def keep_on_disk() -> None:
    """Have JAX keep and look for programs in the user's cache folder; once."""
    cache = open_cache()
    if cache is None:
        return
    try:
        from jax._src import compilation_cache

        # JAX has no public way to hand in a cache. Its own writes entries that a crash leaves half written, and is
        # bounded only where another package is installed.
        _ = compilation_cache.get_file_cache, compilation_cache.reset_cache
    except (ImportError, AttributeError):
        return  # a version of JAX that does it in another way: compiled anew at each start

    def ours(path: str) -> tuple[Any, str]:
        return cache, path

    compilation_cache.reset_cache()
    compilation_cache.get_file_cache = ours
    jax.config.update("jax_compilation_cache_dir", str(cache.folder))  # type: ignore[no-untyped-call]
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # type: ignore[no-untyped-call]
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)  # type: ignore[no-untyped-call]
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")  # type: ignore[no-untyped-call]


keep_on_disk()
