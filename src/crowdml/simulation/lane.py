"""Lane: one trial as a compiled loop over check-ins.

A lane is one trial of one cell of a sweep. Rules that keep its loop fast:

- rows of a chunk are gathered before the loop, not inside;
- a table (past versions, what the server keeps per device, device states) is written at the beginning of the next
  step and only then read: reading and writing a carried table in the same step would copy it whole;
- what is constant is not carried, and what has no leaves costs nothing.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from crowdml.algorithms import Algorithm, Task
from crowdml.algorithms.contract import Hyper
from crowdml.core import Array, Batch, record
from crowdml.core.ops import Tree
from crowdml.simulation.coins import HashCoins
from crowdml.simulation.jax_ops import JAX, as_tree


@as_tree
@record
class Carry:
    """What a lane carries from check-in to check-in.

    Attributes:
        server: The server's state.
        past: Broadcasts of past versions, a ring; `()` when every check-in is fresh.
        tables: What the server keeps per device, and device states; each may have no leaves.
        pending: Device number and its new entries of `tables`, written at the next step.
        stopped: Version at which `error-below` was met, -1 before; `()` when there is no such rule.
    """

    server: Tree
    past: Tree
    tables: Tree
    pending: Tree
    stopped: Tree


@as_tree
@record
class Events:
    """Check-ins of one chunk, as arrays with one entry per check-in.

    Attributes:
        number: Number of the check-in, from 1: the address of its coins.
        device: Device number.
        rows: Training rows in the batch, shape (check-ins, width).
        counts: Rows of the batch that are real; `()` when all are.
        staleness: Versions passed since check-out.
        version: Version before this check-in.
    """

    number: Array
    device: Array
    rows: Array
    counts: Tree
    staleness: Array
    version: Array


@record
class Lane:
    """Builds the pieces of one lane.

    Attributes:
        task: The task; its kinds are fixed when compiling, its hyper-parameters are traced.
        ring: How many past versions are kept; 0 when every check-in is fresh.
        train: Training rows and labels, shared by all lanes.
    """

    task: Task
    ring: int
    train: tuple[Array, Array]

    def start(self, hyper: Hyper, seed: Array) -> Carry:
        """Begin a trial."""
        algorithm = self.task.build(JAX, hyper)
        server = algorithm.init(HashCoins(seed, 0, JAX))
        entries = (algorithm.row_init(), algorithm.device_init())
        return Carry(
            server=server,
            past=_repeat(algorithm.check_out(server), self.ring) if self.ring else (),
            tables=_repeat(entries, self.task.crowd.devices),
            pending=(jnp.int32(0), entries) if jax.tree.leaves(entries) else (),
            stopped=jnp.int32(-1) if self.task.stop.error_below else (),
        )

    def chunk(self, hyper: Hyper, seed: Array, carry: Carry, events: Events, count: Array) -> Carry:
        """Run the first `count` check-ins of a chunk."""
        algorithm = self.task.build(JAX, hyper)
        rows, labels = self.train[0][events.rows], self.train[1][events.rows]
        if algorithm.perturb:
            rows, labels = algorithm.perturb(rows, labels, HashCoins(seed, events.rows, JAX))

        def step(index: Array, carry: Carry) -> Carry:
            event = jax.tree.map(lambda leaf: leaf[index], events)
            batch = Batch(rows=rows[index], labels=labels[index], mask=_mask(event))
            return self._step(algorithm, HashCoins(seed, event.number, JAX), carry, event, batch)

        after: Carry = jax.lax.fori_loop(0, count, step, carry)
        return after

    def _step(self, algorithm: Algorithm, coins: HashCoins, carry: Carry, event: Events, batch: Batch) -> Carry:
        past, broadcast = self._check_out(algorithm, carry, event)
        tables, (row, device) = _write_then_read(carry, event.device)
        release, device = algorithm.device_step(broadcast, device, batch, coins)
        check_in = algorithm.sanitise(release, coins)
        server, row = algorithm.absorb(carry.server, row, check_in, event.staleness)
        server, _ = algorithm.commit(server)
        after = Carry(
            server=server,
            past=past,
            tables=tables,
            pending=(event.device, (row, device)) if carry.pending else (),
            stopped=carry.stopped,
        )
        return self._stop(algorithm, carry, after, event.version + 1) if self.task.stop.error_below else after

    def _check_out(self, algorithm: Algorithm, carry: Carry, event: Events) -> tuple[Tree, Tree]:
        now = algorithm.check_out(carry.server)
        if not self.ring:
            return (), now
        past = _put(carry.past, event.version % self.ring, now)
        return past, _get(past, (event.version - event.staleness) % self.ring)

    def _stop(self, algorithm: Algorithm, before: Carry, after: Carry, version: Array) -> Carry:
        """Keep the state of the first version that meets `error-below`."""
        assert algorithm.totals is not None  # noqa: S101  Task.check has seen to it
        totals, stop = algorithm.totals(after.server), self.task.stop
        met = (totals["counted"] >= stop.error_rows) & (totals["errors"] <= stop.error_below * totals["counted"])
        running = before.stopped < 0
        kept: Carry = jax.tree.map(lambda old, new: jnp.where(running, new, old), before, after)
        return dataclasses.replace(kept, stopped=jnp.where(running & met, version, before.stopped))


def _mask(event: Events) -> Array:
    if isinstance(event.counts, tuple):
        return jnp.ones(event.rows.shape, jnp.float32)
    return (jnp.arange(len(event.rows)) < event.counts).astype(jnp.float32)


def finish(carry: Carry) -> Carry:
    """Write what is pending into the tables, so that they can be read."""
    return dataclasses.replace(carry, tables=_write_then_read(carry, jnp.int32(0))[0])


def _write_then_read(carry: Carry, slot: Array) -> tuple[Tree, Tree]:
    if not carry.pending:
        return carry.tables, carry.tables
    written = _put(carry.tables, carry.pending[0], carry.pending[1])
    return written, _get(written, slot)


def _repeat(tree: Tree, times: int) -> Tree:
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (times, *jnp.shape(leaf))), tree)


def _put(table: Tree, slot: Array, entry: Tree) -> Tree:
    return jax.tree.map(lambda leaf, own: jax.lax.dynamic_update_index_in_dim(leaf, own, slot, 0), table, entry)


def _get(table: Tree, slot: Array) -> Any:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, slot, 0, keepdims=False), table)
