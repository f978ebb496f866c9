"""ridge against its formula: least squares of one round, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.core import NUMPY, BadInput
from tests.support.by_hand import LABELS, ROWS, Ones, batch, task
from tests.support.phases import model_of, one_version


@pytest.mark.parametrize("bias", [False, True])
def test_one_round_is_least_squares(bias: bool) -> None:
    settings, model = "per-round = 2\nfloor = 0.05", f"bias = {str(bias).lower()}"
    made = task("ridge", settings, model=model, score="logistic").build(NUMPY)
    phase = made.last
    server = phase.server.init(Ones())
    told = phase.server.check_out(server)
    check_ins = [phase.contribute(told, phase.begin(), batch(NUMPY, real), Ones())[0] for real in (4, 3)]
    server = one_version(phase, server, check_ins, np.int32(0))
    x = np.concatenate([ROWS[:4], ROWS[:3]]).astype(float)
    x = np.column_stack([x, np.ones(7)]) if bias else x
    y = 2.0 * np.concatenate([LABELS[:4], LABELS[:3]]) - 1
    exact = np.linalg.solve(x.T @ x + 0.05 * 7 * np.eye(x.shape[1]), x.T @ y)
    found = model_of(made, server)[0]
    np.testing.assert_allclose(found["w"][0], exact[:2], rtol=1e-4)
    if bias:
        np.testing.assert_allclose(found["b"], exact[2:], rtol=1e-4)


def test_only_two_labels_can_be_told_apart_by_one_score() -> None:
    with pytest.raises(BadInput, match="one score, for two labels or for a number"):
        task("ridge", score="softmax")


def test_a_constant_may_go_free_of_the_ridge() -> None:
    settings = "per-round = 1\nfloor = 0.5\npenalise-constant = false"
    made = task("ridge", settings, model="bias = true", score="logistic").build(NUMPY)
    server = made.last.server.init(Ones())
    told = made.last.server.check_out(server)
    server = one_version(
        made.last, server, [made.last.contribute(told, made.last.begin(), batch(NUMPY), Ones())[0]], np.int32(0)
    )
    x, y = np.column_stack([ROWS, np.ones(4)]).astype(float), 2.0 * LABELS - 1
    exact = np.linalg.solve(x.T @ x + np.diag([2.0, 2.0, 4e-6]), x.T @ y)
    np.testing.assert_allclose(model_of(made, server)[0]["b"], exact[2:], rtol=1e-3)
    np.testing.assert_allclose(model_of(made, server)[0]["w"][0], exact[:2], rtol=1e-3)
    with pytest.raises(BadInput, match="no constant to leave unpenalised"):
        task("ridge", settings, score="logistic")
