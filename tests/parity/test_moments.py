"""Squares of rows: NumPy and compiled code agree, and so do they with plain formulas."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from crowdml.algorithms import Task, parse
from crowdml.core import NUMPY, Batch, Ops, trees
from crowdml.simulation.coins import HashCoins, trial_seed
from crowdml.simulation.jax_ops import JAX

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
kind = "ridge"
per-round = 3
[privacy]
mechanism = "gaussian"
clip = 0.5
epsilon = 5.0
delta = 1e-5
max-uses = 1
[crowd]
devices = 3
"""
NEWTON = ("algorithm={ kind = 'consensus-newton', per-round = 3 }", "privacy.max-uses=5")
NONE = "privacy={ mode = 'none' }"
SEED = trial_seed(1, 0)


def batches() -> list[Batch]:
    rng = np.random.default_rng(0)
    made = []
    for size in (40, 30, 50):
        rows = rng.standard_normal((50, 6)).astype(np.float32)
        rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
        labels = (rows[:, 0] + 0.3 * rng.standard_normal(50) > 0).astype(np.int32)
        made.append(Batch(rows=rows, labels=labels, mask=(np.arange(50) < size).astype(np.float32)))
    return made


def learnt(task: Task, ops: Ops, rounds: int) -> Any:
    algorithm = task.build(ops)
    server = algorithm.init(HashCoins(SEED, 0, ops))
    for version in range(rounds):
        now = algorithm.opening if algorithm.opening and version == 0 else algorithm
        for number, batch in enumerate(batches()):
            coins = HashCoins(SEED, 10 * version + number + 1, ops)
            release, _ = now.device_step(now.check_out(server), (), batch, coins)
            server, _ = now.absorb(server, (), now.sanitise(release, coins), ops.xp.int32(0))
        server, _ = now.commit(server)
    return server


@pytest.mark.parametrize("changes", [(), NEWTON, (NONE,), (*NEWTON, NONE)], ids=str)
def test_compiled_and_plain_servers_end_alike(changes: tuple[str, ...]) -> None:
    task = parse(BASE, changes=list(changes))
    rounds = 3 if "newton" in task.algorithm.kind else 1
    plain = learnt(task, NUMPY, rounds)
    compiled = jax.tree.map(np.asarray, jax.jit(lambda: learnt(task, JAX, rounds))())
    for (path, one), (_, other) in zip(trees.paths(plain), trees.paths(compiled), strict=True):
        # One level of a message may be rounded differently.
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3, err_msg=path)


def test_ridge_is_the_plain_formula_without_noise_and_nearly_so_on_the_grid() -> None:
    x = np.concatenate([own.rows[own.mask > 0] for own in batches()]).astype(float)
    y = 2.0 * np.concatenate([own.labels[own.mask > 0] for own in batches()]) - 1
    exact = np.linalg.solve(x.T @ x + 1e-3 * len(x) * np.eye(6), x.T @ y)
    found = learnt(parse(BASE, changes=[NONE]), NUMPY, 1)["parameters"][0]["w"][0]
    np.testing.assert_allclose(found, exact, rtol=1e-4)
    loud = learnt(parse(BASE, changes=["privacy.epsilon=1000.0"]), NUMPY, 1)["parameters"][0]["w"][0]
    assert np.abs(loud - exact).max() < 0.05


def test_messages_are_integers_and_say_how_many_rows() -> None:
    task = parse(BASE, changes=list(NEWTON))
    opening = task.build(NUMPY).opening
    assert opening is not None
    release, _ = opening.device_step(task.model_for(NUMPY).zeros(), (), batches()[0], HashCoins(SEED, 1, NUMPY))
    assert release["moments"].dtype == np.int32 and release["moments"].shape == (21,) and int(release["samples"]) == 40
    sent = opening.sanitise(release, HashCoins(SEED, 1, NUMPY))
    assert sent["moments"].dtype == np.int32 and (sent["moments"] != release["moments"]).all()
