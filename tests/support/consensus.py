"""Four devices that look for a common model, for tests of ADMM in both forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdml.algorithms.device_parts.local_solver import Pull, local_solver
from crowdml.core import NUMPY, Batch, DeviceState
from crowdml.core.ops import ZeroCoins
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.task import Task
from tests.support.phases import stepped

BASE = """
crowdml = 1
name = "two"
[data]
features = 6
labels = ["no", "yes"]
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "logistic"
[algorithm]
kind = "KIND"
rho = 0.5
beta = 1.0
barrier = 4
newton-steps = 6
[privacy]
mode = "none"
[crowd]
devices = 4
"""
SEED = trial_seed(1, 0)
ALL, HALVES, UNEQUAL = [[0, 1, 2, 3]] * 60, [[0, 1], [2, 3]] * 60, [[0, 1, 2], [3, 0]] * 60


def batches() -> list[Batch]:
    """Return the rows of each device."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(4):
        rows = rng.standard_normal((20, 6)).astype(np.float32)
        rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
        labels = (rows[:, 0] + 0.3 * rng.standard_normal(20) > 0).astype(np.int32)
        made.append(Batch(rows=rows, targets=labels, mask=np.ones(20, np.float32)))
    return made


def central(task: Task, heard: tuple[int, ...] = (1, 1, 1, 1)) -> Any:
    """Solve for all rows together: the same problem, where β takes ρ's place and the centre is zero.

    Where devices are heard unequally often, each counts as often as it is heard, relative to one that is heard once.
    """
    model, each = task.model_for(NUMPY), batches()
    pooled = Batch(
        rows=np.concatenate([one.rows for one in each]),
        targets=np.concatenate([one.targets for one in each]),
        mask=np.concatenate([one.mask * times for one, times in zip(each, heard, strict=True)]),
    )
    pull = Pull(rho=task.algorithm.beta * sum(heard) / len(heard), decay=0.0, steps=30)
    return local_solver(model, NUMPY)(model.zeros(), model.zeros(), pooled, pull)[0]["w"]


def learnt(task: Task, groups: list[list[int]], seed: Any = SEED, noise: bool = True) -> tuple[Any, list[DeviceState]]:
    """Let groups of devices check in, each group a version; return the server's state and the devices'."""
    phase, each = task.build(NUMPY).last, batches()
    server = phase.server.init(HashCoins(seed, 0, NUMPY))
    devices, read = [phase.begin() for _ in each], [(0, phase.server.check_out(server)) for _ in each]
    for version, group in enumerate(groups):
        for at in group:
            coins = HashCoins(seed, 10 * version + at + 1, NUMPY)
            began, broadcast = read[at]
            release, after = stepped(phase, broadcast, each[at], coins, devices[at])
            check_in, devices[at] = phase.finish(broadcast, release, after, coins if noise else ZeroCoins())
            server, _ = phase.server.absorb(server, (), check_in, np.int32(version - began))
        server, _ = phase.server.commit(server)
        for at in group:
            read[at] = (version + 1, phase.server.check_out(server))
    return server, devices
