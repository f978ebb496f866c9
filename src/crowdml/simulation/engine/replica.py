"""Replicas: trials as a compiled loop over check-ins.

A replica is one trial of one cell of a sweep. Several run in one loop, as the leading axis of everything. Rules that
keep the loop fast, each measured (docs/decisions/0004-fast-loops.md):

- a table (past versions, what the server keeps per device, device states) is written at the beginning of the next
  step and only then read: reading and writing a carried table in the same step would copy it whole;
- tables are addressed by (replica, slot) and carried whole through all loops;
- what a device computes is fenced off from what the server does with it: XLA would compute the noise again for
  every use;
- what is constant is not carried, and what has no leaves costs nothing;
- a single replica loses its axis while it works, and a device that takes several steps reads its rows step by step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from crowdml.algorithms import Phase
from crowdml.algorithms.device_parts.gradient import Gradient, is_low
from crowdml.algorithms.recipe import Hyper
from crowdml.core import Array, Batch, DeviceState, record
from crowdml.core.ops import Tree
from crowdml.simulation.attacked import attack_of, attacked, forge
from crowdml.simulation.engine.carry import fetch, repeat, store
from crowdml.simulation.engine.data_tables import DataTables
from crowdml.simulation.engine.hash_coins import HashCoins
from crowdml.simulation.engine.jax_ops import JAX, fenced, is_small, read
from crowdml.simulation.engine.run_records import Carry, Events, Replicas
from crowdml.simulation.engine.sparse_inputs import Inputs, inputs_of
from crowdml.task import Task


@record
class Loop:
    """The loop of a task.

    Attributes:
        task: Its kinds are fixed when compiling, its hyper-parameters are traced.
        ring: How many past versions are kept; 0 when every check-in is fresh.
        per_commit: Check-ins per commit, or 0 where their number varies.
        side_by_side: Whether all replicas go through one loop, or one after the other.
        phase: Which phase of the algorithm this is.
    """

    task: Task
    ring: int
    per_commit: int
    side_by_side: bool
    phase: int = -1

    def _phase(self, hyper: Hyper | None = None) -> Phase:
        return attacked(self.task.build(JAX, hyper), attack_of(self.task, JAX), JAX).phases[self.phase]

    def start(self, replicas: Replicas) -> Carry:
        """Make the first state of server, broadcasts and tables for every replica."""

        def one(hyper: Hyper, seed: Array) -> tuple[Tree, Tree, Tree]:
            phase = self._phase(hyper)
            server = phase.server.init(HashCoins(seed, 0, JAX))
            return server, phase.server.check_out(server), (phase.server.row(), phase.begin())

        server, broadcast, entries = jax.vmap(one)(replicas.hyper, replicas.seeds)
        count = len(replicas.seeds)
        entries = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape[1:])), entries)
        has_tables = bool(jax.tree.leaves(entries))
        return Carry(
            server=server,
            past=repeat(broadcast, self.ring) if self.ring else (),
            tables=repeat(entries, self.task.crowd.devices),
            pending=(jnp.zeros(count, jnp.int32), entries) if has_tables else (),
            stopped=jnp.full(count, -1, jnp.int32) if self.task.stop.error_below else (),
        )

    def chunk(self, tables: DataTables, replicas: Replicas, carry: Carry, events: Events, counts: Array) -> Carry:
        """Run the first `counts` check-ins of a chunk."""
        if self.side_by_side:
            return self._block(tables, replicas, carry, events, 0, counts[0])

        def one(replica: Array, carry: Carry) -> Carry:
            def cut(tree: Tree) -> Tree:
                return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, replica, 1), tree)

            def put(whole: Tree, part: Tree) -> Tree:
                return jax.tree.map(
                    lambda leaf, new: jax.lax.dynamic_update_slice_in_dim(leaf, new, replica, 0), whole, part
                )

            part = dataclasses.replace(
                carry, server=cut(carry.server), pending=cut(carry.pending), stopped=cut(carry.stopped)
            )
            part = self._block(tables, cut(replicas), part, cut(events), replica, counts[replica])
            return Carry(
                server=put(carry.server, part.server),
                past=part.past,
                tables=part.tables,
                pending=put(carry.pending, part.pending),
                stopped=put(carry.stopped, part.stopped),
            )

        after: Carry = jax.lax.fori_loop(0, len(counts), one, carry)
        return after

    def _block(
        self, tables: DataTables, replicas: Replicas, carry: Carry, events: Events, first: Any, count: Array
    ) -> Carry:
        """Run replicas from `first` on, side by side; tables hold all replicas, everything else only these."""

        def at(index: Array) -> Events:
            cut: Events = jax.tree.map(
                lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, 1, keepdims=False), events
            )
            return cut

        def check_in(index: Array, carry: Carry) -> Carry:
            return self._check_in(tables, replicas, carry, at(index), first, index < 0)

        def step(index: Array, carry: Carry) -> Carry:
            return self._after(replicas, carry, check_in(index, carry), at(index))

        def several(number: Array, carry: Carry) -> Carry:
            begin = number * self.per_commit
            absorbed = jax.lax.fori_loop(begin, begin + self.per_commit, check_in, carry)
            return self._after(replicas, carry, absorbed, at(begin))

        if self.per_commit > 1:
            after: Carry = jax.lax.fori_loop(0, count // self.per_commit, several, carry)
        else:
            after = jax.lax.fori_loop(0, count, step, carry)
        return after

    def _check_in(
        self, data: DataTables, replicas: Replicas, carry: Carry, event: Events, first: Any, never: Array
    ) -> Carry:
        """Have each replica's device work and the server absorb what it sends."""
        broadcast = _by_replica(lambda hyper, server: self._phase(hyper).server.check_out(server))(
            replicas.hyper, carry.server
        )
        past = carry.past
        if self.ring:
            past = store(past, first, event.version % self.ring, broadcast)
            broadcast = fetch(past, first, (event.version - event.staleness) % self.ring)
        tables, entries = carry.tables, carry.tables
        if carry.pending:
            tables = store(tables, first, *carry.pending)
            entries = fetch(tables, first, event.device)
        work = functools.partial(self._device_side, data, inputs_of(data, self.task))
        products = fenced(functools.partial(_fence, never=never))
        with products if writes_out(self.task, event.rows.shape[-1], self.per_commit) else contextlib.nullcontext():
            made = _by_replica(work)(replicas, broadcast, entries[1], event)
        check_in, device = _fence(made, never)
        server, row = _by_replica(self._absorb)(replicas.hyper, carry.server, entries[0], check_in, event.staleness)
        return Carry(
            server=server,
            past=past,
            tables=tables,
            pending=(event.device, (row, device)) if carry.pending else (),
            stopped=carry.stopped,
        )

    def _after(self, replicas: Replicas, before: Carry, absorbed: Carry, event: Events) -> Carry:
        """Commit, and look whether the task may stop."""
        after = dataclasses.replace(absorbed, server=self._commit(replicas.hyper, absorbed.server, event))
        if not self.task.stop.error_below:
            return after
        found = self._stop(before, after, event.version + 1)
        if isinstance(event.commits, tuple):
            return found
        # Between commits there is no version that could meet the rule.
        return dataclasses.replace(found, stopped=jnp.where(event.commits > 0, found.stopped, before.stopped))

    def _device_side(
        self,
        data: DataTables,
        inputs: Inputs,
        replica: Replicas,
        broadcast: Any,
        device: DeviceState,
        event: Events,
    ) -> tuple[Tree, Tree]:
        chosen = isinstance(event.chosen, tuple)
        hyper = dict(replica.hyper) | (
            {} if chosen else {name: of[event.chosen] for name, of in replica.scales.items()}
        )
        phase = self._phase(hyper)
        rows, targets = inputs.rows(event.rows), read(data.targets, event.rows)
        rows, targets = phase.sanitiser.rows(rows, targets, HashCoins(replica.seeds, event.rows, JAX))
        attack = None if isinstance(event.lies, tuple) else attack_of(self.task, JAX)
        if attack and attack.targets:
            targets = jnp.where(event.lies > 0, attack.targets(targets), targets)
        batch = Batch(rows=rows, targets=targets, mask=_mask(event))
        coins = HashCoins(replica.seeds, event.number, JAX)
        release, work = inputs.step(phase, hyper, broadcast, device.work, batch, coins)
        check_in, after = phase.finish(broadcast, release, DeviceState(work=work, noise=device.noise), coins)
        return forge(attack, check_in, event.lies > 0, coins) if attack else check_in, after

    def contribute(self, data: DataTables, replicas: Replicas, carry: Carry, events: Events) -> Tree:
        """Have devices of a single replica work on the version that there is; return their check-ins, stacked.

        For rounds whose devices remember nothing: then they can work side by side.
        """
        replica, server, devices = jax.tree.map(lambda leaf: leaf[0], (replicas, carry.server, events))
        phase, inputs = self._phase(replica.hyper), inputs_of(data, self.task)
        broadcast = phase.server.check_out(server)
        return jax.lax.map(
            lambda event: self._device_side(data, inputs, replica, broadcast, phase.begin(), event)[0], devices
        )

    def fold(self, replicas: Replicas, carry: Carry, check_ins: Tree, staleness: Array) -> Carry:
        """Absorb the check-ins of a round in order, and commit."""
        replica, server = jax.tree.map(lambda leaf: leaf[0], (replicas, carry.server))
        phase = self._phase(replica.hyper)

        def absorb(index: Array, server: Tree) -> Tree:
            check_in = jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), check_ins)
            return phase.server.absorb(server, phase.server.row(), check_in, staleness[index])[0]

        server, _ = phase.server.commit(jax.lax.fori_loop(0, len(staleness), absorb, server))
        return dataclasses.replace(carry, server=jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], server))

    def _absorb(self, hyper: Hyper, server: Tree, row: Tree, check_in: Tree, staleness: Array) -> tuple[Tree, Tree]:
        return self._phase(hyper).server.absorb(server, row, check_in, staleness)

    def _commit(self, hyper: Hyper, server: Tree, event: Events) -> Tree:
        def commit(server: Tree) -> Tree:
            return _by_replica(lambda numbers, state: self._phase(numbers).server.commit(state)[0])(hyper, server)

        if isinstance(event.commits, tuple):
            return commit(server)
        # Replicas run one by one here, so the condition is a single one and only one branch is ever run.
        return jax.lax.cond(event.commits[0] > 0, commit, lambda state: state, server)

    def _stop(self, before: Carry, after: Carry, version: Array) -> Carry:
        """Keep the state of the first version that meets `error-below`."""
        stop = self.task.stop
        assert stop.error_below is not None  # noqa: S101  the caller asked
        met = is_low(self._phase().server.report(after.server).counts, stop.error_below, stop.error_rows)
        running = before.stopped < 0

        def kept(old: Array, new: Array) -> Array:
            return jnp.where(running.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        # A stopped replica goes on writing to its tables what it wrote before.
        return dataclasses.replace(
            after,
            server=jax.tree.map(kept, before.server, after.server),
            pending=jax.tree.map(kept, before.pending, after.pending),
            stopped=jnp.where(running & met, version, before.stopped),
        )


def writes_out(task: Task, width: int, per_commit: int) -> bool:
    """Tell whether the products of a check-in of so many rows are written out, so that the loop needs no library.

    Not in rounds: there a device's work may be done outside the loop, and is to have the same bits.
    """
    model = task.model_for(JAX)
    gradients = all(isinstance(phase.device, Gradient) for phase in task.built.phases)
    return per_commit == 1 and gradients and model.linear and is_small(model.loss.width, model.features, width)


def _by_replica(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have a function work on every replica; a single replica loses its axis, which would cost copies inside loops."""

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
    return jax.lax.cond(never, lambda given: jax.tree.map(lambda leaf: leaf + leaf, given), lambda given: given, tree)
