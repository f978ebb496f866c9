"""Squares of rows: NumPy and compiled code agree, and so do they with plain formulas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from crowdml.core import NUMPY, Batch, Broadcast, Ops, trees
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.engine.jax_ops import JAX
from crowdml.task import Task, parse
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
        made.append(Batch(rows=rows, targets=labels, mask=(np.arange(50) < size).astype(np.float32)))
    return made


def learnt(task: Task, ops: Ops, rounds: int) -> Any:
    algorithm = task.build(ops)
    server = algorithm.last.server.init(HashCoins(SEED, 0, ops))
    for version in range(rounds):
        phase = algorithm.at(version)
        for number, batch in enumerate(batches()):
            coins = HashCoins(SEED, 10 * version + number + 1, ops)
            check_in, _ = phase.contribute(phase.server.check_out(server), phase.begin(), batch, coins)
            server, _ = phase.server.absorb(server, (), check_in, ops.xp.int32(0))
        server, _ = phase.server.commit(server)
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
    x = np.concatenate([one.rows[one.mask > 0] for one in batches()]).astype(float)
    y = 2.0 * np.concatenate([one.targets[one.mask > 0] for one in batches()]) - 1
    exact = np.linalg.solve(x.T @ x + 1e-3 * len(x) * np.eye(6), x.T @ y)
    found = learnt(parse(BASE, changes=[NONE]), NUMPY, 1).parameters[0]["w"][0]
    np.testing.assert_allclose(found, exact, rtol=1e-4)
    loud = learnt(parse(BASE, changes=["privacy.epsilon=1000.0"]), NUMPY, 1).parameters[0]["w"][0]
    assert np.abs(loud - exact).max() < 0.05


@pytest.mark.parametrize(("bias", "longest", "constant"), [("true", 1.0, 0.4), ("false", 1.5, 0.0)])
def test_rows_that_are_cut_on_the_grid_ask_for_the_same_model(bias: str, longest: float, constant: float) -> None:
    """With a constant every row is longer than 1, and is cut with its target: what lies on a plane stays there."""
    number = "data={ features = 6, target = { name = 'y', low = -1.0, high = 1.0 } }"
    model = f"model={{ kind = 'linear', bias = {bias} }}"
    algorithm = parse(BASE, changes=[number, model, "privacy.epsilon=1000.0"]).build(NUMPY)
    plane = np.array([0.3, -0.2, 0.1, 0.0, 0.2, -0.1], np.float32)
    phase = algorithm.last
    server = phase.server.init(HashCoins(SEED, 0, NUMPY))
    for at, batch in enumerate(batches()):
        rows = longest * batch.rows
        given, coins = replace(batch, rows=rows, targets=rows @ plane + constant), HashCoins(SEED, at + 1, NUMPY)
        check_in, _ = phase.contribute(phase.server.check_out(server), phase.begin(), given, coins)
        server, _ = phase.server.absorb(server, (), check_in, np.int32(0))
    (found,) = phase.server.commit(server)[0].parameters
    np.testing.assert_allclose(found["w"][0], plane, atol=0.03)
    np.testing.assert_allclose(found.get("b", constant), constant, atol=0.01)


def test_messages_are_integers_and_say_how_many_rows() -> None:
    task = parse(BASE, changes=list(NEWTON))
    first = task.build(NUMPY).phases[0]
    begun = Broadcast(parameters=task.model_for(NUMPY).zeros())
    release, device = stepped(first, begun, batches()[0], HashCoins(SEED, 1, NUMPY))
    assert release.update.dtype == np.int32 and release.update.shape == (21,) and int(release.rows) == 40
    sent, _ = first.finish(begun, release, device, HashCoins(SEED, 1, NUMPY))
    assert sent.update.dtype == np.int32 and (sent.update != release.update).all() and int(sent.weight) == 40
