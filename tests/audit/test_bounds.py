"""Bounds on ε and μ: they hold as often as they say, they come near, and a family shares its error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

from crowdml.audit.bounds import (
    Confidence,
    Guesses,
    best_threshold,
    count,
    epsilon_bound,
    gaussian_bound,
    mu_bound,
)
from crowdml.core import BadInput
from crowdml.privacy.promise import gaussian_epsilon


@pytest.mark.parametrize(("hits", "trials"), [(0, 50), (1, 50), (25, 50), (50, 50), (9_000, 20_000)])
def test_rates_are_those_of_clopper_and_pearson(hits: int, trials: int) -> None:
    """At the lower bound so many hits or more have half the error as their probability; at the upper, so few."""
    low, high = Guesses(hits=hits, alarms=hits, trials=trials).rates(0.02)
    assert low == 0 if hits == 0 else binom.sf(hits - 1, trials, low) == pytest.approx(0.01)
    assert high == 1 if hits == trials else binom.cdf(hits, trials, high) == pytest.approx(0.01)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_the_bound_on_mu_fails_no_more_often_than_it_says_and_comes_near(mu: float) -> None:
    """Seeded: of 4,000 bounds at an error of 1 in 20, at most 240 may be too high (more than 3 deviations)."""
    generator, trials = np.random.default_rng(1), 2_000
    hits = generator.binomial(trials, ndtr(mu / 2), 4_000)
    alarms = generator.binomial(trials, ndtr(-mu / 2), 4_000)
    bounds = np.array(
        [mu_bound(Guesses(hits=h, alarms=a, trials=trials), 0.05) for h, a in zip(hits, alarms, strict=True)]
    )
    assert (bounds > mu).sum() <= 240
    assert np.median(bounds) > mu - 0.12
    one = Guesses(hits=int(hits[0]), alarms=int(alarms[0]), trials=trials)
    assert gaussian_bound(one, 1e-5, 0.05) == pytest.approx(gaussian_epsilon(float(bounds[0]), 1e-5))


@pytest.mark.parametrize("threshold", [-1.0, 0.3, 1.5])
def test_the_bound_on_mu_holds_at_any_threshold(threshold: float) -> None:
    """Far from the middle the two probabilities differ, and the mean of both is what is bounded."""
    mu, trials, generator = 1.0, 2_000, np.random.default_rng(2)
    hits = generator.binomial(trials, ndtr(mu / 2 - threshold), 2_000)
    alarms = generator.binomial(trials, ndtr(-mu / 2 - threshold), 2_000)
    bounds = [mu_bound(Guesses(hits=h, alarms=a, trials=trials), 0.05) for h, a in zip(hits, alarms, strict=True)]
    assert sum(bound > mu for bound in bounds) <= 130


def test_a_bound_on_epsilon_looks_at_the_opposite_guess_too() -> None:
    """Many alarms, but hardly a miss: whoever hears "second" knows it was the second."""
    guesses = Guesses(hits=20_000, alarms=18_000, trials=20_000)
    assert epsilon_bound(guesses, 0.0, 0.01) > math.log(0.09 / 5e-4)
    assert epsilon_bound(Guesses(hits=100, alarms=100, trials=1000), 0.0, 0.01) == 0
    assert gaussian_bound(Guesses(hits=100, alarms=900, trials=1000), 1e-5, 0.01) == 0


def test_delta_is_taken_off_what_was_seen() -> None:
    guesses = Guesses(hits=10_000, alarms=100, trials=20_000)
    assert epsilon_bound(guesses, 0.2, 0.01) < epsilon_bound(guesses, 0.0, 0.01)
    assert epsilon_bound(guesses, 0.6, 0.01) == pytest.approx(0.0, abs=1e-9)


def test_the_threshold_is_where_most_is_proven() -> None:
    """Laplace noise: the likelihood ratio has its largest value with probability one half."""
    generator = np.random.default_rng(3)
    worlds = [np.clip(generator.laplace(at, 1.0, 10_000), 0.0, 2.0) - 1.0 for at in (2.0, 0.0)]
    found = best_threshold(worlds[0], worlds[1], 20_000, 0.0, 0.01)
    assert 0.8 < found <= 1.0
    guesses = count(found, worlds[0], worlds[1])
    assert guesses.hits / guesses.trials == pytest.approx(0.5, abs=0.05)


def test_a_family_shares_its_error_and_nonsense_is_refused() -> None:
    assert Confidence(level=0.99, family=5).error == pytest.approx(0.002)
    for level in (0.3, 1.0, 2.0):
        with pytest.raises(BadInput, match="is no confidence"):
            Confidence(level=level, family=1)
