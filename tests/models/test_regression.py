"""A model of a number learns it: linear regression by gradient steps comes to what ridge regression says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.core import NUMPY, Batch, ZeroCoins, trees
from crowdml.data import apply_all, load
from crowdml.data.transforms import Norm
from crowdml.models import MODELS, Model
from crowdml.simulation.engine.jax_ops import JAX

DATA = apply_all([Norm(order=2, at_most=2.0)], load("diabetes"))


def regressor(ops: Any = NUMPY, **given: Any) -> Model:
    return MODELS[given["kind"]].model_validate(given).build(DATA.features, DATA.target, ops)


def learnt(model: Model, steps: int, rate: float, regularisation: float = 0.0, start: Any = None) -> Any:
    """Walk down the mean gradient of all training rows."""
    parameters = model.init(ZeroCoins()) if start is None else start
    size = len(DATA.train_rows)
    batch = Batch(rows=DATA.train_rows, targets=DATA.train_targets, mask=np.ones(size, np.float32))
    weights = np.full(size, 1 / size, np.float32)
    for _ in range(steps):
        gradient = model.gradients(parameters, batch).total(weights)
        pull = model.regulariser(parameters, regularisation)
        parameters = trees.map(lambda w, g, p: w - np.float32(rate) * (g + p), parameters, gradient, pull)
    return parameters


def r2(model: Model, parameters: Any) -> float:
    return float(DATA.target.measures(model.predict(parameters, DATA.test_rows), DATA.test_targets, NUMPY)["r2"])


@pytest.mark.parametrize("regularisation", [0.01, 0.1])
def test_squares_come_to_ridge_regression(regularisation: float) -> None:
    model = regressor(kind="linear")
    (found,) = learnt(model, 2000, 0.4, regularisation)
    rows = np.c_[DATA.train_rows, np.ones(len(DATA.train_rows))].astype(np.float64)
    ridge = regularisation * len(rows) * np.diag([1.0] * DATA.features + [0.0])
    exact = np.linalg.solve(rows.T @ rows + ridge, rows.T @ DATA.train_targets)
    np.testing.assert_allclose(np.r_[found["w"][0], found["b"]], exact, atol=0.002)
    assert r2(model, (found,)) > 0.4


def test_huber_learns_as_well() -> None:
    model = regressor(kind="linear", loss="huber", delta=0.25)
    assert r2(model, learnt(model, 1500, 0.4)) > 0.4


def test_a_net_learns_a_number() -> None:
    model, random = regressor(kind="mlp", layers=[8], activation="tanh", top="squared"), np.random.default_rng(0)
    start = trees.map(lambda leaf: (0.3 * random.standard_normal(leaf.shape)).astype(np.float32), model.zeros())
    assert r2(model, learnt(model, 800, 0.3, start=start)) > 0.4


@pytest.mark.parametrize(
    "given", [{"kind": "linear"}, {"kind": "linear", "loss": "huber"}, {"kind": "mlp", "layers": [4], "top": "huber"}]
)
def test_compiled_code_and_numpy_have_the_same_gradients(given: dict[str, Any]) -> None:
    random = np.random.default_rng(1)
    one, other = regressor(**given), regressor(JAX, **given)
    parameters = trees.map(lambda leaf: random.standard_normal(leaf.shape).astype(np.float32), one.zeros())
    batch = Batch(rows=DATA.train_rows[:9], targets=DATA.train_targets[:9], mask=np.ones(9, np.float32))
    weights = np.ones(9, np.float32)
    for here, there in zip(
        trees.leaves(one.gradients(parameters, batch).total(weights)),
        trees.leaves(other.gradients(parameters, batch).total(weights)),
        strict=True,
    ):
        np.testing.assert_allclose(here, there, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        one.predict(parameters, batch.rows), other.predict(parameters, batch.rows), rtol=1e-5, atol=1e-6
    )
