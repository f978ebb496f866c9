"""The step-by-step driver: the same functions in a plain loop, every message through bytes.

Nothing is compiled, so a breakpoint works anywhere, and an error says in which stage of which check-in it happened.
It is the slow twin of the compiled driver: both must give the same parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from crowdml.algorithms import Algorithm
from crowdml.core import NUMPY, Batch, record
from crowdml.core.ops import Tree
from crowdml.data import Dataset
from crowdml.protocol import layouts, message
from crowdml.simulation.coins import HashCoins
from crowdml.simulation.timeline import Timeline


@record
class Ended:
    """What a trial ends with: the server's state, what it keeps for each device, and the devices' own states."""

    server: Tree
    rows: dict[int, Tree]
    devices: dict[int, Tree]


def run_stepwise(
    algorithm: Algorithm,
    timeline: Timeline,
    dataset: Dataset,
    seed: Any,
    after_commit: Callable[[int, Tree, Tree], None] | None = None,
    owners: Sequence[Algorithm] = (),
) -> Ended:
    """Drive one trial with NumPy.

    Args:
        algorithm: Built for NumPy.
        timeline: The course of the trial.
        dataset: Rows after transforms.
        seed: The two words of the trial's coins.
        after_commit: Called with version, server state and measurements after each commit.
        owners: What devices run whose owners have chosen an ε of their own, for each of the choices.
    """
    server = algorithm.init(HashCoins(seed, 0, NUMPY))
    devices: dict[int, Tree] = {}
    rows: dict[int, Tree] = {}
    sent: dict[int, bytes] = {}
    wires: dict[bool, Any] = {}
    version, oldest = 0, int(timeline.staleness.max(initial=0))
    for number in range(len(timeline)):
        slot, stale = int(timeline.device[number]), int(timeline.staleness[number])
        coins = HashCoins(seed, number + 1, NUMPY)
        batch = _batch(algorithm, dataset, timeline, number, seed)
        with _Stage("check_out", number, slot):
            broadcast = algorithm.check_out(server)
            now = algorithm.at(version)
            if (wire := wires.get(now is algorithm)) is None:
                wire = wires[now is algorithm] = layouts(broadcast, _example(now, broadcast, batch, coins))
            sent[version] = wire.check_out.encode(message(version, broadcast))
            sent.pop(version - oldest - 1, None)
            checked_out = wire.check_out.decode(sent[version - stale])["content"]
        own = owners[timeline.chosen[number]] if owners else now
        with _Stage("device_step", number, slot):
            device = devices.get(slot, own.device_init())
            release, devices[slot] = own.device_step(checked_out, device, batch, coins)
        with _Stage("sanitise", number, slot):
            body = wire.check_in.encode(message(version - stale, own.sanitise(release, coins)))
        with _Stage("absorb", number, slot):
            check_in = wire.check_in.decode(body)["content"]
            if algorithm.attack:
                check_in = algorithm.attack.forge(check_in, timeline.lies[number], coins)
            server, rows[slot] = now.absorb(server, rows.get(slot, algorithm.row_init()), check_in, np.int32(stale))
        if timeline.commits[number]:
            with _Stage("commit", number, slot):
                server, measurements = now.commit(server)
            version += 1
            if after_commit:
                after_commit(version, server, measurements)
    return Ended(server=server, rows=rows, devices=devices)


def _batch(algorithm: Algorithm, dataset: Dataset, timeline: Timeline, number: int, seed: Any) -> Batch:
    chosen = timeline.rows[number]
    rows, labels = dataset.train_rows[chosen], dataset.train_labels[chosen]
    if algorithm.perturb:
        rows, labels = algorithm.perturb(rows, labels, HashCoins(seed, chosen, NUMPY))
    if algorithm.attack and algorithm.attack.labels and timeline.lies[number]:
        labels = algorithm.attack.labels(labels)
    return Batch(rows=rows, labels=labels, mask=(np.arange(len(chosen)) < timeline.counts[number]).astype(np.float32))


def _example(algorithm: Algorithm, broadcast: Tree, batch: Batch, coins: HashCoins) -> Tree:
    """Make one check-in, for its shape."""
    release, _ = algorithm.device_step(broadcast, algorithm.device_init(), batch, coins)
    return algorithm.sanitise(release, coins)


class _Stage:
    """Names stage, check-in and device in an error that passes through."""

    def __init__(self, name: str, number: int, slot: int) -> None:
        self.label = f"in {name} of check-in {number} by device {slot}"

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            error.add_note(self.label)
