"""admm-sums: its fixed point, what a message is, and that duals never see noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crowdml.core import NUMPY, Broadcast, CheckIn, trees
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.task import parse
from tests.support.consensus import ALL, BASE, HALVES, SEED, UNEQUAL, batches, central, learnt
from tests.support.phases import stepped
from tests.support.plans import update_of

TASK = BASE.replace("KIND", "admm-sums")
SOUND = (
    "privacy={ mode = 'sound', unit = 'device', mechanism = 'gaussian', clip = 8.0, epsilon = 900.0, delta = 1e-5 }",
    "stop.max-releases=40",
)


def test_the_common_model_becomes_the_centralised_one() -> None:
    task = parse(TASK)
    server, _ = learnt(task, ALL)
    assert np.abs(server.parameters[0]["w"] - central(task)).max() < 2e-3
    assert np.abs(central(task)).max() > 2


@pytest.mark.parametrize(
    ("groups", "heard"),
    [(ALL, (1, 1, 1, 1)), (HALVES, (1, 1, 1, 1)), (UNEQUAL, (2, 1, 1, 1))],
    ids=["all", "halves", "unequal"],
)
def test_in_sound_mode_a_device_counts_as_often_as_it_is_heard(groups: list[list[int]], heard: tuple[int, ...]) -> None:
    """Without noise here; rounding to the grid is left, an eighth on each number, and a mean of versions."""
    task = parse(TASK, changes=[*SOUND, "algorithm.average-from=30"])
    server, _ = learnt(task, groups, noise=False)
    assert np.abs(server.tail.mean[0]["w"] - central(task, heard)).max() < 0.15


def test_a_message_is_local_model_plus_dual_relative_to_the_version() -> None:
    task = parse(TASK, changes=list(SOUND))
    phase, grid = task.build(NUMPY).last, update_of(task.calibrated).grid
    w0 = ({"w": np.full((1, 6), 0.3, np.float32)},)
    begun = phase.begin()
    device = replace(begun, work=replace(begun.work, dual=({"w": np.full((1, 6), 0.2, np.float32)},)))
    release, after = stepped(phase, Broadcast(parameters=w0), batches()[0], HashCoins(SEED, 1, NUMPY), device)
    said, local, dual = release.update[0]["w"] * grid.step, after.work.local[0]["w"], after.work.dual[0]["w"]
    np.testing.assert_allclose(said, local + dual - w0[0]["w"], atol=1.01 * grid.step)
    np.testing.assert_allclose(dual, 0.2 + local - 0.3, atol=1e-5)


def test_a_long_message_is_clipped_as_a_whole() -> None:
    task = parse(TASK, changes=[SOUND[0].replace("clip = 8.0", "clip = 0.1"), SOUND[1]])
    phase = task.build(NUMPY).last
    begun = Broadcast(parameters=task.model_for(NUMPY).zeros())
    release, _ = stepped(phase, begun, batches()[0], HashCoins(SEED, 1, NUMPY))
    assert int((release.update[0]["w"].astype(int) ** 2).sum()) <= update_of(task.calibrated).grid.limit


def test_states_depend_on_noise_through_public_versions_only() -> None:
    """One round with other coins: the server sees another sum, the devices remember the same."""
    task = parse(TASK, changes=list(SOUND))
    (one, first), (other, second) = (learnt(task, [[0, 1, 2, 3]], trial_seed(seed, 0)) for seed in (1, 2))
    assert np.abs(one.parameters[0]["w"] - other.parameters[0]["w"]).max() > 0
    for mine, yours in zip(first, second, strict=True):
        np.testing.assert_array_equal(mine.work.dual[0]["w"], yours.work.dual[0]["w"])


def test_a_sum_of_devices_that_began_with_different_versions_is_what_each_of_them_says() -> None:
    phase = parse(TASK, changes=SOUND).build(NUMPY).last
    part = phase.server
    server, heard = part.init(HashCoins(SEED, 0, NUMPY)), []
    for version in range(3):
        for at, batch in enumerate(batches()):
            coins = HashCoins(SEED, 1 + 10 * version + at, NUMPY)
            check_in, _ = phase.contribute(part.check_out(server), phase.begin(), batch, coins)
            heard.append((2 - version, check_in))
            server, _ = part.absorb(server, (), check_in, np.int32(0))
        if version < 2:
            server, _ = part.commit(server)
    empty = part.init(HashCoins(SEED, 0, NUMPY))
    begun = replace(server, window=empty.window, heard=empty.heard)
    each = begun
    chosen = [heard[0], heard[5], heard[11]]
    for stale, check_in in chosen:
        each, _ = part.absorb(each, (), check_in, np.int32(stale))
    added = trees.map(lambda *leaves: sum(leaves), *(check_in.update for _, check_in in chosen))
    total = CheckIn(update=added, weight=np.int32(3))
    summed, _ = part.absorb(begun, (), total, np.array([stale for stale, _ in chosen], np.int32))
    assert [stale for stale, _ in chosen] == [2, 1, 0]
    windows = ((state.window, state.heard) for state in (summed, each))
    for one, other in zip(*map(trees.leaves, windows), strict=True):
        assert np.allclose(one, other, rtol=1e-5, atol=1e-5)
