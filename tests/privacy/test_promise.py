"""How releases add up: hand computations, and another implementation as judge."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.privacy import Cost, Promise
from crowdml.privacy.cost import Gaussian, Pure
from crowdml.privacy.promise import gaussian_delta, gaussian_epsilon, gaussian_mu


def test_five_passes_at_pure_ten_cost_fifty() -> None:
    assert Cost.of(Pure(epsilon=10.0)).times(5).promise(delta=0.0) == Promise(epsilon=50.0, delta=0.0)
    assert Cost.of(Pure(epsilon=10.0)).times(5).promise(delta=1e-5) == Promise(epsilon=50.0, delta=0.0)


@pytest.mark.parametrize(
    ("each", "delta", "total"), [(0.1, 1e-3, 0.242), (0.1, 1e-5, 0.410), (1.0, 1e-3, 3.87), (1.0, 1e-5, 5.33)]
)
def test_twenty_gaussian_releases_of_the_classical_calibration(each: float, delta: float, total: float) -> None:
    # The classical z = √(2 ln(1.25/δ)) / ε at δ = 1e-3: 37.8 at ε = 0.1. The totals were found by another method
    # (numerical privacy loss distributions) and are given to three digits.
    z = math.sqrt(2 * math.log(1.25 / 1e-3)) / each
    assert z * each == pytest.approx(3.78, abs=0.005)
    spent = Cost.of(Gaussian(mu_squared=1 / z**2)).times(20)
    assert spent.promise(delta).epsilon == pytest.approx(total, rel=3e-3)
    assert spent.promise(delta).delta == delta


def test_our_judge_agrees() -> None:
    """The Gaussian calibration and composition of dp-accounting give the same numbers."""
    import dp_accounting

    for epsilon in (0.01, 0.1, 1.0, 8.0, 50.0):
        for delta in (1e-2, 1e-5, 1e-9):
            sigma = dp_accounting.get_sigma_gaussian(epsilon, delta)
            assert 1 / gaussian_mu(epsilon, delta) == pytest.approx(sigma, rel=1e-6)
            assert gaussian_epsilon(1 / sigma, delta) == pytest.approx(
                dp_accounting.get_epsilon_gaussian(sigma, delta), rel=1e-6, abs=1e-9
            )
    # A mixture of pure and Gaussian releases: ours is a valid bound, so never below the numerical one.
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(dp_accounting.GaussianDpEvent(5.0), 10).compose(dp_accounting.LaplaceDpEvent(4.0), 3)
    ours = (
        Cost.of(Gaussian(mu_squared=1 / 25)).times(10).plus(Cost.of(Pure(epsilon=1 / 4)).times(3)).promise(1e-5).epsilon
    )
    numerical = accountant.get_epsilon(1e-5)
    assert numerical <= ours <= 0.75 + gaussian_epsilon(math.sqrt(10) / 5, 1e-5) + 1e-9


@settings(deadline=None, max_examples=100)
@given(st.floats(1e-3, 200.0), st.floats(-14, -0.5).map(lambda power: 10.0**power))
def test_calibration_and_cost_are_inverse_to_each_other(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    # The difference of two nearly equal tails limits what is possible at small ε and tiny δ.
    assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-6, abs=1e-9)
    assert gaussian_delta(mu, epsilon) <= delta
    assert gaussian_delta(mu * 1.001, epsilon) > delta


@settings(deadline=None, max_examples=60)
@given(st.floats(0.01, 30.0), st.floats(0.0, 100.0))
def test_delta_against_the_integral_it_is(mu: float, epsilon: float) -> None:
    """δ(ε) = ∫ max(0, p(x) - e^ε q(x)) dx for p = N(μ, 1), q = N(0, 1), by a plain sum over a fine grid."""
    import numpy as np

    x = np.linspace(mu - 12, mu + 12, 200_001)
    p = np.exp(-((x - mu) ** 2) / 2)
    tilted = np.exp(np.clip(epsilon - x**2 / 2, -745, 300))
    expected = float(np.maximum(0, p - tilted).sum() * (x[1] - x[0]) / math.sqrt(2 * math.pi))
    assert gaussian_delta(mu, epsilon) == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_delta_falls_with_epsilon_and_grows_with_mu() -> None:
    epsilons = [0.0, 0.1, 1.0, 5.0, 50.0]
    mus = [0.01, 0.1, 1.0, 10.0, 1000.0]
    for mu in mus:
        found = [gaussian_delta(mu, epsilon) for epsilon in epsilons]
        assert found == sorted(found, reverse=True) and 0.0 <= found[-1] <= found[0] <= 1.0
    for epsilon in epsilons:
        found = [gaussian_delta(mu, epsilon) for mu in mus]
        assert found == sorted(found)


def test_borders() -> None:
    assert gaussian_epsilon(1.0, 0.0) == math.inf
    assert gaussian_epsilon(1e-6, 1e-5) == 0.0
    assert math.isfinite(gaussian_epsilon(1e4, 1e-5))
    assert Cost().promise(0.0) == Promise(epsilon=0.0, delta=0.0)
    assert Cost.of(Gaussian(mu_squared=1.0)).promise(0.0).epsilon == math.inf


def mixture(pure: float, mu_squared: float) -> Cost:
    return Cost.of(Pure(epsilon=pure)).plus(Cost.of(Gaussian(mu_squared=mu_squared)))


def test_sums_are_kept_apart() -> None:
    one = mixture(1.0, 0.25)
    assert one.times(4).plus(one) == one.times(5) and one.times(0) == Cost()
    mixed = mixture(1.5, 1.0).promise(1e-5)
    assert gaussian_epsilon(1.0, 1e-5) < mixed.epsilon <= 1.5 + gaussian_epsilon(1.0, 1e-5) and mixed.delta == 1e-5


def test_a_group_multiplies_sensitivity() -> None:
    # μ is sensitivity over standard deviation: three samples at once are three times as far apart.
    assert mixture(0.5, 0.25).grouped(3) == mixture(1.5, 2.25)
    assert mixture(0.5, 0.25).grouped(1) == mixture(0.5, 0.25)
    # Pure and Gaussian alike, a group in several releases is the same either way round.
    one = mixture(0.1, 0.01)
    assert one.grouped(2).times(5) == one.times(5).grouped(2)
