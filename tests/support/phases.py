"""Short ways through an algorithm, for tests that look at one stage of it."""

from __future__ import annotations

from typing import Any

from crowdml.algorithms import Algorithm, Phase
from crowdml.core import Array, Batch, Broadcast, Coins, DeviceState, Release
from crowdml.core.ops import Tree


def stepped(
    phase: Phase, broadcast: Broadcast, batch: Batch, coins: Coins, device: DeviceState | None = None
) -> tuple[Release, DeviceState]:
    """Let a device work on a batch, without noise; a new device unless one is given."""
    device = phase.begin() if device is None else device
    release, work = phase.device.step(broadcast, device.work, batch, coins)
    return release, DeviceState(work=work, noise=device.noise)


def model_of(algorithm: Algorithm, server: Tree) -> Any:
    """Return the model that a server shows."""
    return algorithm.last.server.report(server).parameters


def one_version(phase: Phase, server: Tree, check_ins: list[Any], staleness: Array) -> Tree:
    """Fold check-ins in, each of a device that is not known yet, and make a version of them."""
    for check_in in check_ins:
        server, _row = phase.server.absorb(server, phase.server.row(), check_in, staleness)
    return phase.server.commit(server)[0]
