"""Lanes: trials as a compiled loop over check-ins.

A lane is one trial of one cell of a sweep. Several lanes run in one loop, as the leading axis of everything. Rules
that keep the loop fast, each measured (docs/decisions/0004-fast-loops.md):

- a table (past versions, what the server keeps per device, device states) is written at the beginning of the next
  step and only then read: reading and writing a carried table in the same step would copy it whole;
- tables are addressed by (lane, slot) and carried whole through all loops;
- what a device computes is fenced off from what the server does with it: XLA would compute the noise again for
  every use;
- what is constant is not carried, and what has no leaves costs nothing;
- a single lane loses its axis while it works, and a device that takes several steps reads its rows step by step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from crowdml.algorithms import Algorithm, Task
from crowdml.algorithms.contract import Hyper
from crowdml.algorithms.counting import is_low
from crowdml.core import Array, Batch, record
from crowdml.core.ops import Tree
from crowdml.simulation.coins import HashCoins
from crowdml.simulation.columns import Split
from crowdml.simulation.jax_ops import JAX, as_tree
from crowdml.simulation.lazy_rows import LazyRows, read, read_lazy
from crowdml.simulation.tables import fetch, repeat, store


@as_tree
@record
class Carry:
    """What lanes carry from check-in to check-in. The first axis of everything is the lane.

    Attributes:
        server: The server's state.
        past: Broadcasts of past versions, a ring; `()` when every check-in is fresh.
        tables: What the server keeps per device, and device states; each may have no leaves.
        pending: Device number and its new entries of `tables`, written at the next step; `()` without tables.
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
    """Check-ins of one chunk: arrays of shape (lanes, check-ins, …).

    Attributes:
        number: Number of the check-in, from 1: the address of its coins.
        device: Device number.
        rows: Training rows in the batch, shape (lanes, check-ins, width).
        counts: Rows of the batch that are real; `()` when all are.
        staleness: Versions passed since check-out.
        version: Version before this check-in.
        commits: Whether a commit follows; `()` when one follows every check-in, or every fixed number of them.
        lies: Whether the device lies; `()` when nobody does.
        chosen: Which ε the device's owner has chosen; `()` when all have the same.
    """

    number: Array
    device: Array
    rows: Array
    counts: Tree
    staleness: Array
    version: Array
    commits: Tree
    chosen: Tree
    lies: Tree = ()


@as_tree
@record
class Lanes:
    """What stays the same over a run.

    Attributes:
        hyper: Hyper-parameters, each of shape (lanes,), and arrays handed in, with lanes as their first axis.
        seeds: Seeds, shape (lanes, 2).
        scales: Scales of noise for every ε that owners may choose, each of shape (lanes, choices); empty where all
            have the same.
        measured: Rows to measure each lane on, by the name of the measurement, with lanes as the first axis; empty
            where all lanes have the same.
    """

    hyper: Hyper
    seeds: Array
    scales: Hyper = dataclasses.field(default_factory=dict)
    measured: Hyper = dataclasses.field(default_factory=dict)


@record
class Loop:
    """The loop of a task.

    Attributes:
        task: Its kinds are fixed when compiling, its hyper-parameters are traced.
        ring: How many past versions are kept; 0 when every check-in is fresh.
        rows: Training rows, shared by all lanes; split by columns where that saves work.
        labels: Their labels.
        per_commit: Check-ins per commit, or 0 where their number varies.
        together: Lanes in one loop: all of them, or one after the other.
        opening: Whether this is the first round of an algorithm that begins with another message.
    """

    task: Task
    ring: int
    rows: Array | Split
    labels: Array
    per_commit: int
    together: bool
    opening: bool = False

    def _build(self, hyper: Hyper | None = None) -> Algorithm:
        algorithm = self.task.build(JAX, hyper)
        return algorithm.opening if self.opening and algorithm.opening else algorithm

    def start(self, lanes: Lanes) -> Carry:
        """Begin all trials."""

        def one(hyper: Hyper, seed: Array) -> tuple[Tree, Tree, Tree]:
            algorithm = self.task.build(JAX, hyper)
            server = algorithm.init(HashCoins(seed, 0, JAX))
            return server, algorithm.check_out(server), (algorithm.row_init(), algorithm.device_init())

        server, broadcast, entries = jax.vmap(one)(lanes.hyper, lanes.seeds)
        count = len(lanes.seeds)
        entries = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape[1:])), entries)
        has_tables = bool(jax.tree.leaves(entries))
        return Carry(
            server=server,
            past=repeat(broadcast, self.ring) if self.ring else (),
            tables=repeat(entries, self.task.crowd.devices),
            pending=(jnp.zeros(count, jnp.int32), entries) if has_tables else (),
            stopped=jnp.full(count, -1, jnp.int32) if self.task.stop.error_below else (),
        )

    def chunk(self, lanes: Lanes, carry: Carry, events: Events, counts: Array) -> Carry:
        """Run the first `counts` check-ins of a chunk."""
        if self.together:
            return self._block(lanes, carry, events, 0, counts[0])

        def one(lane: Array, carry: Carry) -> Carry:
            def cut(tree: Tree) -> Tree:
                return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, lane, 1), tree)

            def put(whole: Tree, part: Tree) -> Tree:
                return jax.tree.map(
                    lambda leaf, own: jax.lax.dynamic_update_slice_in_dim(leaf, own, lane, 0), whole, part
                )

            own = dataclasses.replace(
                carry, server=cut(carry.server), pending=cut(carry.pending), stopped=cut(carry.stopped)
            )
            own = self._block(cut(lanes), own, cut(events), lane, counts[lane])
            return Carry(
                server=put(carry.server, own.server),
                past=own.past,
                tables=own.tables,
                pending=put(carry.pending, own.pending),
                stopped=put(carry.stopped, own.stopped),
            )

        after: Carry = jax.lax.fori_loop(0, len(counts), one, carry)
        return after

    def _block(self, lanes: Lanes, carry: Carry, events: Events, first: Any, count: Array) -> Carry:
        """Run lanes from `first` on, side by side; tables hold all lanes, everything else only these."""

        def at(index: Array) -> Events:
            cut: Events = jax.tree.map(
                lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, 1, keepdims=False), events
            )
            return cut

        def check_in(index: Array, carry: Carry) -> Carry:
            return self._check_in(lanes, carry, at(index), first, index < 0)

        def step(index: Array, carry: Carry) -> Carry:
            return self._after(lanes, carry, check_in(index, carry), at(index))

        def several(number: Array, carry: Carry) -> Carry:
            begin = number * self.per_commit
            absorbed = jax.lax.fori_loop(begin, begin + self.per_commit, check_in, carry)
            return self._after(lanes, carry, absorbed, at(begin))

        if self.per_commit > 1:
            after: Carry = jax.lax.fori_loop(0, count // self.per_commit, several, carry)
        else:
            after = jax.lax.fori_loop(0, count, step, carry)
        return after

    def _check_in(self, lanes: Lanes, carry: Carry, event: Events, first: Any, never: Array) -> Carry:
        """Have each lane's device work and the server absorb what it sends."""
        broadcast = _by_lane(lambda hyper, server: self._build(hyper).check_out(server))(lanes.hyper, carry.server)
        past = carry.past
        if self.ring:
            past = store(past, first, event.version % self.ring, broadcast)
            broadcast = fetch(past, first, (event.version - event.staleness) % self.ring)
        tables, entries = carry.tables, carry.tables
        if carry.pending:
            tables = store(tables, first, *carry.pending)
            entries = fetch(tables, first, event.device)
        made = _by_lane(self._device_side)(lanes, broadcast, entries[1], event)
        check_in, device = _fence(made, never)
        server, row = _by_lane(self._absorb)(lanes.hyper, carry.server, entries[0], check_in, event.staleness)
        return Carry(
            server=server,
            past=past,
            tables=tables,
            pending=(event.device, (row, device)) if carry.pending else (),
            stopped=carry.stopped,
        )

    def _after(self, lanes: Lanes, before: Carry, absorbed: Carry, event: Events) -> Carry:
        """Commit, and look whether the task may stop."""
        after = dataclasses.replace(absorbed, server=self._commit(lanes.hyper, absorbed.server, event))
        return self._stop(before, after, event.version + 1) if self.task.stop.error_below else after

    def _device_side(self, lane: Lanes, broadcast: Tree, device: Tree, event: Events) -> tuple[Tree, Tree]:
        own = {} if isinstance(event.chosen, tuple) else {name: of[event.chosen] for name, of in lane.scales.items()}
        algorithm = self._build(dict(lane.hyper) | own)
        rows, labels = LazyRows(self.rows, event.rows), read(self.labels, event.rows)
        if not algorithm.in_parts:
            rows, labels = read_lazy((rows, labels))
        if algorithm.perturb:
            rows, labels = algorithm.perturb(rows, labels, HashCoins(lane.seeds, event.rows, JAX))
        attack = None if isinstance(event.lies, tuple) else algorithm.attack
        if attack and attack.labels:
            labels = jnp.where(event.lies > 0, attack.labels(labels), labels)
        batch = Batch(rows=rows, labels=labels, mask=_mask(event))
        coins = HashCoins(lane.seeds, event.number, JAX)
        if isinstance(self.rows, Split):
            walker = self.rows.build(self.task, dict(lane.hyper) | own)
            release, device = walker.device_step(self.rows.take(broadcast), device, batch, coins)
            release = self.rows.give(release)
        else:
            release, device = algorithm.device_step(broadcast, device, batch, coins)
        check_in = algorithm.sanitise(release, coins)
        return attack.forge(check_in, event.lies > 0, coins) if attack else check_in, device

    def _absorb(self, hyper: Hyper, server: Tree, row: Tree, check_in: Tree, staleness: Array) -> tuple[Tree, Tree]:
        return self._build(hyper).absorb(server, row, check_in, staleness)

    def _commit(self, hyper: Hyper, server: Tree, event: Events) -> Tree:
        def commit(server: Tree) -> Tree:
            return _by_lane(lambda own, state: self._build(own).commit(state)[0])(hyper, server)

        if isinstance(event.commits, tuple):
            return commit(server)
        # Lanes run one by one here, so the condition is a single one and only one branch is ever run.
        return jax.lax.cond(event.commits[0] > 0, commit, lambda state: state, server)

    def _stop(self, before: Carry, after: Carry, version: Array) -> Carry:
        """Keep the state of the first version that meets `error-below`."""
        algorithm, stop = self._build(), self.task.stop
        assert algorithm.totals and stop.error_below is not None  # noqa: S101  Task.check has seen to it
        met = is_low(algorithm.totals(after.server), stop.error_below, stop.error_rows)
        running = before.stopped < 0

        def kept(old: Array, new: Array) -> Array:
            return jnp.where(running.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        # A stopped lane goes on writing to its tables what it wrote before.
        return dataclasses.replace(
            after,
            server=jax.tree.map(kept, before.server, after.server),
            pending=jax.tree.map(kept, before.pending, after.pending),
            stopped=jnp.where(running & met, version, before.stopped),
        )


def finish(carry: Carry) -> Carry:
    """Write what is pending into the tables, so that they can be read."""
    if not carry.pending:
        return carry
    return dataclasses.replace(carry, tables=store(carry.tables, 0, *carry.pending))


def _by_lane(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have a function work on every lane; a single lane loses its axis, which would cost copies inside loops."""

    def run(*trees: Tree) -> Tree:
        if len(jax.tree.leaves(trees)[0]) > 1:
            return jax.vmap(function)(*trees)
        found = function(*jax.tree.map(lambda leaf: leaf[0], trees))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], found)

    return run


def _mask(event: Events) -> Array:
    if isinstance(event.counts, tuple):
        return jnp.ones(event.rows.shape, jnp.float32)
    return (jnp.arange(len(event.rows)) < event.counts).astype(jnp.float32)


def _fence(tree: Tree, never: Array) -> Tree:
    """Have everything computed once, here.

    A barrier would be gone before XLA decides what to compute twice; a condition that it cannot decide stays.
    """
    return jax.lax.cond(never, lambda own: jax.tree.map(lambda leaf: leaf + leaf, own), lambda own: own, tree)
