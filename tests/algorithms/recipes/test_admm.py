"""admm: its fixed point, what a sound message is, and that duals never see noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import Counts, Task, parse
from crowdml.algorithms.prox import Pull, local_solver
from crowdml.core import NUMPY, Batch, trees
from crowdml.privacy.promise import classical_scale
from crowdml.privacy.reporting import paper_figure
from crowdml.simulation.coins import HashCoins, trial_seed

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
kind = "admm"
rho = 0.5
beta = 1.0
barrier = 4
newton-steps = 6
[privacy]
mode = "none"
[crowd]
devices = 4
"""
SOUND = (
    "privacy={ mode = 'sound', unit = 'device', mechanism = 'gaussian', clip = 8.0, epsilon = 900.0, delta = 1e-5 }",
    "stop.max-releases=40",
)
SEED = trial_seed(1, 0)


def batches() -> list[Batch]:
    rng = np.random.default_rng(0)
    made = []
    for _ in range(4):
        rows = rng.standard_normal((20, 6)).astype(np.float32)
        rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
        labels = (rows[:, 0] + 0.3 * rng.standard_normal(20) > 0).astype(np.int32)
        made.append(Batch(rows=rows, labels=labels, mask=np.ones(20, np.float32)))
    return made


def central(task: Task, heard: tuple[int, ...] = (1, 1, 1, 1)) -> Any:
    """All rows together: the same problem, where β takes ρ's place and the centre is zero.

    Where devices are heard unequally often, each counts as often as it is heard, relative to one that is heard once.
    """
    model, own = task.model_for(NUMPY), batches()
    pooled = Batch(
        rows=np.concatenate([one.rows for one in own]),
        labels=np.concatenate([one.labels for one in own]),
        mask=np.concatenate([one.mask * times for one, times in zip(own, heard, strict=True)]),
    )
    pull = Pull(rho=task.algorithm.beta * sum(heard) / len(heard), decay=0.0, steps=30)
    return local_solver(model, NUMPY)(model.zeros(), model.zeros(), pooled, pull)[0]["w"]


def learnt(task: Task, groups: list[list[int]], seed: Any = SEED, noise: bool = True) -> tuple[Any, list[Any]]:
    """Let groups of devices check in, each group a version; return the server's state and the devices'."""
    algorithm, own = task.build(NUMPY), batches()
    server = algorithm.init(HashCoins(seed, 0, NUMPY))
    devices, read = [algorithm.device_init() for _ in own], [(0, algorithm.check_out(server)) for _ in own]
    for version, group in enumerate(groups):
        for device in group:
            coins = HashCoins(seed, 10 * version + device + 1, NUMPY)
            release, devices[device] = algorithm.device_step(read[device][1], devices[device], own[device], coins)
            check_in = algorithm.sanitise(release, coins) if noise else release
            server, _ = algorithm.absorb(server, (), check_in, np.int32(version - read[device][0]))
        server, _ = algorithm.commit(server)
        for device in group:
            read[device] = (version + 1, algorithm.check_out(server))
    return server, devices


ALL, HALVES, UNEQUAL = [[0, 1, 2, 3]] * 60, [[0, 1], [2, 3]] * 60, [[0, 1, 2], [3, 0]] * 60


@pytest.mark.parametrize("groups", [ALL, HALVES, UNEQUAL], ids=["all", "halves", "unequal"])
def test_the_common_model_becomes_the_centralised_one(groups: list[list[int]]) -> None:
    """With everybody in a version, and with some who start from old ones."""
    task = parse(BASE)
    server, _ = learnt(task, groups)
    assert np.abs(server["parameters"][0]["w"] - central(task)).max() < 2e-3
    assert np.abs(central(task)).max() > 2


@pytest.mark.parametrize(
    ("groups", "heard"),
    [(ALL, (1, 1, 1, 1)), (HALVES, (1, 1, 1, 1)), (UNEQUAL, (2, 1, 1, 1))],
    ids=["all", "halves", "unequal"],
)
def test_in_sound_mode_a_device_counts_as_often_as_it_is_heard(groups: list[list[int]], heard: tuple[int, ...]) -> None:
    """Without noise here; rounding to the grid is left, an eighth on each number, and a mean of versions."""
    task = parse(BASE, changes=[*SOUND, "algorithm.average-from=30"])
    server, _ = learnt(task, groups, noise=False)
    assert np.abs(server["tail"]["mean"][0]["w"] - central(task, heard)).max() < 0.15


def test_a_sound_message_is_local_model_plus_dual_relative_to_the_version() -> None:
    task = parse(BASE, changes=list(SOUND))
    algorithm, batch = task.build(NUMPY), batches()[0]
    sound = task.plan(task.model_for(NUMPY)).sound
    assert sound is not None
    w0 = ({"w": np.full((1, 6), 0.3, np.float32)},)
    device = {"local": task.model_for(NUMPY).zeros(), "dual": ({"w": np.full((1, 6), 0.2, np.float32)},)}
    release, after = algorithm.device_step(w0, device, batch, HashCoins(SEED, 1, NUMPY))
    told = release["change"][0]["w"] * sound.update.grid.step
    np.testing.assert_allclose(
        told, after["local"][0]["w"] + after["dual"][0]["w"] - w0[0]["w"], atol=1.01 * sound.update.grid.step
    )
    np.testing.assert_allclose(after["dual"][0]["w"], 0.2 + after["local"][0]["w"] - 0.3, atol=1e-5)


def test_a_long_message_is_clipped_as_a_whole() -> None:
    task = parse(BASE, changes=[SOUND[0].replace("clip = 8.0", "clip = 0.1"), SOUND[1]])
    sound = task.plan(task.model_for(NUMPY)).sound
    assert sound is not None
    release, _ = task.build(NUMPY).device_step(
        task.model_for(NUMPY).zeros(), task.build(NUMPY).device_init(), batches()[0], HashCoins(SEED, 1, NUMPY)
    )
    assert int((release["change"][0]["w"].astype(int) ** 2).sum()) <= sound.update.grid.limit


def test_in_sound_mode_states_depend_on_noise_through_public_versions_only() -> None:
    """One round with other coins: the server sees another sum, the devices remember the same."""
    task = parse(BASE, changes=list(SOUND))
    (one, first), (other, second) = (learnt(task, [[0, 1, 2, 3]], trial_seed(seed, 0)) for seed in (1, 2))
    assert np.abs(one["parameters"][0]["w"] - other["parameters"][0]["w"]).max() > 0
    for mine, yours in zip(first, second, strict=True):
        np.testing.assert_array_equal(mine["dual"][0]["w"], yours["dual"][0]["w"])


def test_paper_mode_has_the_papers_noise_and_its_honest_sum() -> None:
    """20 iterations at (0.1, 1e-3) with noise 37.8 times 2/ρ add up to 0.242, and to 0.410 at 1e-5."""
    terms = "privacy={ mode = 'paper', mechanism = 'gaussian', epsilon = 0.1, delta = 1e-3 }"
    plan = parse(BASE, changes=[terms]).plan(parse(BASE).model_for(NUMPY))
    assert plan.gradient is not None
    assert plan.gradient.noise == pytest.approx(classical_scale(0.1, 1e-3) * 2 / 0.5, rel=1e-6)
    assert paper_figure(plan, 20).epsilon == pytest.approx(0.242, abs=1e-3)


def test_the_barrier_asks_for_enough_and_for_the_silent() -> None:
    ready = parse(BASE, changes=["algorithm.barrier=2", "algorithm.max-delay=3"]).build(NUMPY).ready
    assert ready(Counts(received=2, version=5, longest=1))
    assert not ready(Counts(received=1, version=5, longest=0))
    assert not ready(Counts(received=3, version=5, longest=2))


def test_a_sum_of_devices_that_began_with_different_versions_is_what_each_of_them_says() -> None:
    algorithm = parse(BASE, changes=SOUND).build(NUMPY)
    server, heard = algorithm.init(HashCoins(SEED, 0, NUMPY)), []
    for version in range(3):
        for at, batch in enumerate(batches()):
            coins = HashCoins(SEED, 1 + 10 * version + at, NUMPY)
            release, _ = algorithm.device_step(algorithm.check_out(server), algorithm.device_init(), batch, coins)
            heard.append((2 - version, algorithm.sanitise(release, coins)))
            server, _ = algorithm.absorb(server, (), heard[-1][1], np.int32(0))
        if version < 2:
            server, _ = algorithm.commit(server)
    begun = server | {"window": algorithm.init(HashCoins(SEED, 0, NUMPY))["window"]}
    each = begun
    chosen = [heard[0], heard[5], heard[11]]
    for stale, check_in in chosen:
        each, _ = algorithm.absorb(each, (), check_in, np.int32(stale))
    total = {
        "change": trees.map(lambda *leaves: sum(leaves), *(own["change"] for _, own in chosen)),
        "weight": np.int32(3),
    }
    together, _ = algorithm.absorb(begun, (), total, np.array([stale for stale, _ in chosen], np.int32))
    assert [stale for stale, _ in chosen] == [2, 1, 0]
    for one, other in zip(trees.leaves(together["window"]), trees.leaves(each["window"]), strict=True):
        assert np.allclose(one, other, rtol=1e-5, atol=1e-5)
