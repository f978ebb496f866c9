"""The attack on stable steps refutes no claim, and does refute what is planted.

`python -m tests.privacy.attack_stable --settings 200` is the same over many more settings.
"""

from __future__ import annotations

import pytest

from crowdml.privacy.renyi import rdp_epsilon
from tests.privacy.attack_stable import attack_family, halved_control, lower_bound, rounded_control

TRIALS = 1000


def test_no_claim_about_stable_steps_is_refuted() -> None:
    found = attack_family(12, TRIALS, 3, lambda line: None)
    assert not [verdict for verdict in found if verdict.caught]
    assert max(verdict.apart for verdict in found) > 0.9  # so there was something to refute


def test_half_the_noise_is_caught() -> None:
    assert halved_control(4000, 12).caught


def test_steps_that_are_rounded_far_from_zero_are_caught() -> None:
    """The messages are many times farther apart than claimed, so that hardly one is taken for the other."""
    found = rounded_control(TRIALS, 12)
    assert found.caught and found.apart > 50 and found.bound > 2 * found.claim


@pytest.mark.parametrize("rho", [0.05, 0.5])
def test_a_lower_bound_is_one(rho: float) -> None:
    """Gaussian noise of known cost: its exact probabilities give no more than what is proven, whatever is asked."""
    from scipy import stats

    distance, trials = (2 * rho) ** 0.5, 10**7
    for delta in (1e-5, 0.01, 0.2):
        for at in (-1.0, 0.0, 1.0, 2.0):
            hits, misses = (trials * stats.norm.sf(at - distance), trials * stats.norm.sf(at))
            assert lower_bound(hits, misses, trials, delta, 0.01) <= rdp_epsilon(rho, delta)
    assert lower_bound(0, 0, 10, 0.0, 0.01) == 0.0 == lower_bound(10, 10, 10, 0.0, 0.01)
