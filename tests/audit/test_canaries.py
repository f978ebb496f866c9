"""Many canaries in one training: the bound holds as often as it says, and finds out a device without noise."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest

from crowdml.audit.canaries import ONE_RUN, one_run, one_run_bound
from crowdml.audit.neighbours import Bench, flipped_targets
from crowdml.core import NUMPY
from crowdml.device.entropy_coins import DeviceCoins
from crowdml.privacy.cost import Figure
from tests.audit.attacked_tasks import attacked_task


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_guesses_about_randomised_response_are_bounded_and_the_bound_comes_near(epsilon: float) -> None:
    """Seeded: of 1,000 bounds at an error of 1 in 20, at most 75 may be too high (more than 3 deviations)."""
    generator, guessed = np.random.default_rng(4), 400
    right = generator.binomial(guessed, 1 / (1 + math.exp(-epsilon)), 1_000)
    bounds = {int(each): one_run_bound(int(each), guessed, guessed, 0.0, 0.05) for each in np.unique(right)}
    found = np.array([bounds[int(each)] for each in right])
    assert (found > epsilon).sum() <= 75 and np.median(found) > 0.5 * epsilon


def test_a_delta_takes_something_off() -> None:
    assert 0 < one_run_bound(90, 100, 300, 1e-5, 0.01) < one_run_bound(90, 100, 300, 0.0, 0.01)


def test_a_training_without_noise_gives_every_canary_away() -> None:
    task = attacked_task("crowd-sgd", mechanism="laplace", uses=1, epsilon=1.0)
    bench = Bench.of(task, task.build(NUMPY), whole=False)
    pair = next(flipped_targets(bench, np.random.default_rng(0)))
    claim = Figure(epsilon=1.0, delta=0.0, by="")
    honest = one_run(bench, pair, 1, claim, 1e-6)
    assert honest.holds and honest.method == ONE_RUN and honest.trials == 500
    with mock.patch.object(
        DeviceCoins, "discrete_laplace", lambda self, stage, scale, shape: np.zeros(shape, np.int32)
    ):
        found = one_run(bench, pair, 1, claim, 1e-6)
    assert found.guesses.alarms == 0 and found.bound > 2.0 and not found.holds
