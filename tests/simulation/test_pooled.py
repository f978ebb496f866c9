"""The batch baseline finds the minimum of the regularised risk."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import minimize

from crowdml.core import NUMPY, BadInput
from crowdml.privacy.sanitisers import Use
from crowdml.simulation import simulate
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.prepare import prepare
from crowdml.task import Task

Make = Callable[..., Task]
BATCH = "algorithm={ kind = 'central-batch', iterations = 500 }"
L1 = "data.transform=[{ kind = 'norm', order = 1, at-most = 1.0 }]"


def risk(w: np.ndarray, x: np.ndarray, y: np.ndarray, strength: float) -> float:
    z = x @ w.reshape(10, -1).T
    top = z.max(axis=1, keepdims=True)
    losses = np.log(np.exp(z - top).sum(axis=1)) + top[:, 0] - z[np.arange(len(y)), y]
    return float(losses.mean() + 0.5 * strength * (w * w).sum())


def slope(w: np.ndarray, x: np.ndarray, y: np.ndarray, strength: float) -> np.ndarray:
    z = x @ w.reshape(10, -1).T
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    return np.asarray((p.T @ x / len(y) + strength * w.reshape(10, -1)).reshape(-1))


def test_it_reaches_the_minimum(digits: Make) -> None:
    task = digits(BATCH, "model.regularisation=0.001")
    result = simulate(task, trials=3)
    _, dataset = prepare(task)
    x, y = dataset.train_rows.astype(float), dataset.train_targets
    best = minimize(risk, np.zeros(640), args=(x, y, 0.001), jac=slope, method="BFGS").fun
    assert risk(result.parameters[0]["w"][0].astype(float).reshape(-1), x, y, 0.001) <= best + 1e-5
    assert (result.measured["test_error"][0] == result.measured["test_error"][0, 0]).all()
    assert result.privacy["guarantee"] == "no formal guarantee"


def test_noise_on_rows_is_another_in_every_trial_and_costs_once(digits: Make) -> None:
    task = digits(BATCH, L1, "privacy.mode=paper", "privacy.epsilon=10.0", "crowd.passes=5")
    result = simulate(task, trials=2)
    assert not np.array_equal(*result.parameters[0]["w"])
    # ε_x = 5 for the row and ε_y/2 = 2.5 for the label, once; a device hands over 70 rows.
    assert result.privacy["sample"]["epsilon"] == 7.5 and result.privacy["device"]["epsilon"] == 7.5 * 70


def test_perturbed_labels_and_rows_follow_their_laws(digits: Make) -> None:
    """At five standard errors: a false alarm in 2 million, per figure."""
    task = digits(BATCH, L1, "privacy.mode=paper", "privacy.epsilon=10.0")
    (sanitiser,) = task.calibrated.sanitisers
    perturb = sanitiser.bind(Use(ops=NUMPY, scales={}, like=tuple, target=task.target)).rows
    size = 200_000
    rows, labels = np.zeros((size, 3), np.float32), np.full(size, 7, np.int32)
    noisy, changed = perturb(rows, labels, HashCoins(trial_seed(0, 0), np.arange(size), NUMPY))
    keep = np.exp(2.5) / (np.exp(2.5) + 9)
    shares = np.bincount(changed, minlength=10) / size
    expected = np.where(np.arange(10) == 7, keep, (1 - keep) / 9)
    assert (np.abs(shares - expected) < 5 * np.sqrt(expected * (1 - expected) / size)).all()
    scale = 2 / 5.0
    assert np.abs((noisy.astype(float) ** 2).mean() - 2 * scale**2) < 5 * np.sqrt(20) * scale**2 / np.sqrt(3 * size)


def test_rows_without_a_bound_are_refused(digits: Make) -> None:
    with pytest.raises(BadInput, match="nothing bounds the L1 norm of a row"):
        digits(BATCH, "data.transform=[]", "privacy.mode=paper", "privacy.epsilon=10.0")


def test_a_central_server_is_never_late(digits: Make) -> None:
    with pytest.raises(BadInput, match="its own pace"):
        digits(BATCH, "crowd.delays={ request = 5.0 }")
