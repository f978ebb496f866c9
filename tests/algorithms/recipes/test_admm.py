"""admm: its fixed point, its noise, and whom the server waits for."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.algorithms import Counts
from crowdml.core import NUMPY, BadInput, Batch, Release
from crowdml.privacy.promise import classical_scale
from crowdml.simulation.engine.hash_coins import HashCoins
from crowdml.task import parse
from tests.support.consensus import ALL, BASE, HALVES, SEED, UNEQUAL, batches, central, learnt
from tests.support.phases import stepped
from tests.support.plans import paper_of

TASK = BASE.replace("KIND", "admm")
PAPER = "privacy={ mode = 'paper', mechanism = 'gaussian', epsilon = 0.1, delta = 1e-3 }"


@pytest.mark.parametrize("groups", [ALL, HALVES, UNEQUAL], ids=["all", "halves", "unequal"])
def test_the_common_model_becomes_the_centralised_one(groups: list[list[int]]) -> None:
    """With everybody in a version, and with some who start from old ones."""
    task = parse(TASK)
    server, _ = learnt(task, groups)
    assert np.abs(server.parameters[0]["w"] - central(task)).max() < 2e-3
    assert np.abs(central(task)).max() > 2


def test_paper_mode_has_the_papers_noise_and_its_honest_sum() -> None:
    """20 iterations at (0.1, 1e-3) with noise 37.8 times 2/ρ add up to 0.242, and to 0.410 at 1e-5."""
    plan = parse(TASK, changes=[PAPER]).calibrated
    assert paper_of(plan).noise == pytest.approx(classical_scale(0.1, 1e-3) * 2 / 0.5, rel=1e-6)
    added = plan.figure(20)
    assert added is not None and added.epsilon == pytest.approx(0.242, abs=1e-3)


def test_a_message_says_by_how_much_local_model_and_dual_have_changed() -> None:
    """Both are made of the noisy local model alone: so the noise is in what is sent and in what is remembered."""
    phase, batch = parse(TASK, changes=[PAPER]).build(NUMPY).last, batches()[0]
    server = phase.server.init(HashCoins(SEED, 0, NUMPY))
    broadcast, device = phase.server.check_out(server), phase.begin()
    for number in (1, 2):
        before, coins = device.work, HashCoins(SEED, number, NUMPY)
        release, after = stepped(phase, broadcast, batch, coins, device)
        check_in, device = phase.finish(broadcast, release, after, coins)
        noisy, plain = device.work.sent[0]["w"], release.update[0]["w"]
        assert np.abs(noisy - plain).min() > 0
        np.testing.assert_array_equal(device.work.local[0]["w"], plain)
        apart = noisy - broadcast.parameters[0]["w"]
        np.testing.assert_allclose(device.work.dual[0]["w"], before.dual[0]["w"] + apart, rtol=1e-6)
        np.testing.assert_allclose(check_in.update[0]["w"], noisy - before.sent[0]["w"] + apart, rtol=1e-5, atol=1e-4)


def test_the_barrier_asks_for_enough_and_for_the_silent() -> None:
    schedule = parse(TASK, changes=["algorithm.barrier=2", "algorithm.max-delay=3"]).build(NUMPY).schedule
    assert schedule.ready(Counts(received=2, version=5, longest=1))
    assert not schedule.ready(Counts(received=1, version=5, longest=0))
    assert not schedule.ready(Counts(received=3, version=5, longest=2))


def test_promises_need_the_form_made_for_sums() -> None:
    sound = (
        "privacy={ mode = 'sound', unit = 'device', mechanism = 'gaussian', clip = 8.0, epsilon = 9.0, delta = 1e-5 }"
    )
    with pytest.raises(BadInput, match="nothing it sends is on the grid") as caught:
        parse(TASK, changes=[sound, "stop.max-releases=40"])
    assert "privacy.mode" in caught.value.where and '"admm-sums"' in caught.value.hint
    parse(TASK, changes=[sound, "stop.max-releases=40", "algorithm.kind=admm-sums"])


def test_fewer_honest_devices_make_each_add_more_noise() -> None:
    """N(0, σ²/(γ·s)): with half of them honest each adds √2 times as much, and the honest have σ² together."""
    release = Release(update=parse(TASK).build(NUMPY).last.sanitiser.use.like(), rows=np.int32(1))
    scales = []
    for honest in (1.0, 0.5):
        sanitiser = parse(TASK, changes=[PAPER, f"algorithm.honest={honest}"]).build(NUMPY).last.sanitiser
        scales.append(float(sanitiser.scale_of(release)))  # type: ignore[attr-defined]
    assert scales[1] == pytest.approx(2**0.5 * scales[0], rel=1e-6)
    with pytest.raises(BadInput, match="without noise nobody's share"):
        parse(TASK, changes=["algorithm.honest=0.5"])
    with pytest.raises(BadInput, match=r"secure-aggregation\.honest"):
        parse(TASK, changes=["algorithm.kind=admm-sums", "algorithm.honest=0.5"])


def test_a_number_is_fitted_as_ridge_regression_would() -> None:
    """Consensus over four devices comes to the solution of all rows in one place."""
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(40, 3)).astype(np.float32)
    targets = (rows @ np.array([0.3, -0.2, 0.1]) + 0.05 * generator.normal(size=40)).astype(np.float32)
    changes = [
        'data={ features = 3, target = { name = "y", low = -1.0, high = 1.0 } }',
        'model={ kind = "linear", bias = false }',
        "algorithm={ kind = 'admm', rho = 5.0, beta = 0.5, devices = 4 }",
        "crowd={ devices = 4 }",
    ]
    phase = parse(TASK, changes=changes).build(NUMPY).last
    coins = HashCoins(SEED, 0, NUMPY)
    server, devices = phase.server.init(coins), [phase.begin() for _ in range(4)]
    for _ in range(60):
        broadcast = phase.server.check_out(server)
        for at in range(4):
            part = slice(10 * at, 10 * at + 10)
            batch = Batch(rows=rows[part], targets=targets[part], mask=np.ones(10, np.float32))
            check_in, devices[at] = phase.contribute(broadcast, devices[at], batch, coins)
            server, _ = phase.server.absorb(server, (), check_in, np.int32(0))
        server, _ = phase.server.commit(server)
    expected = np.linalg.solve(rows.T @ rows + 0.5 * np.eye(3), rows.T @ targets)
    np.testing.assert_allclose(server.parameters[0]["w"][0], expected, atol=2e-3)
