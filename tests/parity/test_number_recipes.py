"""Every recipe learns a number: compiled and step by step alike, as least squares say, with and without a promise."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.core import trees
from crowdml.simulation import Result, simulate
from crowdml.simulation.prepare import prepare
from crowdml.simulation.stepwise import simulate_stepwise
from crowdml.task import Task, parse

BASE = """
crowdml = 1
name = "number"
[data]
dataset = "diabetes"
features = 10
target = { name = "progression", low = 25.0, high = 346.0, unit = "points" }
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "linear"
loss = "huber"
[algorithm]
kind = "crowd-sgd"
batch = 5
rate = { kind = "inverse-sqrt", c = 1.0 }
[privacy]
mode = "none"
[crowd]
devices = 10
passes = 3
curve = 2
"""
SOUND = (
    "privacy.mode=sound",
    "privacy.mechanism=gaussian",
    "privacy.clip=0.5",
    "privacy.epsilon=100.0",
    "privacy.delta=1e-4",
    "privacy.max-uses=20",
    "stop.max-releases=40",
)
CONSTANT = "rate = { kind = 'constant', c = 0.2 }"
RECIPES = {
    "crowd-sgd": "kind = 'crowd-sgd', batch = 5, rate = { kind = 'inverse-sqrt', c = 1.0 }",
    "local-sgd": f"kind = 'local-sgd', local-steps = 2, local-batch = 5, {CONSTANT}",
    "fedavg": f"kind = 'fedavg', per-round = 5, local-batch = 10, {CONSTANT}",
    "fedsgd": f"kind = 'fedsgd', per-round = 5, {CONSTANT}",
    "admm": "kind = 'admm', barrier = 5",
    "admm-sums": "kind = 'admm-sums', barrier = 5, rho = 0.5, beta = 0.01",
    "ridge": "kind = 'ridge', per-round = 10, floor = 0.001",
    "consensus-newton": "kind = 'consensus-newton', per-round = 10, curvature = 1.0, rate = 1.0",
}
TO_DEVICES = {"admm-sums"}
"""Their promise is to whole devices."""


def task(recipe: str, *changes: str) -> Task:
    return parse(BASE, changes=[f"algorithm={{ {RECIPES[recipe]} }}", *changes])


def require_alike(one: Result, other: Result) -> None:
    """Compare models and last measures; counts stand behind the estimated error, and are whole numbers."""
    # Of all numbers of the model: a bias near zero has no digits of its own.
    largest = max(float(np.abs(leaf).max()) for leaf in trees.leaves(other.parameters))
    for left, right in zip(trees.leaves(one.parameters), trees.leaves(other.parameters), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-4 * largest)
    assert set(one.measured) == set(other.measured) >= {"test_error", "mae", "rmse", "r2"}
    for name, values in one.measured.items():
        close = 1e-6 if name == "estimated_error" else 1e-3
        np.testing.assert_allclose(values[-1], other.measured[name][-1], rtol=close, atol=close / 10, err_msg=name)


@pytest.mark.parametrize("recipe", [*(name for name in RECIPES if name != "admm-sums")])
def test_compiled_and_stepwise_learn_alike(recipe: str) -> None:
    given = task(recipe, *(["crowd.passes=1"] if recipe == "ridge" else []))
    found = simulate(given, trials=2)
    require_alike(found, simulate_stepwise(given, trials=2))
    assert found.test_error < 0.21, "always saying the middle one is wrong by 0.21"


@pytest.mark.parametrize("recipe", [name for name in RECIPES if name != "admm"])
def test_compiled_and_stepwise_learn_alike_under_a_promise(recipe: str) -> None:
    unit = "device" if recipe in TO_DEVICES else "sample"
    changes = [*SOUND, f"privacy.unit={unit}"]
    if recipe == "ridge":
        changes += ["stop.max-releases=1", "crowd.passes=1"]
    if recipe == "crowd-sgd":
        changes += ["privacy.statistics-epsilon=5.0"]
    given = task(recipe, *changes)
    found = simulate(given, trials=2)
    require_alike(found, simulate_stepwise(given, trials=2))
    assert found.privacy["sample"]["epsilon"] <= 100.01
    assert bool(found.counts) == (recipe == "crowd-sgd")


def test_a_net_learns_a_number_in_both() -> None:
    given = task("fedavg", "model={ kind = 'mlp', layers = [4], top = 'huber' }")
    require_alike(simulate(given), simulate_stepwise(given))


def test_counts_without_noise_estimate_the_error() -> None:
    found = simulate(task("crowd-sgd", "crowd.passes=30"))
    assert found.counts
    spread = found.counts.spread.sum(axis=1)
    np.testing.assert_array_equal(spread.sum(axis=-1), found.counts.rows.sum(axis=1))
    assert set(found.estimated_labels) == set(found.task.target.bin_names)
    # The estimate remembers the first models, so it lies a little above.
    assert abs(found.measured["estimated_error"][-1].mean() - found.test_error) < 0.03


def least_squares(given: Task) -> tuple[np.ndarray, np.ndarray]:
    """Return training rows with a constant as last column, and what fits them best."""
    dataset = prepare(given)[1]
    rows = np.c_[dataset.train_rows, np.ones(len(dataset.train_rows))].astype(np.float64)
    return rows, np.linalg.lstsq(rows, dataset.train_targets, rcond=None)[0]


LEAST_SQUARES = {
    "ridge": ["algorithm={ kind = 'ridge', per-round = 10, floor = 1e-7 }", "crowd.passes=1"],
    "central-batch": ["algorithm={ kind = 'central-batch' }"],
    "admm": ["algorithm={ kind = 'admm', barrier = 10, rho = 0.05, beta = 0.0 }", "crowd.passes=300"],
    "consensus-newton": [
        "algorithm={ kind = 'consensus-newton', per-round = 10, curvature = 1.0, rate = 1.0 }",
        "crowd.passes=60",
    ],
}


@pytest.mark.parametrize("recipe", LEAST_SQUARES)
def test_squares_come_to_least_squares(recipe: str) -> None:
    given = parse(BASE, changes=["model.loss=squared", *LEAST_SQUARES[recipe]])
    rows, best = least_squares(given)
    (layer,) = simulate(given, trials=1).parameters
    found = np.r_[np.asarray(layer["w"])[0].ravel(), np.asarray(layer["b"])[0].ravel()]
    # Two columns say nearly the same, so weights of theirs may be far apart where predictions are not.
    np.testing.assert_allclose(rows @ found, rows @ best, atol=0.03 if recipe == "admm" else 0.005)


def test_owners_choose_their_noise() -> None:
    changes = ["privacy.unit=sample", "privacy.owner-range=[50.0, 100.0]", "privacy.statistics-epsilon=2.0"]
    given = task("crowd-sgd", *SOUND, *changes, "crowd.owner-epsilon.values=[50.0, 100.0]")
    found = simulate(given, trials=2)
    require_alike(found, simulate_stepwise(given, trials=2))
    small, large = (group["noise"] for group in found.privacy["owners"])
    assert small > large and found.test_error < 0.21


@pytest.mark.parametrize("recipe", ["fedsgd", "ridge"])
def test_sums_of_a_number_are_aggregated_securely(recipe: str) -> None:
    releases = 1 if recipe == "ridge" else 40
    unit = "sample" if recipe == "ridge" else "device"
    changes = [f"privacy.unit={unit}", "secure-aggregation.enabled=true", f"stop.max-releases={releases}"]
    given = task(recipe, *SOUND, *changes, "algorithm.per-round=10", "algorithm.max-rows=40", "crowd.passes=1")
    found = simulate(given, trials=2)
    require_alike(found, simulate_stepwise(given, trials=2))
    assert found.privacy[unit]["epsilon"] <= 100.01 and found.test_error < 0.25


def test_a_task_stops_at_an_error_of_a_number() -> None:
    whole = simulate(task("crowd-sgd", "crowd.passes=20"), trials=1)
    stopped = simulate(task("crowd-sgd", "crowd.passes=20", "stop.error-below=0.19", "stop.error-rows=100"), trials=1)
    assert stopped.updates < whole.updates
    assert stopped.measured["estimated_error"][-1].mean() <= 0.19


def test_a_device_that_takes_low_for_high_spoils_what_others_learn() -> None:
    honest = simulate(task("fedsgd", "crowd.passes=20"), trials=1).test_error
    attacked = task("fedsgd", "crowd.passes=20", "crowd.attack={ kind = 'label-flip', share = 0.4 }")
    assert simulate(attacked, trials=1).test_error > honest + 0.005


def test_bounds_that_cut_values_off_are_said() -> None:
    cut = parse(BASE, changes=["data.target.low=50.0", "data.target.high=300.0"])
    warnings = " ".join(simulate(cut, trials=1).warnings)
    assert "targets of diabetes lie beyond the task's bounds" in warnings and "from 50 to 300" in warnings
    assert not simulate(task("crowd-sgd"), trials=1).warnings
