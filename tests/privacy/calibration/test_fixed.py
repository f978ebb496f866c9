"""Noise of a given size: s.d. as stated, for numbers and for whole messages, and no ε for it."""

from __future__ import annotations

import numpy as np
import pytest

from crowdml.core import NUMPY, BadInput
from crowdml.privacy import MECHANISMS, ModelBounds, PrivacySettings, Releases, make_plan
from crowdml.privacy.noise.laws import add_noise
from crowdml.privacy.sanitisers.floats import Fixed
from crowdml.simulation import simulate
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.task import parse

SHAPE = {"a": np.zeros((20, 30), np.float32), "b": np.zeros(25, np.float32)}
SIZE = 625


@pytest.mark.parametrize("law", ["gaussian", "laplace", "k-norm"])
@pytest.mark.parametrize(("unit", "expected"), [("coordinate", 0.4), ("vector", 0.4 / 25)])
def test_each_number_has_the_deviation_that_was_given(law: str, unit: str, expected: float) -> None:
    terms = PrivacySettings.model_validate({"mode": "paper", "mechanism": law, "noise-scale": 0.4, "noise-unit": unit})
    plan = make_plan(terms, Releases(sends="change"), ModelBounds(size=SIZE))
    assert isinstance(plan.last, Fixed) and not plan.promises and plan.terms.claim is None and plan.cost(1) is None
    given = plan.last
    assert given.deviation == pytest.approx(expected) and plan.noise == given.scale
    drawn = [
        add_noise(given.law, SHAPE, np.float32(plan.noise), HashCoins(trial_seed(0, trial), 1, NUMPY), "s")
        for trial in range(40)
    ]
    for name in SHAPE:
        values = np.stack([draw[name] for draw in drawn])
        assert values.std() == pytest.approx(expected, rel=0.05) and abs(values.mean()) < 0.05 * expected
        assert values.dtype == np.float32


def test_k_norm_noise_has_a_gamma_length_and_no_favoured_direction() -> None:
    """Radius Gamma(d, scale): mean d, variance d; the direction uniform."""
    draws = np.stack(
        [MECHANISMS["k-norm"].draw(HashCoins(trial_seed(1, trial), 1, NUMPY), "s", 1.0, (9,)) for trial in range(4000)]
    )
    lengths = np.linalg.norm(draws, axis=1)
    assert lengths.mean() == pytest.approx(9.0, rel=0.03) and lengths.var() == pytest.approx(9.0, rel=0.1)
    directions = draws / lengths[:, None]
    np.testing.assert_allclose(directions.T @ directions / len(draws), np.eye(9) / 9, atol=0.02)
    assert abs(np.corrcoef(lengths, directions[:, 0])[0, 1]) < 0.05


def test_no_epsilon_is_stated() -> None:
    task = parse(
        """
crowdml = 1
name = "noisy"
[data]
dataset = "digits"
features = 64
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
[model]
kind = "softmax"
[algorithm]
kind = "local-sgd"
[privacy]
mode = "paper"
mechanism = "gaussian"
noise-scale = 0.1
[crowd]
passes = 1
curve = 1
"""
    )
    told = simulate(task).privacy
    assert told["sample"] is None and told["device"] is None and told["paper_claim"] is None
    assert "no ε can be stated" in told["guarantee"] and "s.d. 0.1" in told["noise"]


def test_counts_have_no_such_noise() -> None:
    terms = PrivacySettings.model_validate({"mode": "paper", "mechanism": "discrete-laplace", "noise-scale": 0.4})
    with pytest.raises(BadInput, match="standard deviation"):
        make_plan(terms, Releases(sends="change"), ModelBounds(size=SIZE))
