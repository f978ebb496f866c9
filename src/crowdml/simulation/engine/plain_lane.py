"""Plain lane: replicas in a NumPy loop, for runs so short that starting JAX and compiling would take most of the time.

The same functions, timeline and coins as in compiled code; sums are made in another order, so numbers agree to about
1e-5 and not in every bit (`tests/parity`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdml.algorithms import Phase
from crowdml.algorithms.device_parts.gradient import estimated_error, is_low
from crowdml.core import NUMPY, Array, Batch, DeviceState, trees
from crowdml.core.blas_threads import one_blas_thread
from crowdml.core.ops import Tree
from crowdml.simulation.attacked import attack_of, attacked, forge
from crowdml.simulation.engine.data_tables import DataTables
from crowdml.simulation.engine.hash_coins import HashCoins
from crowdml.simulation.engine.run_records import MEASURED_DEVICES, Carry, Events, Replicas, Shape
from crowdml.simulation.prepare import measured_loss
from crowdml.task import Task


class PlainLane:
    """Runs chunk after chunk.

    Args:
        task: The task; its hyper-parameters are those of the replicas.
        tables: Rows and targets, whole.
        replicas: Hyper-parameters and seeds.
        shape: How many versions are kept, and how many check-ins make a commit.
    """

    def __init__(self, task: Task, tables: DataTables, replicas: Replicas, shape: Shape) -> None:
        self.compile_seconds = 0.0
        self.replicas = [
            _Replica(task, tables, trees.map(lambda leaf, at=at: leaf[at], replicas), shape)
            for at in range(len(replicas.seeds))
        ]

    def run(self, events: Events, counts: Array, phase: int) -> tuple[dict[str, Any], bool]:
        """Run a chunk; return the measurements after it, and whether every replica has met `error-below`."""
        with one_blas_thread():
            for at, replica in enumerate(self.replicas):
                replica.run(trees.map(lambda leaf, at=at: leaf[at], events), int(counts[at]), phase)
            found = [replica.measure() for replica in self.replicas]
        measured = {name: np.array([errors[name] for errors in found], np.float64) for name in found[0]}
        return measured, all(replica.stopped >= 0 for replica in self.replicas)

    def end(self) -> Carry:
        """Return the last state."""
        return trees.map(lambda *leaves: np.stack(leaves), *[replica.end() for replica in self.replicas])  # type: ignore[no-any-return]

    def close(self, *, interrupted: bool) -> None:
        """Nothing is held that others need."""


class _Replica:
    """One trial of one cell: what its server, its devices and its past hold."""

    def __init__(self, task: Task, tables: DataTables, replica: Replicas, shape: Shape) -> None:
        self.task, self.tables, self.replica, self.shape = task, tables, replica, shape
        self.attack = attack_of(task, NUMPY)
        self.phases: dict[int, tuple[Phase, ...]] = {}
        self.server: Tree = self._phases()[-1].server.init(HashCoins(replica.seeds, 0, NUMPY))
        self.rows: dict[int, Tree] = {}
        self.devices: dict[int, DeviceState] = {}
        self.past: dict[int, Tree] = {}
        self.stopped = -1

    def _phases(self, chosen: int = -1) -> tuple[Phase, ...]:
        """Return the algorithm's phases, with the scales of the ε that a device's owner has chosen."""
        if chosen not in self.phases:
            scales = {} if chosen < 0 else {name: of[chosen] for name, of in self.replica.scales.items()}
            built = self.task.build(NUMPY, dict(self.replica.hyper) | scales)
            self.phases[chosen] = attacked(built, self.attack, NUMPY).phases
        return self.phases[chosen]

    def run(self, events: Events, count: int, number: int) -> None:
        phase = self._phases()[number]
        for at in range(count):
            if self.stopped >= 0:
                return
            version = int(events.version[at])
            self._check_in(events, at, phase, number, version)
            every = self.shape.per_commit
            if (at + 1) % every == 0 if every else events.commits[at] > 0:
                self.server, _ = phase.server.commit(self.server)
                stop = self.task.stop
                if stop.error_below and is_low(
                    phase.server.report(self.server).counts, stop.error_below, stop.error_rows
                ):
                    self.stopped = version + 1

    def _check_in(self, events: Events, at: int, phase: Phase, number: int, version: int) -> None:
        slot, stale = int(events.device[at]), int(events.staleness[at])
        broadcast = phase.server.check_out(self.server)
        if self.shape.ring:
            self.past[version % self.shape.ring] = broadcast
            broadcast = self.past[(version - stale) % self.shape.ring]
        chosen_phase = phase if isinstance(events.chosen, tuple) else self._phases(int(events.chosen[at]))[number]
        lies = not isinstance(events.lies, tuple) and events.lies[at] > 0
        chosen = events.rows[at]
        rows, targets = self.tables.rows["whole"][chosen], self.tables.targets[chosen]
        rows, targets = chosen_phase.sanitiser.rows(rows, targets, HashCoins(self.replica.seeds, chosen, NUMPY))
        if lies and self.attack and self.attack.targets:
            targets = self.attack.targets(targets)
        real = len(chosen) if isinstance(events.counts, tuple) else int(events.counts[at])
        batch = Batch(rows=rows, targets=targets, mask=(np.arange(len(chosen)) < real).astype(np.float32))
        coins = HashCoins(self.replica.seeds, int(events.number[at]), NUMPY)
        device = self.devices.get(slot) or chosen_phase.begin()
        release, work = chosen_phase.device.step(broadcast, device.work, batch, coins)
        check_in, self.devices[slot] = chosen_phase.finish(
            broadcast, release, DeviceState(work=work, noise=device.noise), coins
        )
        if self.attack:
            check_in = forge(self.attack, check_in, lies, coins)  # type: ignore[assignment]
        row = self.rows[slot] if slot in self.rows else phase.server.row()
        self.server, self.rows[slot] = phase.server.absorb(self.server, row, check_in, np.int32(stale))

    def measure(self) -> dict[str, float]:
        phase = self._phases()[-1]
        if self.task.releases.alone:
            devices = self.task.crowd.devices
            some = np.linspace(0, devices - 1, min(devices, MEASURED_DEVICES)).astype(int).tolist()
            each = [self._errors(phase.device.model(self._device(slot).work)) for slot in some]
            return {name: float(np.mean([errors[name] for errors in each])) for name in each[0]}
        report = phase.server.report(self.server)
        found = self._errors(report.parameters)
        if report.counts:
            found["estimated_error"] = float(estimated_error(report.counts, NUMPY))
        return found

    def _errors(self, parameters: Tree) -> dict[str, float]:
        tables, model = self.tables, self.task.model_for(NUMPY)
        split = {name: (tables.rows["whole"][at], tables.targets[at]) for name, at in self.replica.measured.items()}
        found: dict[str, float] = {}
        for of, (rows, targets) in (split or tables.measured).items():
            measures = self.task.target.measures(model.predict(parameters, rows), targets, NUMPY, of)
            measures |= measured_loss(self.task, model, parameters, rows, targets, of)
            found |= {name: float(value) for name, value in measures.items()}
        return found

    def _device(self, slot: int) -> DeviceState:
        return self.devices.get(slot) or self._phases()[-1].begin()

    def end(self) -> Carry:
        phase, devices = self._phases()[-1], range(self.task.crowd.devices)
        each = [(self.rows[slot] if slot in self.rows else phase.server.row(), self._device(slot)) for slot in devices]
        return Carry(
            server=trees.map(np.asarray, self.server),
            past=(),
            tables=trees.map(lambda *leaves: np.stack(leaves), *each),
            pending=(),
            stopped=np.int32(self.stopped) if self.task.stop.error_below else (),
        )
