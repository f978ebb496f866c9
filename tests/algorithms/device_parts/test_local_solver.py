"""Local solves against a general optimiser."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from crowdml.algorithms.device_parts.local_solver import Pull, local_solver, solvable
from crowdml.core import NUMPY, Batch
from crowdml.models import MODELS
from tests.support.targets import some_labels

KINDS: Any = MODELS


def batch(rows: int, features: int = 8, classes: int = 2, padding: int = 3) -> Batch:
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows + padding, features)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    mask = (np.arange(rows + padding) < rows).astype(np.float32)
    return Batch(rows=x, targets=rng.integers(0, classes, rows + padding).astype(np.int32), mask=mask)


def objective(model: Any, of: Batch, centre: Any, rho: float, decay: float) -> Any:
    real = of.mask > 0
    x, y = of.rows[real].astype(float), of.targets[real]

    def value(flat: Any, shape: Any) -> float:
        w = flat[: centre["w"].size].reshape(centre["w"].shape)
        b = flat[centre["w"].size :]
        loss = model.losses(({"w": w} | ({"b": b} if len(b) else {}),), x, y).sum()
        apart = np.sum((w - centre["w"]) ** 2) + (np.sum((b - centre["b"]) ** 2) if len(b) else 0.0)
        return float(loss + 0.5 * len(x) * decay * np.sum(w * w) + 0.5 * rho * apart)

    return lambda flat: value(flat, None)


@pytest.mark.parametrize("rows", [4, 60])
@pytest.mark.parametrize(
    ("kind", "bias", "classes", "steps"),
    [
        ("logistic", False, 2, 8),
        ("logistic", True, 2, 8),
        ("softmax", False, 3, 60),
        ("huber", True, 2, 60),
        ("svm", True, 2, 60),
        ("svm", False, 2, 60),
    ],
)
def test_a_local_solve_finds_the_minimum(kind: str, bias: bool, classes: int, steps: int, rows: int) -> None:
    model = KINDS[kind](bias=bias).build(8, some_labels(classes), NUMPY)
    of, rng = batch(rows, classes=classes), np.random.default_rng(1)
    centre = {"w": rng.standard_normal((model.loss.width, 8)).astype(np.float32)}
    if bias:
        centre["b"] = rng.standard_normal(model.loss.width).astype(np.float32)
    found = local_solver(model, NUMPY)((centre,), model.zeros(), of, Pull(rho=0.5, decay=0.01, steps=steps))[0]
    value = objective(model, of, centre, 0.5, 0.01)
    ours = np.concatenate([found[name].reshape(-1) for name in ("w", "b") if name in found]).astype(float)
    best = minimize(value, ours, method="Powell" if kind == "svm" else "BFGS", options={"maxiter": 20_000})
    assert value(ours) <= best.fun * (1 + 1e-4) + 1e-6
    if kind != "svm":
        np.testing.assert_allclose(ours, best.x, atol=3e-3)


@pytest.mark.parametrize("rho", [1e-3, 0.1, 10.0])
def test_newton_steps_do_not_overshoot_on_rows_that_can_be_separated(rho: float) -> None:
    model = KINDS["logistic"]().build(8, some_labels(2), NUMPY)
    of = batch(30)
    direction = np.random.default_rng(3).standard_normal(8)
    of = Batch(rows=of.rows, targets=(of.rows @ direction > 0).astype(np.int32), mask=of.mask)
    far = ({"w": np.full((1, 8), 50.0, np.float32)},)
    solve = local_solver(model, NUMPY)
    found = [
        solve(model.zeros(), start, of, Pull(rho=rho, decay=0.0, steps=15))[0]["w"] for start in (far, model.zeros())
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("rows", [3, 30])
def test_rows_that_leave_nothing_to_solve_are_no_error_of_the_program(rows: int) -> None:
    """In compiled code there is none either. What becomes of it on a device: `tests/privacy/test_never_silent.py`."""
    model = KINDS["logistic"]().build(8, some_labels(2), NUMPY)
    long = Batch(
        rows=np.full((rows, 8), 1e6, np.float32), targets=np.ones(rows, np.int32), mask=np.ones(rows, np.float32)
    )
    (found,) = local_solver(model, NUMPY)(model.zeros(), model.zeros(), long, Pull(rho=1.0, decay=0.0, steps=3))
    assert found["w"].shape == (1, 8) and not np.isfinite(found["w"]).all()


def test_nets_and_squares_have_no_local_solver() -> None:
    assert not solvable(KINDS["mlp"]().build(8, some_labels(3), NUMPY))
    assert solvable(KINDS["svm"]().build(8, some_labels(2), NUMPY))
