"""Sound noise in local steps: what a row can change, what is kept from it, and an attack on real devices."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from crowdml.algorithms.device_parts.local_steps import LocalSteps
from crowdml.core import NUMPY, BadInput, Batch, Broadcast, trees
from crowdml.device.entropy_coins import DeviceCoins
from crowdml.privacy.gaussian import gaussian_delta_up
from crowdml.privacy.sanitisers.grid_steps import GridSteps, InTurn
from crowdml.simulation import simulate
from crowdml.task import Task, parse
from crowdml.task.live_task import require_live
from tests.privacy.test_sound_kept import FEATURES, MODELS, Given
from tests.support.pictures import PICTURES

TASK = f"""
crowdml = 1
name = "steps"
[data]
features = {FEATURES}
labels = ["a", "b"]
[model]
kind = "softmax"
[algorithm]
kind = "fedavg"
local-batch = 2
rate = {{ kind = "constant", c = 1.0 }}
[privacy]
mechanism = "gaussian"
noise-at = "steps"
epsilon = 2.0
delta = 1e-5
clip = 0.01
max-uses = 4
"""
LEARNING = f"""{PICTURES}
rate = {{ kind = "momentum", c = 0.3 }}
[privacy]
mechanism = "gaussian"
noise-at = "steps"
clip = 0.5
epsilon = 50.0
delta = 1e-5
max-uses = 3
[crowd]
devices = 2
passes = 3
curve = 3
"""


def task(*changes: str, file: str = TASK) -> Task:
    return parse(file, changes=list(changes))


def walk_of(of: Task) -> InTurn:
    device = of.build(NUMPY).last.device
    assert isinstance(device, LocalSteps) and isinstance(device.walk, InTurn)
    return device.walk


def drawn(seed: int, spread: float, size: int = 8) -> Batch:
    rng = np.random.default_rng(seed)
    rows = (spread * rng.standard_normal((size, FEATURES))).astype(np.float32)
    mask = (np.arange(size) < size - 1).astype(np.float32)
    return Batch(rows=rows, targets=rng.integers(0, 2, size).astype(np.int32), mask=mask)


@settings(deadline=None, max_examples=100)
@given(
    model=st.sampled_from(list(MODELS)),
    clipping=st.sampled_from(["flat", "per-layer"]),
    spread=st.sampled_from([0.1, 3.0, 1e6, 1e30]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_row_moves_the_sum_of_its_step_by_no_more_than_the_plan_says(
    model: str, clipping: str, spread: float, seed: int
) -> None:
    of = parse(TASK.replace('kind = "softmax"', MODELS[model]), changes=[f"privacy.clipping={clipping}"])
    walk, rng = walk_of(of), np.random.default_rng(seed)
    batch = drawn(seed, spread)
    other = replace(batch, rows=batch.rows.copy(), targets=batch.targets.copy())
    other.rows[2], other.targets[2] = spread * rng.standard_normal(FEATURES), 1 - batch.targets[2]
    with np.errstate(all="ignore"):
        parameters = trees.map(
            lambda leaf: (spread * rng.standard_normal(leaf.shape)).astype(np.float32), of.model_for(NUMPY).zeros()
        )
        coins: Any = Given(seed)
        sums = [
            walk.checked_sum(walk.work.objective.gradients(parameters, each), each.mask, coins).astype(np.int64)
            for each in (batch, other)
        ]
    moved = sums[0] - sums[1]
    assert (moved**2).sum() <= walk.mechanism.grid.sensitivity_power


class Noted(Given):
    """Coins whose noise is zero, and that note how much was asked for."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.drawn: list[tuple[float, tuple[int, ...]]] = []

    def rounded_gaussian(self, stage: str, scale: float, shape: tuple[int, ...]) -> Any:
        self.drawn.append((scale, shape))
        return np.zeros(shape, np.int32)

    def retry(self, number: Any) -> Noted:
        return self


def test_noise_of_the_planned_scale_goes_into_every_step_before_the_next() -> None:
    of = task()
    walk, coins, batch = walk_of(of), Noted(1), drawn(1, 1.0)
    zeros = of.model_for(NUMPY).zeros()
    _, _, taken = walk.take(zeros, (), np.int32(1), batch, coins)
    size = trees.size(zeros)
    assert int(taken) == 4 and coins.drawn == [(walk.mechanism.scale, (size,))] * 4


class OnlyNoise(Noted):
    """Coins whose noise is the same, so large that no row is seen beside it."""

    def rounded_gaussian(self, stage: str, scale: float, shape: tuple[int, ...]) -> Any:
        return np.full(shape, 1 << 29, np.int32)


@pytest.mark.parametrize("rate", ["momentum", "adagrad", "adam"])
def test_whatever_is_kept_is_made_of_noisy_sums(rate: str) -> None:
    """Where noise drowns all rows, neither what is sent nor what is remembered tells them apart."""
    of = task(f"algorithm.rate={{ kind = '{rate}', c = 0.5 }}", "algorithm.rate-memory=keep")
    device = of.build(NUMPY).last.device
    begun = of.build(NUMPY).last.server.check_out(of.build(NUMPY).last.server.init(Given(0)))
    made = [device.step(begun, device.init(), drawn(seed, 1.0), OnlyNoise(1)) for seed in (1, 2)]
    kept = [trees.leaves((release.update, work)) for release, work in made]
    assert len(kept[0]) >= 2
    for one, other in zip(*kept, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
        assert np.all(np.asarray(one) != 0) and np.all(np.isfinite(one))


def test_a_part_without_rows_is_no_step() -> None:
    of = task("algorithm.rate={ kind = 'momentum', c = 1.0 }")
    walk, batch = walk_of(of), drawn(1, 1.0)
    few = replace(batch, mask=(np.arange(8) < 3).astype(np.float32))
    cut = trees.map(lambda leaf: leaf[:4], few)
    begun = walk.work.rate.init(of.model_for(NUMPY).zeros())  # type: ignore[attr-defined]
    found = [walk.take(of.model_for(NUMPY).zeros(), begun, np.int32(1), each, Given(3, noise=5)) for each in (few, cut)]
    assert int(found[0][2]) == int(found[1][2]) == 2
    for one, other in zip(trees.leaves(found[0]), trees.leaves(found[1]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_a_rate_remembers_has_its_noise_and_is_not_charged_again() -> None:
    kept = "algorithm.rate={ kind = 'momentum', c = 0.5 }"
    assert not task(kept).build(NUMPY).remembers_rows
    with pytest.raises(BadInput, match="remember rows"):
        task(kept, "privacy.noise-at=message").build(NUMPY)


def test_a_convolution_learns_on_a_device_and_in_a_simulation() -> None:
    of = task(file=LEARNING)
    require_live(of)
    result = simulate(of)
    assert result.test_error < 0.7 and 49 < result.privacy["sample"]["epsilon"] <= 50.0
    phase = of.build(NUMPY).last
    rng = np.random.default_rng(2)
    rows, labels = rng.random((80, 64), np.float32), rng.integers(0, 10, 80).astype(np.int32)
    batch = Batch(rows=rows, targets=labels, mask=np.ones(80, np.float32))
    broadcast = phase.server.check_out(phase.server.init(Given(0)))
    check_in, _ = phase.contribute(broadcast, phase.begin(), batch, DeviceCoins())
    assert all(np.isfinite(leaf).all() and leaf.dtype == np.float32 for leaf in trees.leaves(check_in.update))


def test_local_steps_given_by_number_are_refused() -> None:
    with pytest.raises(BadInput, match="each in one step of a round"):
        task("algorithm.local-steps=5").build(NUMPY)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["model.norm=batch"], "mixes the rows of a batch"),
        (["privacy.unit=device", "stop.max-releases=3"], "a device is in all of them"),
        (["privacy.statistics-epsilon=0.5"], "rows go in turn"),
        (["algorithm.epochs=2"], "in several steps of a release"),
        (["privacy.mechanism=laplace"], "is Gaussian"),
        (["privacy.sampling=poisson"], "a ledger adds up one sum"),
        (["privacy.adjacency=add-remove"], "add-remove is not protected"),
        (["secure-aggregation.enabled=true", "algorithm.per-round=20"], "has its noise already"),
        *[
            ([f"algorithm={{ kind = '{kind}', {more} }}"], "no local steps to put noise into, or more is sent")
            for kind, more in {
                "fedprox": "local-batch = 10",
                "scaffold": "local-batch = 10, devices = 2",
                "dp-fedavg": "local-batch = 10",
                "fedsgd": "per-round = 2",
                "crowd-sgd": "batch = 10",
            }.items()
        ],
    ],
)
def test_whatever_is_not_proven_of_steps_is_refused(changes: list[str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        of = task(*changes, file=LEARNING)
        require_live(of)
        of.build(NUMPY)


def test_convolutions_learned_averaging_and_an_owners_epsilon_go_together() -> None:
    """As the ODPFL report wanted: private steps on devices, weights learnt on public rows, ε of each owner's choice."""
    of = task("algorithm.averaging=learned", "data.public=200", "privacy.owner-range=[10.0, 100.0]", file=LEARNING)
    require_live(of)
    plan = of.calibrated
    noise = [made.mechanism.scale for made in (plan.for_owner(10.0).last, plan.last) if isinstance(made, GridSteps)]
    assert noise[0] > 2 * noise[1]
    assert plan.for_owner(10.0).figure(3).epsilon == pytest.approx(10.0, rel=0.01)  # type: ignore[union-attr]
    assert of.build(NUMPY).last.server.takes == "individuals"


CONFIDENCE, TRIALS = 0.999, 2400
"""Of the whole family: all bounds below hold together with this probability if every promise is kept."""
FAMILY = [(0.5, 1), (2.0, 4), (8.0, 1)]
PARTS = (0.0, 0.3)
"""Parts of the promised ε at which δ is attacked."""


@dataclass(frozen=True)
class Attack:
    """What one threshold showed: a lower bound on δ at ε, and what is proven."""

    bound: float
    claim: float


def sent(of: Task, label: int, weakened: float) -> Any:
    """Let a real device walk over and over; one row of eight has the label, at whatever parameters it stands."""
    made = of.calibrated.last
    assert isinstance(made, GridSteps)
    phase = of.build(NUMPY, of.hyper(of.calibrated) | {"noise": made.mechanism.scale * weakened}).last
    rows = np.zeros((8, FEATURES), np.float32)
    rows[:, 0] = 1.0
    targets = np.zeros(8, np.int32)
    targets[5] = label
    batch = Batch(rows=rows, targets=targets, mask=np.ones(8, np.float32))
    begun: Broadcast = phase.server.check_out(phase.server.init(Given(0)))
    found = [phase.contribute(begun, phase.begin(), batch, DeviceCoins())[0].update for _ in range(TRIALS)]
    return np.array([np.concatenate([leaf.ravel() for leaf in trees.leaves(each)]) for each in found])


def attack(epsilon: float, uses: int, weakened: float = 1.0) -> list[Attack]:
    """Attack one release at several thresholds.

    A change is the sum of its steps, of which one has the row: the noise of the others only hides it more. So here
    there is one step, of all eight rows.
    """
    of = task(f"privacy.epsilon={epsilon}", f"privacy.max-uses={uses}", "algorithm.local-batch=8")
    made = of.calibrated.last
    assert isinstance(made, GridSteps)
    grid, scale = made.mechanism.grid, made.mechanism.scale
    mu = grid.sensitivity / scale
    first, second = sent(of, 0, weakened), sent(of, 1, weakened)
    half = TRIALS // 2
    # The way is learnt on one half and the thresholds are tried on the other, so that nothing is chosen by its result.
    way = first[:half].mean(axis=0) - second[:half].mean(axis=0)
    way /= np.linalg.norm(way)
    middle = (first[:half].mean(axis=0) + second[:half].mean(axis=0)) @ way / 2
    deviation = scale * grid.step / 8
    alpha, found = (1 - CONFIDENCE) / len(FAMILY) / len(PARTS), []
    for part in PARTS:
        threshold = middle + part * epsilon / mu * deviation
        shot, missed = (int(np.sum(each[half:] @ way > threshold)) for each in (first, second))
        least = stats.beta.ppf(alpha / 2, shot, half - shot + 1) if shot else 0.0
        most = stats.beta.ppf(1 - alpha / 2, missed + 1, half - missed)
        found.append(Attack(float(least - math.exp(part * epsilon) * most), gaussian_delta_up(mu, part * epsilon)))
    return found


@pytest.mark.parametrize(("epsilon", "uses"), FAMILY)
def test_no_attack_on_a_release_refutes_its_promise(epsilon: float, uses: int) -> None:
    assert all(each.bound <= each.claim for each in attack(epsilon, uses))


def test_the_attack_finds_half_of_the_noise() -> None:
    found = attack(2.0, 1, weakened=0.5)
    assert any(each.bound > each.claim for each in found)
