"""Crowd-ML library 2016, section 3: what its sensitivities promise too much or too little, and what holds instead."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import Algorithm
from crowdml.core import NUMPY, BadInput, Batch, Broadcast
from crowdml.privacy import MECHANISMS
from crowdml.task import parse
from tests.support.phases import stepped
from tests.support.plans import update_of

TASK = """
crowdml = 1
name = "counterexample"
[data]
features = 2
labels = ["a", "b"]
[model]
kind = "{model}"
bias = false
[algorithm]
kind = "local-sgd"
local-steps = {steps}
local-batch = {rows}
rate = {{ kind = "constant", c = {rate} }}
[privacy]
{privacy}
"""
SOUND = 'unit = "{unit}"\nmechanism = "{mechanism}"\ndelta = 1e-5\nclip = 0.05\nepsilon = 8.0\nmax-uses = 1'


def algorithm(model: str, steps: int, rows: int, rate: float, privacy: str = 'mode = "none"', *more: str) -> Algorithm:
    text = TASK.format(model=model, steps=steps, rows=rows, rate=rate, privacy=privacy)
    return parse(text, changes=["stop.max-releases=1", "crowd.passes=1", *more]).build(NUMPY)


class Halves:
    """Coins that round to the nearest, upwards from a half, and add nothing."""

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Any:
        return np.full(shape, 0.5, np.float32)

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Any:
        return np.zeros(shape, np.float32)

    gaussian = laplace

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Any:
        return np.zeros(shape, np.int32)

    rounded_gaussian = discrete_laplace

    def retry(self, number: Any) -> Halves:
        return self


def changes(made: Algorithm, w: list[float], batches: list[Batch]) -> list[Any]:
    start = Broadcast(parameters=({"w": np.array([w], np.float32)},), count=np.int32(1))
    released = [stepped(made.last, start, given, Halves())[0] for given in batches]
    return [release.update[0]["w"] for release in released]


def batch(rows: Any, labels: Any) -> Batch:
    return Batch(
        rows=np.asarray(rows, np.float32), targets=np.asarray(labels, np.int32), mask=np.ones(len(labels), np.float32)
    )


def corner() -> list[Batch]:
    """Two hundred rows of norm at most 1 in two steps of a hundred; the neighbours differ in the label of the first.

    The first step moves w by a hundredth of the rate towards either side of the hinge's corner, where all rows of the
    second step wait: on one side their slopes are zero, on the other they all agree.
    """
    rows = np.zeros((200, 2))
    rows[0, 0] = 1.0
    rows[100:, 0] = 1.0
    labels = np.ones(200)
    other = labels.copy()
    other[0] = 0
    return [batch(rows, labels), batch(rows, other)]


def test_the_reduction_by_the_number_of_rows_fails_for_two_steps() -> None:
    """S_d·η·S(∇f)/N = 2·0.1·2/100 for one of the hundred rows of a step; the change moves by twenty times that."""
    one, other = changes(algorithm("svm", 2, 100, 0.1), [1.0, 0.0], corner())
    moved = float(np.linalg.norm(one - other))
    assert moved == pytest.approx(0.098, abs=0.002), "the paper's 0.004 would hold"
    # Without the corner, for one step, the reduction is right.
    alone = [Batch(rows=both.rows[:100], targets=both.targets[:100], mask=both.mask[:100]) for both in corner()]
    one, other = changes(algorithm("svm", 1, 100, 0.1), [1.0, 0.0], alone)
    assert float(np.linalg.norm(one - other)) <= 2 * 0.1 / 100 + 1e-6


@pytest.mark.parametrize(("mechanism", "order"), [("laplace", 1), ("gaussian", 2)])
@pytest.mark.parametrize("unit", ["sample", "device"])
def test_the_bound_on_the_whole_change_holds_at_the_corner(mechanism: str, order: int, unit: str) -> None:
    """Sound mode does not use the reduction: samples and devices alike are protected by the bound on the message."""
    made = algorithm("svm", 2, 100, 0.1, SOUND.format(unit=unit, mechanism=mechanism))
    text = TASK.format(model="svm", steps=2, rows=100, rate=0.1, privacy=SOUND.format(unit=unit, mechanism=mechanism))
    task = parse(text, changes=["stop.max-releases=1", "crowd.passes=1"])
    grid = update_of(task.calibrated).grid
    assert grid.per == "release"
    one, other = changes(made, [1.0, 0.0], corner())
    moved = float(np.linalg.norm((one - other).ravel().astype(float), order))
    # On the grid 0.05 is `levels`: what would be 0.098 apart is cut to less than the bound, and more than 1/N of it.
    assert 0.9 * grid.levels < moved <= grid.sensitivity
    assert task.calibrated.last.cost(1) == task.calibrated.last.cost(1, 200)


def test_equation_11_divides_by_a_convexity_that_a_step_does_not_have() -> None:
    """λ = 10, η = 0.01, one step of one row: (11) says 2/λ·η = 0.002; the two labels are 0.010 apart, even at zero."""
    made = algorithm("logistic", 1, 1, 0.01, 'mode = "none"', "model.regularisation=10.0")
    one, other = changes(made, [0.0, 0.0], [batch([[1.0, 0.0]], [0]), batch([[1.0, 0.0]], [1])])
    moved = float(np.linalg.norm(one - other))
    assert moved >= 0.00999 > 2 / 10 * 0.01
    # The right bound is 2·max|l'|·max‖x‖·Ση, and it is reached where the model is surely wrong about both.
    rows = [batch([[1.0, 0.0]], [0]), batch([[-1.0, 0.0]], [0])]
    one, other = changes(algorithm("logistic", 1, 1, 0.01), [100.0, 0.0], rows)
    far = float(np.linalg.norm(one - other))
    assert far <= 2 * 0.01 and far == pytest.approx(0.01, rel=1e-3)
    both = [batch([[1.0, 0.0]], [0]), batch([[0.0, 1.0]], [0])]
    one, other = changes(algorithm("logistic", 1, 1, 0.01), [100.0, 100.0], both)
    assert float(np.linalg.norm(one - other)) <= 2 * 0.01


def test_equation_6_adds_twice_the_noise_it_needs() -> None:
    """Density ∝ exp(-ε‖η‖/(2S)): moving the centre by S changes its logarithm by at most ε/2."""
    epsilon, sensitivity = 3.0, 0.7
    scale = 2 * sensitivity / epsilon
    assert MECHANISMS["k-norm"].cost(scale / sensitivity).event().pure == pytest.approx(epsilon / 2)
    rng = np.random.default_rng(0)
    points = rng.standard_normal((1000, 20)) * 5
    shift = np.zeros(20)
    shift[0] = sensitivity
    loss = (np.linalg.norm(points - shift, axis=1) - np.linalg.norm(points, axis=1)) / scale
    assert np.abs(loss).max() <= epsilon / 2 + 1e-9
    along = (abs(100 + sensitivity) - 100) / scale
    assert along == pytest.approx(epsilon / 2)


@pytest.mark.parametrize(("size", "times"), [(500, 11), (10_285, 51)])
def test_independent_laplace_noise_on_a_bound_in_l2_breaks_the_promise_of_equation_6(size: int, times: int) -> None:
    """The change of L2 norm S that is spread over all coordinates has L1 norm √d·S: √d/2 times the claim."""
    epsilon, sensitivity = 1.0, 1.0
    spread = np.full(size, sensitivity / math.sqrt(size))
    assert np.linalg.norm(spread) == pytest.approx(sensitivity)
    scale = 2 * sensitivity / epsilon
    assert np.abs(spread).sum() / scale == pytest.approx(math.sqrt(size) / 2 * epsilon)
    assert np.abs(spread).sum() / scale > times * epsilon - 1


def test_adaptive_rates_make_steps_that_equation_10_does_not_know() -> None:
    """AdaGrad's first step has length c in every coordinate, however small the gradient is that (10) would bound."""
    rate = "algorithm.rate={ kind = 'adagrad', c = 1.0, counter = 'local-steps' }"
    made = algorithm("logistic", 1, 1, 1.0, 'mode = "none"', rate)
    tiny = [batch([[1e-3, 1e-3]], [label]) for label in (0, 1)]
    one, other = changes(made, [0.0, 0.0], tiny)
    assert float(np.linalg.norm(one - other)) > 2.8 > 2 * 1.0 * math.hypot(1e-3, 1e-3)
    with pytest.raises(BadInput) as caught:
        algorithm(
            "logistic", 1, 1, 1.0, SOUND.format(unit="device", mechanism="laplace").replace("clip = 0.05\n", ""), rate
        )
    assert "privacy" in caught.value.where and "nothing bounds what local steps change" in caught.value.what
    algorithm("logistic", 1, 1, 1.0, SOUND.format(unit="device", mechanism="laplace"), rate)  # with a clip it may


def test_noise_of_a_given_deviation_promises_nothing() -> None:
    """Figure 2 gives the deviation of the noise only; without a bound no ε follows from it."""
    text = TASK.format(
        model="svm", steps=2, rows=100, rate=0.1, privacy='mode = "paper"\nmechanism = "gaussian"\nnoise-scale = 1.0'
    )
    task = parse(text)
    plan = task.calibrated
    assert not plan.promises and plan.terms.claim is None and not plan.terms.promised
